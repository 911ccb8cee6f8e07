"""Record the launches of the planned kernels of one process, each with a build that is compiled when it is needed."""

from __future__ import annotations

import functools
import threading
from contextlib import ExitStack
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kprof_inject.capture.cta_samples import AUTO_CTAS, EVERY_CTA, FEWER_CTAS, CtaChoice, CtaSample
from kprof_inject.capture.edits import write_other_values
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.ring_sizes import MAX_LAUNCH_BYTES, smaller_buffer_bytes
from kprof_inject.capture.schema import Grid
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.quantities import counted, size_text
from kprof_inject.runtime.compiling.compiler import (
    ANOTHER_TTGIR,
    Compile,
    call_of,
    other_values,
    put_in_place,
    same_code,
    variant_of,
    with_room,
)
from kprof_inject.runtime.compiling.instrumented_kernel import InstrumentedKernel, binaries_folder
from kprof_inject.runtime.compiling.triton_caches import overriding
from kprof_inject.runtime.devices.cuda_driver import resources_of
from kprof_inject.runtime.devices.device import Device, devices_of_process
from kprof_inject.runtime.hook import packages_binaries
from kprof_inject.runtime.launch.clean_times import CleanTimes
from kprof_inject.runtime.launch.launch_saver import KernelToSave
from kprof_inject.runtime.launch.launcher import Captures, CapturingLauncher, SavingLauncher
from kprof_inject.runtime.launch.recorded_launch import ArgumentKinds, RecordingBuild
from kprof_inject.runtime.launch.triton_wrapping import Load, around_load
from kprof_inject.runtime.process_events import in_forked_child, keeping_signal_handlers
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.versions import installed_version
from kprof_inject.workspace import DumpedKernel, Workspace

_MAX_FOR_OTHER_MEMORY = 0.15
"""Excess of a kernel's time up to which its records may only be in the wrong memory. For 19 foreign kernels, the other
one made at most 12 % of difference (H100)."""

Plan = tuple[DumpedKernel, ScopeTable]
"""A dumped kernel, and the scopes of the records to insert."""


class Plans(Protocol):
    """The plans of the kernels that get records."""

    def plan_of(self, variant: DumpedKernel, kernel: Any) -> Plan | None:
        """Return the plan of a variant, which Triton has just compiled as ``kernel``, or None to leave it as it is."""

    def fewer(self, dumped: DumpedKernel, plan: str) -> tuple[str, ScopeTable] | None:
        """Plan fewer records than ``plan`` has, for a kernel that they slow down; return None if that is not possible.

        The result is the name of the new plan, and its scopes.
        """


