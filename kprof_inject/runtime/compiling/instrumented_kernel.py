"""Compile the planned kernels of one process with their records, and capture their launches."""

from __future__ import annotations

import functools
import shutil
import threading
from contextlib import ExitStack
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, Protocol

from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from kprof_inject.capture.cta_samples import EVERY_CTA, CtaChoice
from kprof_inject.capture.mode import AUTO_BUFFER, Mode
from kprof_inject.capture.ring_sizes import MAX_LAUNCH_BYTES, mode_of_kernel, smaller_buffer_bytes
from kprof_inject.capture.schema import (
    Grid,
    KernelRecord,
    ModeRecord,
    ScopeTableRecord,
    plausible_sm_clock_hz,
)
from kprof_inject.errors import KprofError
from kprof_inject.files import write_bytes
from kprof_inject.quantities import counted
from kprof_inject.runtime.compiling.builds import build_files
from kprof_inject.runtime.compiling.compiler import Compile, overriding, variant_of, with_room
from kprof_inject.runtime.compiling.compiler_process import errors_in, without_false_alarms
from kprof_inject.runtime.compiling.instrumentation import (
    instrumented,
    keeping_body,
    require_clock_reads,
    scope_names,
    shared_bytes_of,
    tag_values,
    target_of,
)
from kprof_inject.runtime.devices.cuda_driver import l2_bytes, resources_of
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.faults import fault_of, first_line
from kprof_inject.runtime.hook import packages_binaries
from kprof_inject.runtime.launch.launch_saver import KernelToSave
from kprof_inject.runtime.launch.launcher import Captures, CapturingLauncher, SavingLauncher
from kprof_inject.runtime.launch.recorded_launch import ArgumentKinds, RecordingBuild
from kprof_inject.runtime.launch.triton_wrapping import Load, around_load
from kprof_inject.runtime.process_events import in_forked_child, is_of_signal_handler
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.versions import installed_version
from kprof_inject.workspace import DumpedKernel, Workspace

_CHANGED_BY_RECORDS = ("num_warps", "shared", "profile_scratch_size", "profile_scratch_align")

Plan = tuple[DumpedKernel, ScopeTableRecord]
"""A dumped kernel, and the scopes of the records to insert."""


class Plans(Protocol):
    """The plans of the kernels that get records."""

    def plan_of(self, variant: DumpedKernel, plain: Compile) -> Plan | None:
        """Return the plan of a variant, or None to leave it as it is. ``plain`` compiles it without records."""


class RunStep:
    """Compiler that adds records to each planned kernel of this process, and leaves others as they are."""

    def __init__(
        self, session: Session, report: ProcessReport, device: Device, captures: Captures, plans: Plans
    ) -> None:
        """Take the plans from ``plans``, and launch the kernels into ``captures``."""
        self.session = session
        self.report = report
        self.device = device
        self.captures = captures
        self.workspace = Workspace(Path(session.workspace))
        self._plans = plans
        # Triton's knobs and the backend's instrumentation are global to the process.
        self.lock = threading.RLock()
        in_forked_child(self._begin_in_child)

    def _begin_in_child(self) -> None:
        self.lock = threading.RLock()

    def compile(self, original: Compile, args: Any, kwargs: Any) -> Any:
        """Compile a kernel, with records if it is planned."""
        plain = functools.partial(with_room(original), *args, **kwargs)
        with self.lock:
            variant, plan = None, None
            with self.report.guard("looking up a kernel's plan"):
                variant = variant_of(self.workspace, original, args, kwargs)
                plan = self._plans.plan_of(variant, plain) if variant else None
            if variant is None or plan is None:
                return self._to_save(plain(), variant)
            kernel = PlannedKernel(self, variant, *plan, plain)
            if reason := _why_not(variant):
                kernel.give_up(reason)
                return self._to_save(plain(), variant)
            compiled = kernel.compile()
            return compiled if kernel.has_records else self._to_save(compiled, variant)

    def _to_save(self, kernel: Any, variant: DumpedKernel | None) -> Any:
        """Return a kernel without records, and arrange that a launch of it is saved if that is wanted."""
        with self.report.guard("preparing to save a launch"):
            if variant is not None and self.session.saved.has(variant.variant):
                around_load(kernel, functools.partial(self._load_to_save, variant))
        return kernel

    def _load_to_save(self, variant: DumpedKernel, kernel: Any, load: Load) -> None:
        load()
        self.save_launch_of(kernel, variant)

    def save_launch_of(self, kernel: Any, variant: DumpedKernel) -> None:
        """Have a launch of a loaded kernel without records saved, if that is wanted."""
        with self.report.guard("preparing to save a launch"):
            self.device.prepare()
            # It is one already if an exception ended an earlier attempt.
            if self.session.saved.has(variant.variant) and not isinstance(kernel._run, SavingLauncher):
                kinds = ArgumentKinds.of(variant.info.signature)
                clean = self.workspace.clean_run(variant.variant)
                to_save = KernelToSave(variant.variant, variant.name, kinds, None, clean)
                kernel._run = SavingLauncher(kernel, to_save, self.captures)


