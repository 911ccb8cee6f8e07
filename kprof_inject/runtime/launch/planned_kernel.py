"""Planned kernels, with builds that are compiled when a launch needs them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from kprof_inject.capture.cta_samples import AUTO_CTAS, EVERY_CTA, FEWER_CTAS, CtaChoice, CtaSample
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.ring_sizes import MAX_LAUNCH_BYTES, smaller_buffer_bytes
from kprof_inject.capture.schema import Grid
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.quantities import counted, size_text
from kprof_inject.runtime.compiling.compiler import Compile, compiling_alone, put_in_place
from kprof_inject.runtime.compiling.instrumented_kernel import InstrumentedKernel, binaries_folder
from kprof_inject.runtime.compiling.recording_build import RecordingBuild
from kprof_inject.runtime.compiling.triton_caches import overriding
from kprof_inject.runtime.devices.cuda_driver import resources_of
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.process_events import keeping_signal_handlers
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.versions import installed_version
from kprof_inject.workspace import DumpedKernel, Workspace

_MAX_FOR_OTHER_MEMORY = 0.15
"""Excess of a kernel's time up to which its records may only be in the wrong memory. For 19 foreign kernels, the other
one made at most 12 % of difference (H100)."""

Plan = tuple[DumpedKernel, ScopeTable]
"""A dumped kernel, and the scopes of the records to insert."""

Fewer = Callable[[DumpedKernel, str], tuple[str, ScopeTable] | None]
"""Function that plans fewer records than a plan has, for a kernel that they slow down.