class Step:
    """Compiler of this process, which arranges that the launches of each planned kernel have records.

    The program gets the kernel that Triton compiles. A build with records is compiled at the first launch that needs
    it, so the configurations that an autotuner only tries have none. Kernels without a plan may be timed or saved.
    """

    def __init__(
        self,
        session: Session,
        report: ProcessReport,
        plans: Plans,
        device: Device | None = None,
        captures: Captures | None = None,
        times: CleanTimes | None = None,
    ) -> None:
        """Take the plans from ``plans``, and launch the kernels into ``captures``.

        Without a plan for any kernel, neither ``captures`` nor the ``device`` are needed. With ``times``, kernels
        without records are timed.
        """
        self.session = session
        self.report = report
        self.captures = captures or _NoCaptures()
        self.workspace = Workspace(Path(session.workspace))
        self.plans = plans
        self._device = device
        self._times = times
        # Triton's knobs and the backend's instrumentation are global to the process.
        self.lock = threading.RLock()
        in_forked_child(self._begin_in_child)

    def _begin_in_child(self) -> None:
        self.lock = threading.RLock()

    @property
    def device(self) -> Device:
        """The devices of this process. To look for them imports torch."""
        return self._device or devices_of_process()

    def compile(self, original: Compile, args: Any, kwargs: Any) -> Any:
        """Compile a kernel, and prepare to record its launches if it is planned."""
        plain = functools.partial(with_room(original), *args, **kwargs)
        with self.lock:
            kernel = plain()
            with self.report.guard("preparing a kernel"):
                variant = variant_of(self.workspace, original, args, kwargs, kernel.asm)
                source, target, options = call_of(original, args, kwargs)
                if isinstance(source, str) and source.endswith(".ttgir"):
                    # Triton replaces the results of its stages, and this is where it starts.
                    from_file = functools.partial(with_room(original), target=target, options=options)
                    self.prepare(variant, kernel, lambda path: from_file(str(path)))
                else:
                    self.prepare(variant, kernel, lambda _: plain())
                values = self.session.values if variant.ttgir_path.exists() else {}
                if others := other_values(source, target, options, values) if values else ():
                    write_other_values(self.workspace.kernels_folder / variant.variant, others)
        return kernel

    def prepare(self, variant: DumpedKernel, kernel: Any, overridden: Compile) -> None:
        """Arrange that loading a compiled ``kernel`` prepares its launches.

        ``overridden(path)`` compiles it again while Triton finds its TTGIR at this path.
        """
        plan = self.plans.plan_of(variant, kernel)
        if plan is not None and (reason := why_not_recorded(variant)):
            self.report.add_kernel(variant.variant, variant.name, "left alone", reason)
            plan = None
        if plan is not None:
            around_load(kernel, PlannedKernel(self, variant, *plan, overridden).load)
        elif self._is_timed(variant) or self.session.saved.has(variant.variant):
            around_load(kernel, functools.partial(self._load_unplanned, variant))

    def _is_timed(self, variant: DumpedKernel) -> bool:
        return self._times is not None and fnmatchcase(variant.name, self.session.recording.kernel)

    def _load_unplanned(self, variant: DumpedKernel, kernel: Any, load: Load) -> None:
        if self._times is not None and self._is_timed(variant):
            self._times.load(variant.variant, kernel, load)
        else:
            load()
        self.save_launch_of(kernel, variant)

    def save_launch_of(self, kernel: Any, variant: DumpedKernel) -> None:
        """Have a launch of a loaded kernel without records saved, if that is wanted."""
        if not self.session.saved.has(variant.variant):
            return
        with self.report.guard("preparing to save a launch"):
            reason = _why_no_records_fit(variant)
            if not reason and variant.ttgir_path.exists() and not same_code(variant.ttgir(), kernel.asm["ttgir"]):
                reason = ANOTHER_TTGIR
            if reason:
                self.report.add_saved_launch(variant.variant, variant.name, reason)
                return
            self.device.prepare()
            # It is one already if an exception ended an earlier attempt.
            if not isinstance(kernel._run, SavingLauncher):
                kinds = ArgumentKinds.of(variant.info.signature)
                clean = self.workspace.clean_run(variant.variant)
                to_save = KernelToSave.of(kinds, name=variant.name, variant=variant.variant, clean=clean)
                kernel._run = SavingLauncher(kernel, to_save, self.captures)


class _NoCaptures:
    """Captures of a program in which no launch is recorded."""

    def current(self) -> None:
        """Return None."""


def why_not_recorded(variant: DumpedKernel) -> str:
    """Return the reason why a planned kernel must not get records; empty if there is none."""
    return _why_no_records_fit(variant) or ("Inductor packages it for C++" if packages_binaries() else "")


def _why_no_records_fit(variant: DumpedKernel) -> str:
    """Return the reason if what runs is not made of the kernel's TTGIR; empty if it is."""
    path = put_in_place(variant)
    is_after_ttgir = path and not path.endswith((".ttir", ".ttgir"))
    return f"the program replaces what is made of its TTGIR by {path}" if is_after_ttgir else ""


