"""The run step without a dump before it: each kernel gets its records when it is compiled, in one process."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import triton
from triton import knobs

from kprof_inject.capture.buffer_size import MOST_LAUNCH_BYTES, mode_of_kernel, smaller_buffer_bytes
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.schema import KernelRecord
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiler import Compile, Variant, fresh_jit_caches, variant_of, with_room, wrap_compiler
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.devices.torch_device import devices_of_process
from kprof_inject.runtime.dump import note_gpu, save_kernel
from kprof_inject.runtime.faults import fault_of
from kprof_inject.runtime.hook import INDUCTOR_AUTOTUNER, is_compile_worker, packages_binaries
from kprof_inject.runtime.imports import after_import
from kprof_inject.runtime.interruptions import in_forked_child, is_of_signal_handler
from kprof_inject.runtime.launching import autotuning, launcher
from kprof_inject.runtime.launching.capture import LaunchCapture
from kprof_inject.runtime.launching.launch_buffers import CapturedKernel, Place
from kprof_inject.runtime.launching.launcher import CapturingLauncher, LaunchPlaces, RecordingBuild
from kprof_inject.runtime.launching.timing import LaunchTimer, watch_programs_events
from kprof_inject.runtime.process_end import at_end
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.recording import PlannedKernel, compile_with_records, describe, remove_binaries, scope_ids_of
from kprof_inject.runtime.session import Session
from kprof_inject.workspace import DumpedKernel, Workspace

# The run step inside the program: compile the planned kernels with records, and capture their launches.


def install(session: Session, report: ProcessReport) -> None:
    """Called once, right after Triton was imported."""
    device = devices_of_process()
    capture = LaunchCapture(session, report, device)
    step = RunStep(session, report, device, capture, WorkspacePlans(session, report))
    launcher.wrap_loading()
    autotuning.mark_benchmarks()
    autotuning.report_choices(report)
    watch_programs_events()
    wrap_compiler(step.compile)
    at_end(report.note_end, report.note_resumed)
    at_end(functools.partial(remove_binaries, Workspace(Path(session.workspace))))
    at_end(functools.partial(note_gpu, report, os.getpid()))
    at_end(capture.finish, capture.resume)


class Plans(Protocol):
    """Knows which kernels get records."""

    def plan_of(self, variant: Variant, plain: Compile) -> PlannedKernel | None:
        """The plan of a variant, or None to leave it as it is. ``plain`` compiles it without records."""


@dataclass(frozen=True, slots=True)
class WorkspacePlans:
    """The plans that ``insert`` wrote into the session's workspace."""

    session: Session
    report: ProcessReport

    def plan_of(self, variant: Variant, plain: Compile) -> PlannedKernel | None:
        workspace = Workspace(Path(self.session.workspace))
        scope_table = workspace.scope_table(variant.key)
        if scope_table is None or not fnmatchcase(variant.name, self.session.kernel):
            return None
        kernel = workspace.kernel(variant.key)
        dumped_by = kernel.info.triton_version
        if dumped_by != triton.__version__:
            self._leave_alone(variant, f"Triton {dumped_by} dumped it, and this is {triton.__version__}; dump again")
            return None
        if is_compile_worker():
            self._leave_alone(variant, "a worker process of Inductor's compiled it; set compile_threads to 1")
            return None
        if Path(self.session.workspace) not in Path(knobs.cache.dir).absolute().parents:
            plain()  # the program named its cache itself, and may look for what it finds there without us
        return PlannedKernel(workspace, kernel, scope_table, variant.target)

    def _leave_alone(self, variant: Variant, reason: str) -> None:
        self.report.add_kernel(variant.key, variant.name, "left alone", reason)


class RunStep:
    """Compiles each planned kernel of this process with records; all else is compiled as it is."""

    def __init__(
        self, session: Session, report: ProcessReport, device: Device, capture: LaunchPlaces, plans: Plans
    ) -> None:
        self.session = session
        self.report = report
        self.device = device
        self.capture = capture
        self._plans = plans
        # Triton's knobs and the backend's instrumentation are global to the process.
        self.lock = threading.RLock()
        in_forked_child(self._begin_in_child)

    def _begin_in_child(self) -> None:
        self.lock = threading.RLock()

    def compile(self, original: Compile, args: Any, kwargs: Any) -> Any:
        plain = functools.partial(with_room(original), *args, **kwargs)
        with self.lock:
            variant, planned = None, None
            with self.report.guard("looking up a kernel's plan"):
                variant = variant_of(original, args, kwargs)
                planned = self._plans.plan_of(variant, plain) if variant else None
            if variant is None or planned is None:
                return plain()
            if reason := _why_not(variant):
                self.report.add_kernel(variant.key, variant.name, "left alone", reason)
                return plain()
            return _PlannedBuilds(self, variant, planned, plain).compile()


