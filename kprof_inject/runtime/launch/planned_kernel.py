"""Planned kernels: which CTAs record, where to, and the builds for that, compiled when a launch needs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from kprof_inject.capture.capture_files import KernelRecord
from kprof_inject.capture.cta_samples import AUTO_CTAS, EVERY_CTA, FEWER_CTAS, CtaChoice, CtaSample
from kprof_inject.capture.mode import AUTO_BUFFER, Mode
from kprof_inject.capture.resources import KernelResources, limits_of, registers_for
from kprof_inject.capture.ring_sizes import (
    MAX_LAUNCH_BYTES,
    auto_buffer,
    keeps_occupancy,
    mode_of_kernel,
    smaller_buffer_bytes,
)
from kprof_inject.capture.schema import Grid, plausible_sm_clock_hz
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.files import write_bytes
from kprof_inject.quantities import counted, size_text
from kprof_inject.runtime.compiling.builds import build_files
from kprof_inject.runtime.compiling.compiler import compiling_alone, put_in_place
from kprof_inject.runtime.compiling.instrumentation import keeping_body, scope_names, target_of
from kprof_inject.runtime.compiling.recording_build import (
    ArgumentKinds,
    RecordingBuild,
    compile_with_records,
    device_properties,
)
from kprof_inject.runtime.compiling.two_bodies import FunctionRecord
from kprof_inject.runtime.devices.cuda_driver import l2_bytes, resources_of
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.launch.timing import Excess
from kprof_inject.runtime.process_events import keeping_signal_handlers, let_through
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.versions import installed_version
from kprof_inject.workspace import DumpedKernel, Workspace

_MAX_FOR_OTHER_MEMORY = 0.15
"""Excess of a kernel's time up to which its records may only be in the wrong memory. For 19 foreign kernels, the other
one made at most 12 % of difference (H100)."""

# A second body is not worth this many more spills: ptxas allocates the registers of both at once, and where it leaves
# values in memory, the CTAs that do not record wait for them, too.
_MAX_MORE_SPILLS = 3

_MAX_AUTO_BYTES = 128 << 20
"""Size of a launch's buffer up to which ``auto`` gives each warp a whole ring in global memory. A launch has two or
three buffers, in memory that the program may need."""

_CHANGED_BY_RECORDS = ("num_warps", "shared", "profile_scratch_size", "profile_scratch_align")


class KernelPlan(NamedTuple):
    """Records planned for a dumped kernel: their scopes, and the name of the plan in the workspace."""

    dumped: DumpedKernel
    name: str
    scopes: ScopeTable

    @property
    def has_tags(self) -> bool:
        """True if any scope has tags."""
        return any(scope.tags for scope in self.scopes.scopes)


Fewer = Callable[[KernelPlan], KernelPlan | None]
"""Function that plans fewer records than a plan has, for a kernel that they slow down; None if that is not possible."""

CompileText = Callable[[Path, ExitStack], Any]
"""Function that compiles a kernel from a file with its instrumented TTGIR. The stack undoes its effects on the process
afterwards."""


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
        plan: KernelPlan,
        compile: CompileText,
    ) -> None:
        """Prepare to launch a ``variant`` of the program with the records of ``plan``, or ``fewer``."""
        self.dumped = plan.dumped
        self.max_bytes = min(session.recording.max_bytes, MAX_LAUNCH_BYTES)  # maximum size of a launch's buffer
        self._session = session
        self._report = report
        self._device = device
        self._fewer = fewer
        self._workspace = Workspace(Path(session.workspace))
        self._name = variant.name  # the function's name; Triton's module may have another
        self._plan = plan
        self._compile = compile
        self._put_in_place = put_in_place(variant)
        info = plan.dumped.info
        assert info.target is not None  # known for a kernel that was compiled
        self._target = target_of(info.target)
        self._cluster_ctas = info.known_metadata.num_ctas
        self._warps = int(info.metadata["num_warps"])
        self._shared_bytes = int(info.metadata["shared"])
        self._clean = KernelResources()  # resources of the kernel without records, once it is loaded
        self._clean_ptx: str | None = None
        """PTX of the kernel without records; None if it has none, or if all CTAs record in any case."""
        self._prefers_shared = False
        """True if records of this kernel cost less in shared memory, even where global memory is usually cheaper."""
        self._why_fewer = ""  # reason why fewer records are made than were planned first; empty if there is none
        self._why_all_ctas = ""  # reason why all CTAs record although a sample should; empty if there is none
        self._builds: dict[str, tuple[RecordingBuild, Any]] = {}
        """Builds by how they are made, with their kernels: Triton 3.9 unloads a kernel without references."""
        self._ctas = session.recording.cta_choice  # the user's choice of the CTAs that record, or ``FEWER_CTAS``
        self._choice: CtaChoice | None = None
        """Which CTAs record: the choice for the first large grid; None before it, and if each grid has its own."""
        self._reduced = ""  # how fewer records were made last; empty if all are made

    @property
    def variant(self) -> str:
        """Name of the program's variant."""
        return self.dumped.variant

    def prepare(self, kernel: Any) -> None:
        """Prepare to launch a loaded kernel with records."""
        self._device.prepare()
        clean = self._workspace.clean_run(self.variant)
        self._clean = replace(clean, **resources_of(kernel)) if clean.registers is None else clean
        can_sample = self._target.backend == "cuda" and installed_version().offset_bits is not None
        if can_sample and self._session.recording.cta_choice != EVERY_CTA:
            self._clean_ptx = kernel.asm.get("ptx")

    def record_less(self, excess: Excess, grid: Grid) -> bool:
        """Have records made that cost less, because the kernel, or the CTAs that record, take longer with them.

        They are in other memory, or fewer, and its builds are compiled again. ``grid`` is that of a launch. Returns
        False if there is no other way.
        """
        with compiling_alone():
            to_keep = ""
            sample = self._ctas_of(grid).sample(grid, self._cluster_ctas)
            fewer_ctas = FEWER_CTAS.sample(grid, self._cluster_ctas)
            if not excess.of_ctas and excess.part <= _MAX_FOR_OTHER_MEMORY and self._can_prefer_shared(sample):
                self._prefers_shared = True
                self._why_fewer = "its records are in shared memory: in global memory"
            elif (plan := self._fewer(self._plan)) is not None:
                left_out = "loops" if self._reduced else "iterations"
                self._reduced = f"no-{left_out}"
                self._why_fewer = f"its {left_out} are not recorded: with them"
                to_keep = f"; to record them, --at func --at loop{' --at iter' * (left_out == 'iterations')}"
                self._plan = plan
                self._why_all_ctas = ""
            elif excess.of_ctas:
                return False
            elif self._ctas == AUTO_CTAS and self._has_samples and fewer_ctas.shift > sample.shift:
                self._reduced = "fewer-ctas"
                self._why_fewer = f"{fewer_ctas.rows:,} of its {fewer_ctas.ctas:,} CTAs record: with more"
                self._ctas = FEWER_CTAS
            else:
                return False
            self._why_fewer += f", {excess}{to_keep}"
        return True

    def _can_prefer_shared(self, sample: CtaSample) -> bool:
        """Return True if records of these CTAs are in global memory, and could be in shared memory instead.

        They could if that is left to us, and as many CTAs then fit on an SM.
        """
        if self._session.recording.mode.buffer != AUTO_BUFFER or sample.shift or self.mode(sample).buffer == "shared":
            return False
        try:
            ring_bytes = self._mode_with(sample, prefers_shared=True).buffer_bytes
        except KprofError:  # no room
            return False
        return keeps_occupancy(ring_bytes, self._shared_bytes, self._warps, self._clean.registers, self._target_name)

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
            build = self._usual_build(grid)
            if build.buffer_bytes(grid) <= max_bytes:
                return build
            sample = build.sample(grid)
            usual = self.mode(sample)
            room_bytes = max(max_bytes - sample.ends_bytes, 0)
            buffer_bytes = smaller_buffer_bytes(usual, sample.rows, self._warps, room_bytes)
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
            return self._build(build.ctas, replace(usual, buffer_bytes=buffer_bytes), note)

    def _usual_build(self, grid: Grid) -> RecordingBuild:
        ctas = self._ctas_of(grid)
        if ctas != EVERY_CTA:
            try:
                return self._build(ctas, self.mode(ctas.sample(grid, self._cluster_ctas)), "")
            except KprofError as error:
                self._why_all_ctas = f"all its CTAs record: {error.what}"
        return self._build(EVERY_CTA, self.mode(EVERY_CTA.sample(grid, self._cluster_ctas)), self._why_all_ctas)

    @property
    def _has_samples(self) -> bool:
        return self._clean_ptx is not None and not self._why_all_ctas

    def _ctas_of(self, grid: Grid) -> CtaChoice:
        """Return which CTAs of a launch record. Launches in which all do need no second body."""
        if not self._has_samples:
            return EVERY_CTA
        choice = self._choice
        if choice is None:
            sms = device_properties(self._target).get("multiprocessor_count", 0)
            choice = self._ctas.of_launch(grid, self._cluster_ctas, sms)
            self._choice = choice if choice.shift else None
        return choice if choice.sample(grid, self._cluster_ctas).shift else EVERY_CTA

    def mode(self, sample: CtaSample) -> Mode:
        """Return the session's mode for launches of this kernel of which ``sample`` records.

        Raises ``KprofError`` if mode and kernel do not suit each other.
        """
        return self._mode_with(sample, prefers_shared=self._prefers_shared)

    def _mode_with(self, sample: CtaSample, *, prefers_shared: bool) -> Mode:
        mode, scopes = self._session.recording.mode, self._plan.scopes
        is_auto = mode.buffer == AUTO_BUFFER
        if mode.sched_stores and any(scope.ended_by_next for scope in scopes.scopes):
            raise KprofError(
                "--sched-stores moves the store of a start to its end, and iterations have only one record",
                hint="insert with --iter-records two",
            )
        mode.require_tags_kept(self._plan.has_tags)
        if is_auto:
            can_choose = self._target.backend == "cuda" and "nvidia" in installed_version().global_buffer_on
            stays = prefers_shared and not sample.shift
            mode = replace(mode, buffer=auto_buffer(sample) if can_choose and not stays else "shared")
        chosen = mode_of_kernel(
            mode, self._shared_bytes, self._warps, self._clean.registers, self._target_name, scopes.most_records
        )
        if is_auto and chosen.buffer == "global" and not mode.buffer_bytes:
            limited = smaller_buffer_bytes(chosen, sample.rows, self._warps, _MAX_AUTO_BYTES)
            chosen = replace(chosen, buffer_bytes=limited or chosen.buffer_bytes)
        return chosen

    @property
    def _target_name(self) -> str:
        return str(self.dumped.info.target)

    def _build(self, ctas: CtaChoice, mode: Mode, note: str) -> RecordingBuild:
        """Return the build with this mode, in which these CTAs record; compile and load it if there is none.

        Raises ``KprofError`` with the reason if the compiler refuses, or if the result would not do.
        """
        where = mode.buffer if ctas == EVERY_CTA else "sample"
        key = "-".join(filter(None, (self._reduced, where, str(mode.buffer_bytes))))
        if key not in self._builds:
            name = f"{self.variant}-{key}" if self._builds else self.variant
            kernel = self._compiled(mode, ctas)
            if ctas != EVERY_CTA:
                if self._holds_fewer_ctas(kernel):
                    kernel = self._with_fewer_registers(mode, ctas) or kernel
                self._require_few_spills(kernel, mode)
            record = self._record_of(kernel, mode, ctas)
            before, after = record.clean.ctas_per_sm, record.with_records.ctas_per_sm
            # All CTAs of a cooperative launch must be resident at once.
            if getattr(kernel.metadata, "launch_cooperative_grid", False) and before and after and after < before:
                raise KprofError(
                    f"with records, an SM holds {after} of its CTAs instead of {before}, and its launch is cooperative"
                )
            if self._session.saved.has(self.variant):
                for file_name, data in build_files(kernel).items():
                    write_bytes(self._workspace.recorded_builds_folder / name / file_name, data)
            build = RecordingBuild(
                variant=name,
                launch=kernel._run,
                function=kernel.function,
                packed_metadata=kernel.packed_metadata,
                ctas=ctas,
                overlaps=bool(getattr(kernel.metadata, "launch_pdl", False)),
                ttgir=self.dumped.ttgir(),
                sources=self._workspace.kernel_sources(self.variant),
                record=record,
                argument_kinds=ArgumentKinds.of(self.dumped.info.signature),
            )
            self._builds[key] = build, kernel
            in_place = f"the program puts its TTGIR in place: {self._put_in_place}" if self._put_in_place else ""
            notes = "; ".join(filter(None, (in_place, self._why_fewer, note)))
            self._report.add_kernel(name, self._name, "instrumented", notes)
        return self._builds[key][0]

    @property
    def _plan_path(self) -> Path:
        return self._workspace.override_path(dataclasses.replace(self.dumped, variant=self._plan.name))

    def _compiled(self, mode: Mode, ctas: CtaChoice, max_registers: int | None = None) -> Any:
        keeps_body: AbstractContextManager[None] = nullcontext()
        if self._clean_ptx is not None and ctas != EVERY_CTA:
            scope_ids = partial(scope_names, str(self._plan_path), self._target)
            function = FunctionRecord.of(self._plan.scopes, scope_ids, mode, self._warps)
            keeps_body = keeping_body(self._clean_ptx, self._cluster_ctas, max_registers, function)
        compile = partial(self._compile, self._plan_path)
        kernel = compile_with_records(compile, self._target, mode, self._plan.has_tags, keeps_body)
        kernel._init_handles()
        return kernel

    def _holds_fewer_ctas(self, kernel: Any) -> bool:
        before, after = self._clean.ctas_per_sm, resources_of(kernel)["ctas_per_sm"]
        return before is not None and after is not None and after < before

    def _with_fewer_registers(self, mode: Mode, ctas: CtaChoice) -> Any:
        """Return the kernel with so few registers that as many CTAs fit as without records; None if that fails.

        With two bodies, only the CTAs that record spill. With fewer CTAs on an SM, the launch would be another.
        """
        limits, ctas_before = limits_of(self._target_name), self._clean.ctas_per_sm or 0
        registers = registers_for(limits, self._shared_bytes, self._warps, ctas_before)
        if registers is None:
            return None
        kernel = self._compiled(mode, ctas, registers)
        return None if self._holds_fewer_ctas(kernel) else kernel

    def _require_few_spills(self, kernel: Any, mode: Mode) -> None:
        """Raise ``KprofError`` if a kernel with two bodies spills more than both do alone."""
        before, after = self._clean.spills, resources_of(kernel)["spills"]
        if before is None or after is None or after <= before + _MAX_MORE_SPILLS:
            return
        try:
            alone = self._compiled(mode, EVERY_CTA)
        except Exception as error:  # noqa: BLE001 (whatever prevents records in all CTAs, a sample can have them)
            let_through(error)
            return
        with_records = resources_of(alone)["spills"]
        if with_records is not None and with_records + _MAX_MORE_SPILLS < after and not self._holds_fewer_ctas(alone):
            raise KprofError(f"with a second body, its threads spill {counted(after, 'word')} instead of {before}")

    def _record_of(self, kernel: Any, mode: Mode, ctas: CtaChoice) -> KernelRecord:
        device, clean_metadata = device_properties(self._target), self.dumped.info.metadata
        return KernelRecord(
            name=self.dumped.name,
            program_variant=self.variant,
            scopes=self._plan.scopes,
            scope_ids=scope_names(str(self._plan_path), self._target),
            layout=installed_version().buffer_layout,
            mode=mode,
            cta_shift=ctas.shift,
            sm_clock_hz=plausible_sm_clock_hz(1000 * device.get("sm_clock_rate", 0)),
            sm_count=device.get("multiprocessor_count") or None,
            l2_bytes=l2_bytes() or None,
            # Two bits per cycle and line; the clock is in kHz.
            dram_bytes_per_s=2 * 1e3 * device.get("mem_clock_rate", 0) * device.get("mem_bus_width", 0) / 8 or None,
            metadata={**clean_metadata, **{name: getattr(kernel.metadata, name) for name in _CHANGED_BY_RECORDS}},
            clean=replace(self._clean, shared_bytes=self._shared_bytes),
            with_records=KernelResources(**resources_of(kernel)),
        )