class PlannedKernel:
    """Planned kernel of this process, and its builds with records.

    A grid that is large enough for a sample of its CTAs has another build than a smaller one, and one that needs a
    smaller buffer for each CTA has its own.
    """

    def __init__(
        self,
        step: Step,
        variant: DumpedKernel,
        dumped: DumpedKernel,
        scope_table: ScopeTable,
        overridden: Compile,
    ) -> None:
        """Prepare to launch ``dumped`` with the records of ``scope_table``; ``overridden`` is as in ``prepare``."""
        self._step = step
        self._variant = variant.variant
        self._name = variant.name  # the function's name; Triton's module may have another
        self._dumped = dumped
        self._plan = dumped.variant
        """Name of the plan in the workspace."""
        self._scope_table = scope_table
        self._overridden = overridden
        self._put_in_place = put_in_place(variant)
        self._instrumented: InstrumentedKernel | None = None
        self._why_fewer = ""
        """Reason why fewer records are made than were planned first; empty if there is none."""
        self._why_all_ctas = ""
        """Reason why all CTAs record although a sample should; empty if there is none."""
        self._builds: dict[str, tuple[RecordingBuild, Any]] = {}
        """Builds by how they are made, with their kernels: Triton 3.9 unloads a kernel without references."""
        self._ctas = step.session.recording.cta_choice
        """Which CTAs record, as the user has it, or ``FEWER_CTAS``."""
        self._choice: CtaChoice | None = None
        """Which CTAs record, as the first large grid has it; None before that launch, and if each grid has its own."""
        self._reduced = ""
        """How fewer records were made last; empty if all are made."""

    def load(self, kernel: Any, load: Load) -> None:
        """Load the program's kernel, and replace the launcher that Triton makes for it."""
        load()
        with self._step.report.guard("preparing to record a kernel"):
            self.attach(kernel)

    def attach(self, kernel: Any) -> None:
        """Replace the launcher of a loaded kernel."""
        step = self._step
        step.device.prepare()
        clean = step.workspace.clean_run(self._variant)
        if clean.registers is None:
            clean = msgspec.structs.replace(clean, **resources_of(kernel))
        may_sample = step.session.recording.cta_choice != EVERY_CTA and installed_version().offset_bits is not None
        clean_ptx = kernel.asm.get("ptx") if may_sample else None
        self._instrumented = InstrumentedKernel(
            step.session, self._dumped, self._plan, self._scope_table, clean, clean_ptx, self._compile_planned
        )
        # It is one already if an exception ended an earlier attempt.
        if not isinstance(kernel._run, CapturingLauncher):
            max_bytes = min(step.session.recording.max_bytes, MAX_LAUNCH_BYTES)
            kernel._run = CapturingLauncher(kernel, self._variant, self, step.captures, max_bytes)

    def record_less(self, excess: float, grid: Grid) -> bool:
        """Have records made that cost less, because the kernel takes longer with them by this part of its time.

        They are in other memory, or fewer, and its builds are compiled again. ``grid`` is that of a launch. Returns
        False if there is no other way.
        """
        with self._step.lock:
            before = self._instrumented
            if before is None:
                return False
            sample = self._ctas_of(before, grid).sample(grid, before.cluster_ctas)
            prefers_shared = before.prefers_shared
            if excess <= _MAX_FOR_OTHER_MEMORY and before.can_prefer_shared(sample):
                prefers_shared = True
                self._why_fewer = "its records are in shared memory: in global memory"
            elif (plan := self._step.plans.fewer(self._dumped, self._plan)) is not None:
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

    def give_up(self, kernel: Any, reason: str) -> None:
        """Report that this kernel is launched without records from now on. A launch of it may still be saved."""
        with self._step.report.guard("reporting a kernel"):
            self._step.report.add_kernel(self._variant, self._name, "left alone", reason)
        if kernel is not None:
            self._step.save_launch_of(kernel, self._dumped)

    def build_for(self, grid: Grid, max_bytes: int) -> RecordingBuild:
        """Return a build whose buffer for ``grid`` takes at most ``max_bytes``; it may have to be compiled.

        Raises ``KprofError`` if the kernel cannot take records, or if so small a buffer would hold too few, and any
        other error if something is wrong with us.
        """
        with self._step.lock, self._step.device.unaffected_by_graphs(), keeping_signal_handlers():
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
        workspace = self._step.workspace
        effects.enter_context(overriding(workspace.override_folder / self._plan, binaries_folder(workspace)))
        return self._overridden(workspace.override_path(replace(self._dumped, variant=self._plan)))

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
            name = f"{self._variant}-{key}" if self._builds else self._variant
            self._builds[key] = instrumented.build(name, ctas, mode)
            in_place = f"the program puts its TTGIR in place: {self._put_in_place}" if self._put_in_place else ""
            notes = "; ".join(filter(None, (in_place, self._why_fewer, note)))
            self._step.report.add_kernel(name, self._name, "instrumented", notes)
        return self._builds[key][0]