def _why_not(variant: Variant) -> str:
    """Why a kernel with a plan must go without records; empty if it need not."""
    if variant.options.get("ir_override") or knobs.compilation.override:
        return "the program overrides its IR itself"
    return "Inductor packages it for C++" if packages_binaries() else ""


class _PlannedBuilds:
    """One planned kernel and its builds: with records, with a smaller buffer for large grids, and without."""

    def __init__(self, step: RunStep, variant: Variant, planned: PlannedKernel, plain: Compile) -> None:
        self._step = step
        self._variant = variant
        self._planned = planned
        self._plain = plain
        self._mode = step.session.mode
        self._clean: Any = None
        self._scope_ids: dict[int, str] = {}
        self._smaller: dict[int, RecordingBuild] = {}

    def compile(self) -> Any:
        """The kernel with records; the plain one if that fails. Raises what the compiler raises for the plain one."""
        try:
            self._mode = self._mode_of_kernel()
            kernel = compile_with_records(self._plain, self._planned, self._mode)
            self._scope_ids = scope_ids_of(self._planned)
        except KprofError as error:
            self.give_up(f"{error.what}; {error.hint}" if error.hint else error.what)
            return self._plain()
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            self.give_up(fault_of(error))
            return self._plain()
        launcher.around_load(kernel, functools.partial(self._load, kernel))
        self._step.report.add_kernel(self._variant.key, self._variant.name, "instrumented")
        return kernel

    def clean(self) -> Any:
        if self._clean is None:
            with self._step.lock, self._step.device.unaffected_by_graphs():
                clean = self._plain()
                clean._init_handles()
                self._clean = clean
        return self._clean

    def with_smaller_buffer(self, ctas: int, most_bytes: int) -> RecordingBuild | None:
        rows = ctas * self._planned.kernel.info.known_metadata.num_ctas
        buffer_bytes = smaller_buffer_bytes(self._mode, rows, self._total_warps, most_bytes)
        if buffer_bytes is None:
            return None
        if buffer_bytes not in self._smaller:
            mode = replace(self._mode, buffer_bytes=buffer_bytes)
            with self._step.lock, self._step.device.unaffected_by_graphs():
                kernel = compile_with_records(self._plain, self._planned, mode)
                kernel._init_handles()
            variant = f"{self._variant.key}-{buffer_bytes}"
            self._smaller[buffer_bytes] = self._build_of(kernel, variant, mode)
            self._step.report.add_kernel(
                variant,
                self._variant.name,
                "instrumented",
                f"for {ctas} CTAs, each keeps {buffer_bytes} bytes of records instead of {self._mode.buffer_bytes}",
            )
        return self._smaller[buffer_bytes]

    def give_up(self, reason: str) -> None:
        with self._step.report.guard("reporting a kernel"):
            self._step.report.add_kernel(self._variant.key, self._variant.name, "left alone", reason)

    def _load(self, kernel: Any, load: launcher.Load) -> None:
        """Put our launcher in place when Triton has made its own. A kernel that the driver refuses becomes the clean
        one: the program, and Triton's caches, already hold this object."""
        try:
            self._load_with_records(kernel, load)
        except Exception as error:
            if is_of_signal_handler(error):
                kernel._run = kernel.module = None
                raise
            self.give_up(f"it does not load with records: {error}")
            clean = self.clean()
            vars(kernel).clear()
            vars(kernel).update(vars(clean))
            clean.module = None  # or Triton 3.9 unloads the module with this second owner of it
            self._clean = kernel
        except BaseException:
            # Triton takes a kernel that has a launcher for loaded: with its own alone, records would have no buffer.
            kernel._run = kernel.module = None
            raise

    def _load_with_records(self, kernel: Any, load: launcher.Load) -> None:
        load()
        build = self._build_of(kernel, self._variant.key, self._mode)
        self._require_same_residency(kernel, build.captured.description)
        most_bytes = min(self._step.session.max_bytes, MOST_LAUNCH_BYTES)
        kernel._run = CapturingLauncher(build, self, self._step.capture, most_bytes)
        clean_run = build.captured.description.clean
        # Programs decide by these, as Inductor does: they shall see what they see without us. What is launched with
        # stands in the launcher and in ``packed_metadata``.
        kernel.n_regs = clean_run.registers or kernel.n_regs
        kernel.n_spills = kernel.n_spills if clean_run.local_words is None else clean_run.local_words
        kernel.metadata = kernel.metadata._replace(shared=self._planned.kernel.info.metadata["shared"])

    def _require_same_residency(self, kernel: Any, description: KernelRecord) -> None:
        """Raise ``KprofError`` if a kernel whose CTAs must all be on the device at once may have too many for that."""
        before, after = description.clean.ctas_per_sm, description.ctas_per_sm
        if getattr(kernel.metadata, "launch_cooperative_grid", False) and before and after and after < before:
            raise KprofError(f"an SM holds {after} of its CTAs instead of {before}, and it is a cooperative launch")

    @property
    def _total_warps(self) -> int:
        return int(self._planned.kernel.info.metadata["num_warps"])

    def _mode_of_kernel(self) -> Mode:
        clean, target = self._planned.kernel.info.metadata, self._planned.target
        registers = self._planned.workspace.clean_run(self._variant.key).registers
        where = f"{target.backend}:{target.arch}"
        most_records = self._planned.scope_table.most_records
        return mode_of_kernel(
            self._step.session.mode, clean["shared"], self._total_warps, registers, where, most_records
        )

    def _build_of(self, kernel: Any, variant: str, mode: Mode) -> RecordingBuild:
        return RecordingBuild(kernel, kernel._run, describe(self._planned, variant, kernel, mode, self._scope_ids))