It returns the name of the new plan, and its scopes; None if that is not possible.
"""


def no_fewer(dumped: DumpedKernel, plan: str) -> None:
    """Plan nothing: the records of a kernel are those that the user planned."""


class PlannedKernel:
    """Planned kernel of this process, and its builds with records.

    A grid that is large enough for a sample of its CTAs has another build than a smaller one, and one that needs a
    smaller buffer for each CTA has its own.
    """

    def __init__(
        self,
        session: Session,
        report: ProcessReport,
        device: Device,
        fewer: Fewer,
        variant: DumpedKernel,
        plan: Plan,
        overridden: Compile,
    ) -> None:
        """Prepare to launch a variant of the program with the records of ``plan``, or ``fewer``.

        ``overridden(path)`` compiles the kernel again while Triton finds its TTGIR at this path.
        """
        self.variant = variant.variant
        self.dumped, self._scope_table = plan
        self.max_bytes = min(session.recording.max_bytes, MAX_LAUNCH_BYTES)
        """Maximum size of a launch's buffer."""
        self._session = session
        self._report = report
        self._device = device
        self._fewer = fewer
        self._workspace = Workspace(Path(session.workspace))
        self._name = variant.name  # the function's name; Triton's module may have another
        self._plan = self.dumped.variant
        """Name of the plan in the workspace."""
        self._overridden = overridden
        self._put_in_place = put_in_place(variant)
        self._instrumented: InstrumentedKernel | None = None
        self._why_fewer = ""
        """Reason why fewer records are made than were planned first; empty if there is none."""
        self._why_all_ctas = ""
        """Reason why all CTAs record although a sample should; empty if there is none."""
        self._builds: dict[str, tuple[RecordingBuild, Any]] = {}
        """Builds by how they are made, with their kernels: Triton 3.9 unloads a kernel without references."""
        self._ctas = session.recording.cta_choice
        """Which CTAs record, as the user has it, or ``FEWER_CTAS``."""
        self._choice: CtaChoice | None = None
        """Which CTAs record, as the first large grid has it; None before that launch, and if each grid has its own."""
        self._reduced = ""
        """How fewer records were made last; empty if all are made."""

    def prepare(self, kernel: Any) -> None:
        """Prepare to launch a loaded kernel with records."""
        self._device.prepare()
        clean = self._workspace.clean_run(self.variant)
        if clean.registers is None:
            clean = msgspec.structs.replace(clean, **resources_of(kernel))
        may_sample = self._session.recording.cta_choice != EVERY_CTA and installed_version().offset_bits is not None
        clean_ptx = kernel.asm.get("ptx") if may_sample else None
        self._instrumented = InstrumentedKernel(
            self._session, self.dumped, self._plan, self._scope_table, clean, clean_ptx, self._compile_planned
        )

    def record_less(self, excess: float, grid: Grid) -> bool:
        """Have records made that cost less, because the kernel takes longer with them by this part of its time.

        They are in other memory, or fewer, and its builds are compiled again. ``grid`` is that of a launch. Returns
        False if there is no other way.
        """
        with compiling_alone():
            before = self._instrumented
            if before is None:
                return False
            sample = self._ctas_of(before, grid).sample(grid, before.cluster_ctas)
            prefers_shared = before.prefers_shared
            if excess <= _MAX_FOR_OTHER_MEMORY and before.can_prefer_shared(sample):
                prefers_shared = True
                self._why_fewer = "its records are in shared memory: in global memory"
            elif (plan := self._fewer(self.dumped, self._plan)) is not None:
                left_out = "loops" if self._reduced else "iterations"
                self._reduced = f"no-{left_out}"
                self._why_fewer = f"its {left_out} are not recorded: with them"
                self._plan, self._scope_table = plan
                self._why_all_ctas = ""
            elif (fewer := self._fewer_ctas(before, grid, sample)) is not None:
                self._reduced = "fewer-ctas"
                self._why_fewer = f"{fewer.rows:,} of its {fewer.ctas:,} CTAs record: with more"
                self._ctas = FEWER_CTAS
            else:
                return False
            self._why_fewer += f", it took {100 * excess:.0f} % longer"
            self._instrumented = replace(
                before, plan=self._plan, scope_table=self._scope_table, prefers_shared=prefers_shared
            )
        return True

    def _fewer_ctas(self, instrumented: InstrumentedKernel, grid: Grid, now: CtaSample) -> CtaSample | None:
        """Return the sample of a launch of which fewer CTAs record than ``now``; None if that is not possible."""
        if self._ctas != AUTO_CTAS or self._why_all_ctas or not instrumented.has_samples:
            return None
        fewer = FEWER_CTAS.sample(grid, instrumented.cluster_ctas)
        return fewer if fewer.shift > now.shift else None

    def give_up(self, reason: str) -> None:
        """Report that this kernel is launched without records from now on."""
        with self._report.guard("reporting a kernel"):
            self._report.add_kernel(self.variant, self._name, "left alone", reason)

    def build_for(self, grid: Grid, max_bytes: int) -> RecordingBuild:
        """Return a build whose buffer for ``grid`` takes at most ``max_bytes``; it may have to be compiled.

        Raises ``KprofError`` if the kernel cannot take records, or if so small a buffer would hold too few, and any
        other error if something is wrong with us.
        """
        with compiling_alone(), self._device.unaffected_by_graphs(), keeping_signal_handlers():
            instrumented = self._instrumented
            if instrumented is None:
                raise KprofError("it is not loaded")
            build = self._usual_build(instrumented, grid)
            if build.buffer_bytes(grid) <= max_bytes:
                return build
            sample = build.sample(grid)
            usual = instrumented.mode(sample)
            room_bytes = max(max_bytes - sample.ends_bytes, 0)
            buffer_bytes = smaller_buffer_bytes(usual, sample.rows, instrumented.total_warps, room_bytes)
            if buffer_bytes is None:
                raise KprofError(
                    f"a grid of {counted(sample.ctas, 'CTA')} needs a buffer of {size_text(build.buffer_bytes(grid))}, "
                    f"there is room for {size_text(max_bytes)}, and a smaller one holds too few records for each CTA; "
                    "raise --max-bytes, select less, or record fewer --warps"
                )
            note = (
                f"for a grid of {counted(sample.ctas, 'CTA')}, each CTA keeps {buffer_bytes} bytes of records instead "
                f"of {usual.buffer_bytes}"
            )
            return self._build(
                instrumented, build.ctas, msgspec.structs.replace(usual, buffer_bytes=buffer_bytes), note
            )

    def _compile_planned(self, effects: ExitStack) -> Any:
        """Compile the kernel with its instrumented TTGIR; ``effects`` are undone after that."""
        workspace = self._workspace
        effects.enter_context(overriding(workspace.override_folder / self._plan, binaries_folder(workspace)))
        return self._overridden(workspace.override_path(replace(self.dumped, variant=self._plan)))

    def _usual_build(self, instrumented: InstrumentedKernel, grid: Grid) -> RecordingBuild:
        """Return the build with the usual buffer. Where no sample of the CTAs can record, all do."""
        ctas = self._ctas_of(instrumented, grid)
        if ctas != EVERY_CTA:
            try:
                return self._build_of(instrumented, ctas, grid, "")
            except KprofError as error:
                self._why_all_ctas = f"all its CTAs record: {error.what}"
        return self._build_of(instrumented, EVERY_CTA, grid, self._why_all_ctas)

    def _ctas_of(self, instrumented: InstrumentedKernel, grid: Grid) -> CtaChoice:
        """Return which CTAs of a launch record. Launches in which all do need no second body."""
        if self._why_all_ctas or not instrumented.has_samples:
            return EVERY_CTA
        choice = self._choice
        if choice is None:
            choice = self._ctas.of_launch(grid, instrumented.cluster_ctas, instrumented.sms)
            self._choice = choice if choice.shift else None
        return choice if choice.sample(grid, instrumented.cluster_ctas).shift else EVERY_CTA

    def _build_of(self, instrumented: InstrumentedKernel, ctas: CtaChoice, grid: Grid, note: str) -> RecordingBuild:
        mode = instrumented.mode(ctas.sample(grid, instrumented.cluster_ctas))
        return self._build(instrumented, ctas, mode, note)

    def _build(self, instrumented: InstrumentedKernel, ctas: CtaChoice, mode: Mode, note: str) -> RecordingBuild:
        where = mode.buffer if ctas == EVERY_CTA else "sample"
        key = "-".join(filter(None, (self._reduced, where, str(mode.buffer_bytes))))
        if key not in self._builds:
            name = f"{self.variant}-{key}" if self._builds else self.variant
            self._builds[key] = instrumented.build(name, ctas, mode)
            in_place = f"the program puts its TTGIR in place: {self._put_in_place}" if self._put_in_place else ""
            notes = "; ".join(filter(None, (in_place, self._why_fewer, note)))
            self._report.add_kernel(name, self._name, "instrumented", notes)
        return self._builds[key][0]