def _why_not(variant: DumpedKernel) -> str:
    """Return the reason why a planned kernel must not get records; empty if there is none."""
    if variant.info.options.get("ir_override") or knobs.compilation.override:
        return "the program itself overrides its IR"
    return "Inductor packages it for C++" if packages_binaries() else ""


class PlannedKernel:
    """Planned kernel of this process, and its builds.

    These are: with records, with records and smaller buffers for large grids, and without records.
    """

    def __init__(
        self, step: RunStep, variant: DumpedKernel, dumped: DumpedKernel, scope_table: ScopeTableRecord, plain: Compile
    ) -> None:
        """Prepare to compile ``dumped`` with the records of ``scope_table``; ``plain`` compiles without records."""
        self._step = step
        self._dumped = dumped
        self._name = variant.name  # the function's name; Triton's module may have another
        assert variant.info.target is not None  # known for a kernel that is being compiled
        self._target = target_of(variant.info.target)
        self._scope_table = scope_table
        self._plain = plain
        self._mode = step.session.mode
        self._ctas = EVERY_CTA
        self._clean: Any = None
        self._scope_ids: dict[int, str] = {}
        self._smaller: dict[int, tuple[RecordingBuild, Any]] = {}
        """Builds by ``buffer_bytes``, with their kernels: Triton 3.9 unloads a kernel without references."""
        self.has_records = False

    def compile(self) -> Any:
        """Return the kernel with records, or the one without if that fails.

        Raises any error of compiling without records.
        """
        try:
            self._ctas = self._ctas_of_kernel()
            kernel, note = self._compile_with_bodies()
            # Computed here, because it parses the module, which takes too long for the launch path.
            self._scope_ids = scope_names(str(self._step.workspace.override_path(self._dumped)), self._target)
        except KprofError as error:
            self.give_up(f"{error.what}; {error.hint}" if error.hint else error.what)
            return self._plain()
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            self.give_up(fault_of(error))
            return self._plain()
        around_load(kernel, self._load)
        self.has_records = True
        self._step.report.add_kernel(self._dumped.variant, self._name, "instrumented", note)
        return kernel

    def clean(self) -> Any:
        """Return the kernel without records, loaded."""
        if self._clean is None:
            with self._step.lock, self._step.device.unaffected_by_graphs():
                clean = self._plain()
                clean._init_handles()
                self._clean = clean
        return self._clean

    def _ctas_of_kernel(self) -> CtaChoice:
        """Return which CTAs record; a kernel whose launches are all small needs no second body."""
        choice = self._step.session.ctas
        if self._target.backend != "cuda" or installed_version().offset_bits is None:
            return EVERY_CTA
        most = self._step.workspace.clean_run(self._dumped.variant).max_clusters
        return choice if most is None or choice.sample((max(most, 1), 1, 1), 1).shift else EVERY_CTA

    def _compile_with_bodies(self) -> tuple[Any, str]:
        """Compile the kernel with its records; return it, and why all CTAs record if that is not wanted."""
        self._mode = self._mode_of_kernel()
        if self._ctas == EVERY_CTA:
            return self._compile_with_records(self._mode), ""
        try:
            return self._compile_with_records(self._mode), ""
        except KprofError as error:
            self._ctas = EVERY_CTA
            self._mode = self._mode_of_kernel()
            return self._compile_with_records(self._mode), f"all its CTAs record: {error.what}"

    @property
    def _cluster_ctas(self) -> int:
        return self._dumped.info.known_metadata.num_ctas

    def with_smaller_buffer(self, grid: Grid, max_bytes: int) -> RecordingBuild | None:
        """Return a build whose buffer for ``grid`` takes at most ``max_bytes``.

        Returns None if so small a buffer would hold too few records.
        """
        sample = self._ctas.sample(grid, self._cluster_ctas)
        room_bytes = max(max_bytes - sample.spans_bytes, 0)
        buffer_bytes = smaller_buffer_bytes(self._mode, sample.rows, self._total_warps, room_bytes)
        if buffer_bytes is None:
            return None
        if buffer_bytes not in self._smaller:
            mode = replace(self._mode, buffer_bytes=buffer_bytes)
            with self._step.lock, self._step.device.unaffected_by_graphs():
                kernel = self._compile_with_records(mode)
                kernel._init_handles()
            variant = f"{self._dumped.variant}-{buffer_bytes}"
            self._smaller[buffer_bytes] = self._build_of(kernel, variant, mode), kernel
            self._step.report.add_kernel(
                variant,
                self._name,
                "instrumented",
                f"for a grid of {counted(sample.ctas, 'CTA')}, each CTA keeps {buffer_bytes} bytes of records instead "
                f"of {self._mode.buffer_bytes}",
            )
        return self._smaller[buffer_bytes][0]

    def give_up(self, reason: str) -> None:
        """Report that this kernel is launched without records from now on."""
        with self._step.report.guard("reporting a kernel"):
            self._step.report.add_kernel(self._dumped.variant, self._name, "left alone", reason)

    def _load(self, kernel: Any, load: Load) -> None:
        """Load the kernel, and replace the launcher that Triton makes for it.

        If the driver refuses the kernel, this object becomes the clean one, because the program and Triton's caches
        already refer to it.
        """
        try:
            self._load_with_records(kernel, load)
        except Exception as error:
            if is_of_signal_handler(error):
                kernel._run = kernel.module = None
                raise
            self.give_up(f"it does not load with records: {first_line(error)}")
            clean = self.clean()
            vars(kernel).clear()
            vars(kernel).update(vars(clean))
            clean.module = None  # else Triton 3.9 unloads the module when this second owner is freed
            self._clean = kernel
            self._step.save_launch_of(kernel, self._dumped)
        except BaseException:
            # Triton takes a kernel with a launcher for loaded, and with Triton's launcher, records have no buffer.
            kernel._run = kernel.module = None
            raise

    def _load_with_records(self, kernel: Any, load: Load) -> None:
        load()
        self._step.device.prepare()
        build = self._build_of(kernel, self._dumped.variant, self._mode)
        self._require_same_residency(kernel, build.record)
        max_bytes = min(self._step.session.max_bytes, MAX_LAUNCH_BYTES)
        kernel._run = CapturingLauncher(build, self, self._step.captures, max_bytes)
        clean_run = build.record.clean
        # Programs such as Inductor decide by these attributes, so they must see the values of the clean kernel. A
        # launch does not use them: it reads the launcher and ``packed_metadata``.
        kernel.n_regs = clean_run.registers or kernel.n_regs
        kernel.n_spills = kernel.n_spills if clean_run.local_words is None else clean_run.local_words
        kernel.metadata = kernel.metadata._replace(shared=self._dumped.info.metadata["shared"])

    def _require_same_residency(self, kernel: Any, record: KernelRecord) -> None:
        """Raise ``KprofError`` if records may prevent all CTAs of a cooperative launch from being resident at once."""
        before, after = record.clean.ctas_per_sm, record.ctas_per_sm
        if getattr(kernel.metadata, "launch_cooperative_grid", False) and before and after and after < before:
            raise KprofError(
                f"with records, an SM holds {after} of its CTAs instead of {before}, and its launch is cooperative"
            )

    @property
    def _has_tags(self) -> bool:
        return any(scope.tags for scope in self._scope_table.scopes)

    @property
    def _total_warps(self) -> int:
        return int(self._dumped.info.metadata["num_warps"])

    def _mode_of_kernel(self) -> Mode:
        if self._step.session.mode.sched_stores and any(scope.ended_by_next for scope in self._scope_table.scopes):
            raise KprofError(
                "--sched-stores moves the store of a start to its end, and iterations have only one record",
                hint="insert with --iter-records two",
            )
        mode = self._step.session.mode
        mode.require_tags_kept(self._has_tags)
        if mode.buffer == AUTO_BUFFER:
            # In global memory, records leave the L1 and the room for CTAs as they are, and no CTA copies them when it
            # ends. If all CTAs of a large grid write there, they are slower (docs/costs.md).
            is_global = self._ctas != EVERY_CTA
            mode = replace(mode, buffer="global" if is_global else "shared")
        registers = self._step.workspace.clean_run(self._dumped.variant).registers
        return mode_of_kernel(
            mode,
            self._dumped.info.metadata["shared"],
            self._total_warps,
            registers,
            f"{self._target.backend}:{self._target.arch}",
            self._scope_table.most_records,
        )

    def _compile_with_records(self, mode: Mode) -> Any:
        """Have Triton compile the kernel's TTGIR with records in place of its own.

        Raises ``KprofError`` with the compiler's reason if it refuses, and if the result has no records.
        """
        target = self._target
        shared_bytes = _device_properties(target).get("max_shared_mem") or shared_bytes_of(target)
        clean_ptx = "" if self._ctas == EVERY_CTA else self._clean_ptx()
        with _Effects() as effects, without_false_alarms() as messages:
            effects.enter_context(instrumented(target, mode, shared_bytes))
            if self._has_tags:
                effects.enter_context(tag_values())
            if clean_ptx:
                effects.enter_context(keeping_body(clean_ptx, self._cluster_ctas))
            try:
                kernel = self._compile_instrumented(effects)
            except Exception as error:  # the compiler's errors have no common base
                errors = errors_in(messages.take())
                reason = errors[0].text if errors else f"{type(error).__name__}: {error}"
                raise KprofError(f"Triton does not compile it with records: {reason}") from error
        if not kernel.metadata.profile_scratch_size:
            raise KprofError("Triton did not use the override: its records are not in the binary")
        require_clock_reads(kernel, target)
        return kernel

    def _clean_ptx(self) -> str:
        ptx = self._plain().asm.get("ptx")
        if ptx is None:
            raise KprofError("its PTX without records is unknown")
        return str(ptx)

    def _compile_instrumented(self, effects: ExitStack) -> Any:
        """Compile the kernel with its instrumented TTGIR; ``effects`` are undone after that."""
        workspace = self._step.workspace
        folder = workspace.override_folder / self._dumped.variant
        effects.enter_context(overriding(folder, _binaries_folder(workspace)))
        return self._plain()

    def _build_of(self, kernel: Any, variant: str, mode: Mode) -> RecordingBuild:
        """Return the build of a loaded kernel with records."""
        workspace, dumped, device = self._step.workspace, self._dumped, _device_properties(self._target)
        clean_metadata = dumped.info.metadata
        record = KernelRecord(
            name=dumped.name,
            program_variant=dumped.variant,
            scope_table=self._scope_table,
            scope_ids=self._scope_ids,
            layout=installed_version().buffer_layout,
            mode=ModeRecord(*astuple(mode)),
            cta_shift=self._ctas.shift,
            sm_clock_hz=plausible_sm_clock_hz(1000 * device.get("sm_clock_rate", 0)),
            sm_count=device.get("multiprocessor_count", 0),
            l2_bytes=l2_bytes(),
            dram_bytes_per_s=_dram_bytes_per_s(device),
            metadata={**clean_metadata, **{name: getattr(kernel.metadata, name) for name in _CHANGED_BY_RECORDS}},
            clean_metadata=clean_metadata,
            clean=workspace.clean_run(dumped.variant),
            **resources_of(kernel),
        )
        if self._step.session.saved.has(dumped.variant):
            for name, data in build_files(kernel).items():
                write_bytes(workspace.recorded_builds_folder / variant / name, data)
        return RecordingBuild(
            variant=variant,
            variant_of_program=dumped.variant,
            launch=kernel._run,
            function=kernel.function,
            packed_metadata=kernel.packed_metadata,
            row_bytes=kernel.metadata.profile_scratch_size,
            cluster_ctas=self._cluster_ctas,
            ctas=self._ctas,
            overlaps=bool(getattr(kernel.metadata, "launch_pdl", False)),
            ttgir=dumped.ttgir(),
            sources=workspace.kernel_sources(dumped.variant),
            record=record,
            signature=dumped.info.signature,
            argument_kinds=ArgumentKinds.of(dumped.info.signature),
        )