Insert = Callable[[Workspace, DumpedKernel], None]
"""Writes a dumped kernel's plan into the workspace, or raises ``KprofError``."""


class LiveCapture:
    """Captures one after the other, each a capture of the workspace; the next begins when the one before was taken."""

    def __init__(self, session: Session, report: ProcessReport, device: Device) -> None:
        self.enabled = True
        self._workspace = Workspace(Path(session.workspace))
        self._session = session
        self._report = report
        self._device = device
        self._folder, self._current = self._next()

    def number(self, kernel: CapturedKernel) -> int | None:
        return self._current.number(kernel) if self.enabled else None

    def pass_over(self, kernel: CapturedKernel, number: int) -> None:
        self._current.pass_over(kernel, number)

    def begin(self, kernel: CapturedKernel, number: int, grid: tuple[int, int, int], stream: int) -> Place:
        return self._current.begin(kernel, number, grid, stream)

    def timer(self, variant: str) -> LaunchTimer:
        return self._current.timer(variant)

    def take(self) -> Path:
        """End the present capture and begin the next; returns the folder of the one that ended, which is there if
        anything was launched. It waits for the device."""
        folder = self._folder
        self._current.finish()
        self._workspace.forget_if_empty(folder)
        self._folder, self._current = self._next()
        return folder

    def close(self) -> None:
        """Forget the capture that nobody will take."""
        self._workspace.forget_if_empty(self._folder)

    def _next(self) -> tuple[Path, LaunchCapture]:
        folder = self._workspace.new_capture_folder().resolve()
        return folder, LaunchCapture(replace(self._session, capture=str(folder)), self._report, self._device)


@dataclass(frozen=True, slots=True)
class _PlansMadeNow:
    """Plans each kernel from what it compiles to."""

    session: Session
    report: ProcessReport
    insert: Insert

    def plan_of(self, variant: Variant, plain: Compile) -> PlannedKernel | None:
        if not fnmatchcase(variant.name, self.session.kernel):
            return None
        workspace = Workspace(Path(self.session.workspace))
        save_kernel(workspace, variant, plain())
        kernel = workspace.kernel(variant.key)
        try:
            self.insert(workspace, kernel)
        except KprofError as error:
            self.report.add_kernel(variant.key, variant.name, "left alone", error.what)
            return None
        scope_table = workspace.scope_table(variant.key)
        return PlannedKernel(workspace, kernel, scope_table, variant.target) if scope_table else None


@contextmanager
def live(session: Session, report: ProcessReport, insert: Insert) -> Iterator[LiveCapture]:
    """Record the kernels that this process launches in this context, as ``session`` says."""
    device = devices_of_process()
    capture = LiveCapture(session, report, device)
    step = RunStep(session, report, device, capture, _PlansMadeNow(session, report, insert))
    _install_once()
    unwrap = wrap_compiler(step.compile)
    try:
        with fresh_jit_caches():
            yield capture
    finally:
        # A kernel that the program keeps goes on without records.
        capture.enabled = False
        capture.close()
        unwrap()
        remove_binaries(Workspace(Path(session.workspace)))


@functools.cache
def _install_once() -> None:
    launcher.wrap_loading()
    autotuning.mark_benchmarks()
    after_import({INDUCTOR_AUTOTUNER: autotuning.install_for_inductor})