class _Effects(ExitStack):
    """Changes of the process's state for one compilation, undone at its end.

    A child that another thread forks meanwhile never reaches that end, so there they are undone at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        in_forked_child(self._undo_in_child)

    def _undo_in_child(self) -> None:
        if threading.get_ident() != self._thread:
            self.close()


def _binaries_folder(workspace: Workspace) -> Path:
    """Return this process's folder for binaries with records."""
    return workspace.cache_folder("instrumented")


def remove_binaries(workspace: Workspace) -> None:
    """Remove the binaries that this process compiled with records. The next run removes those of killed processes."""
    shutil.rmtree(_binaries_folder(workspace), ignore_errors=True)


def _device_properties(target: GPUTarget) -> dict[str, Any]:
    """Return the driver's properties of the current device; empty if the program compiles for another target."""
    try:
        if driver.active.get_current_target() != target:
            return {}
        device = driver.active.get_current_device()
        return dict(driver.active.utils.get_device_properties(device))
    except RuntimeError:  # no active driver, as on a machine without a GPU
        return {}


def _dram_bytes_per_s(device: dict[str, Any]) -> float:
    """Compute the bandwidth of DRAM: two bits per cycle and line, the clock being in kHz; 0 if unknown."""
    return float(2 * 1e3 * device.get("mem_clock_rate", 0) * device.get("mem_bus_width", 0) / 8)
