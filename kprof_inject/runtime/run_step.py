"""The run step inside the program: record the kernels that ``insert`` has planned.

In a program that runs only once, or calls our Python API, kernels are planned when they are compiled.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kprof_inject.capture.measurements import BENCHMARK_SPAN
from kprof_inject.capture.schema import MAX_TEXT_BYTES
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.files import decode_text, read_regular
from kprof_inject.insertion import Inserter
from kprof_inject.rewrite import strip
from kprof_inject.runtime.compiling.compiler import ANOTHER_TTGIR, same_code, wrap_compiler
from kprof_inject.runtime.compiling.instrumented_kernel import remove_binaries
from kprof_inject.runtime.compiling.planned_kernel import Plan, RunStep
from kprof_inject.runtime.compiling.triton_caches import fresh_jit_caches
from kprof_inject.runtime.devices.device import Device, devices_of_process
from kprof_inject.runtime.dump_step import DumpStep, install_step, save_kernel, why_left_alone
from kprof_inject.runtime.faults import say
from kprof_inject.runtime.hook import INDUCTOR_AUTOTUNER
from kprof_inject.runtime.imports import after_import
from kprof_inject.runtime.launch import triton_wrapping
from kprof_inject.runtime.launch.graph_runs import watch_graphs_of
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.launch_saver import LaunchSaver
from kprof_inject.runtime.launch.timing import watch_programs_events
from kprof_inject.runtime.process_events import at_end
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import TORCH_TRACE, Session
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import DumpedKernel, Workspace


def install(session: Session, report: ProcessReport) -> None:
    """Install the run step. Called once, right after the import of Triton.

    In a program that runs only once, each kernel is dumped and planned when it is compiled.
    """
    dump = DumpStep(session, report) if session.runs_once else None
    device = devices_of_process()
    saver = LaunchSaver(session.saved, session.recording.launches, device, report)
    capture = LaunchCapture(session, report, device, saver)
    trace = TorchTracer(Path(session.reports), report) if session.recording.torch_trace else None
    if trace is not None:
        at_end(trace.finish)
    step: RunStep
    if dump is not None:
        plans = PlansMadeNow(session, report, Inserter(session.selectors, session.style), trace)
        step = _ProfileStep(session, report, device, capture, plans, dump)
    else:
        step = RunStep(session, report, device, capture, WorkspacePlans(session, report, trace))
    watch_programs_events()
    if session.saved.variants != ():
        after_import({"torch.cuda.graphs": watch_graphs_of})
    install_step(step.compile, session, report)
    at_end(functools.partial(remove_binaries, Workspace(Path(session.workspace))))
    at_end(capture.finish, capture.resume)
    if dump is not None:
        at_end(dump.finish)


@dataclass(frozen=True, slots=True)
class WorkspacePlans:
    """Plans that ``insert`` wrote to the session's workspace. The first one that is used starts the ``trace``."""

    session: Session
    report: ProcessReport
    trace: TorchTracer | None = None

    def plan_of(self, variant: DumpedKernel, kernel: Any) -> Plan | None:
        """Return the plan of a variant, if it can be used."""
        workspace = Workspace(Path(self.session.workspace))
        scope_table = workspace.scope_table(variant.variant)
        if scope_table is None or not fnmatchcase(variant.name, self.session.recording.kernel):
            return None
        dumped = workspace.kernel(variant.variant)
        if reason := why_left_alone(dumped) or _why_another(workspace, dumped, kernel.asm["ttgir"]):
            self.report.add_kernel(variant.variant, variant.name, "left alone", reason)
            return None
        if self.trace is not None:
            self.trace.start()
        return dumped, scope_table

    def fewer(self, dumped: DumpedKernel, plan: str) -> None:
        """Return None: the user planned them."""
        return None


def _why_another(workspace: Workspace, dumped: DumpedKernel, compiled: str) -> str:
    """Return the reason why the plan is not of the TTGIR that the program has compiled now; empty if it is."""
    path = workspace.override_path(dumped)
    try:
        with_records = decode_text(read_regular(path, MAX_TEXT_BYTES, workspace.folder), str(path))
        planned = strip(parse(with_records, str(path)))
        return "" if same_code(compiled, dumped.ttgir(), planned) else ANOTHER_TTGIR
    except KprofError as error:
        return error.what


class LiveCapture:
    """Captures to the workspace, one after another: taking one begins the next."""

    def __init__(self, session: Session, report: ProcessReport, device: Device) -> None:
        """Begin the first capture."""
        self.enabled = True
        self._workspace = Workspace(Path(session.workspace))
        self._session = session
        self._report = report
        self._device = device
        self._saver = LaunchSaver(session.saved, session.recording.launches, device, report)
        self._folder, self._current = self._next()

    def current(self) -> LaunchCapture | None:
        """Return the capture that takes launches now, or None after the end of the recording."""
        return self._current.current() if self.enabled else None

    def take(self) -> Path:
        """End the present capture, begin the next, and return the ended capture's folder.

        The folder exists if anything was launched. This waits for the device.
        """
        folder = self._folder
        self._current.finish()
        self._workspace.forget_if_empty(folder)
        self._folder, self._current = self._next()
        return folder

    def close(self) -> None:
        """End the recording, and drop the present capture, which will not be taken."""
        self._workspace.forget_if_empty(self._folder)

    def _next(self) -> tuple[Path, LaunchCapture]:
        folder = self._workspace.new_capture_folder().resolve()
        self._saver.save_to(self._workspace.launches_folder(folder))
        session = replace(self._session, capture=str(folder))
        return folder, LaunchCapture(session, self._report, self._device, self._saver)


@dataclass(frozen=True, slots=True)
class PlansMadeNow:
    """Plans made from each kernel's TTGIR when it is compiled. The first one starts the ``trace``."""

    session: Session
    report: ProcessReport
    inserter: Inserter
    trace: TorchTracer | None = None

    def plan_of(self, variant: DumpedKernel, kernel: Any) -> Plan | None:
        """Dump the kernel and plan its records, if its name matches."""
        workspace = Workspace(Path(self.session.workspace))
        if not save_kernel(workspace, self.session.recording.kernel, variant, kernel, self.report):
            return None
        dumped = workspace.kernel(variant.variant)
        try:
            self.inserter.insert(workspace, dumped)
        except KprofError as error:
            self.report.add_kernel(variant.variant, variant.name, "left alone", error.what)
            return None
        scope_table = workspace.scope_table(variant.variant)
        if scope_table is None:
            return None
        if self.trace is not None:
            self.trace.start()
        return dumped, scope_table

    def fewer(self, dumped: DumpedKernel, plan: str) -> tuple[str, ScopeTable] | None:
        """Plan fewer records for a kernel that they slow down."""
        workspace = Workspace(Path(self.session.workspace))
        name = self.inserter.insert_less(workspace, dumped, plan)
        scope_table = workspace.scope_table(name) if name else None
        return None if scope_table is None else (name, scope_table)


class _ProfileStep(RunStep):
    """Run step that also times the kernels that get no records."""

    def __init__(
        self,
        session: Session,
        report: ProcessReport,
        device: Device,
        capture: LaunchCapture,
        plans: PlansMadeNow,
        dump: DumpStep,
    ) -> None:
        super().__init__(session, report, device, capture, plans)
        self._dump = dump

    def takes_part(self, variant: DumpedKernel) -> bool:
        return fnmatchcase(variant.name, self.session.recording.kernel)

    def load_unplanned(self, variant: DumpedKernel, kernel: Any, load: triton_wrapping.Load) -> None:
        self._dump.load(variant.variant, kernel, load)
        self.save_launch_of(kernel, variant)


@contextmanager
def live(session: Session, report: ProcessReport, inserter: Inserter) -> Iterator[LiveCapture]:
    """Record the kernels that this process launches in this context, as ``session`` says."""
    device = devices_of_process()
    capture = LiveCapture(session, report, device)
    step = RunStep(session, report, device, capture, PlansMadeNow(session, report, inserter))
    _install_once()
    unwrap = wrap_compiler(step.compile)
    try:
        with fresh_jit_caches():
            yield capture
    finally:
        # The program may keep recorded kernels, whose further launches are not captured.
        capture.enabled = False
        capture.close()
        unwrap()
        remove_binaries(Workspace(Path(session.workspace)))


@functools.cache
def _install_once() -> None:
    triton_wrapping.wrap_loading()
    triton_wrapping.mark_benchmarks()
    after_import({INDUCTOR_AUTOTUNER: triton_wrapping.mark_inductors_benchmarks})


class TorchTracer:
    """Tracer of this process by ``torch.profiler``, from its first kernel with records to its end. No method raises.

    A process can have only one such profiler. If the program starts its own, ours ends before that.
    """

    def __init__(self, folder: Path, report: ProcessReport) -> None:
        """Prepare to write the trace to ``folder``, that of the reports."""
        self._folder = folder
        self._report = report
        self._was_started = False
        self._profiler: Any = None
        self._started_by: tuple[int, int] | None = None

    def start(self) -> None:
        """Start the trace unless it was started before."""
        if self._was_started:
            return
        self._was_started = True
        if threading.current_thread() is not threading.main_thread():
            # torch ends a profiler in the thread that started it.
            say("no torch.profiler trace: the main thread does not launch the first kernel")
            return
        with self._report.guard("starting torch.profiler"):
            torch: Any = sys.modules.get("torch")
            if torch is None:
                say("no torch.profiler trace: the program has not imported torch")
                return
            profiler = torch.profiler.profile(activities=torch.profiler.supported_activities())
            profiler.start()
            triton_wrapping.span_benchmarks(functools.partial(self._benchmark, torch))
            self._profiler, self._started_by = profiler, _this_thread()
            _before_each(torch.autograd.profiler.profile, self._give_way)

    def finish(self) -> None:
        """Stop, and write the trace. A forked child writes nothing."""
        profiler, self._profiler = self._profiler, None
        if profiler is None or self._started_by != _this_thread():
            return
        with self._report.guard("writing the trace of torch.profiler"):
            profiler.stop()
            path = self._folder / TORCH_TRACE.format(process=os.getpid())
            partial = path.with_name(f"partial-{path.name}")
            profiler.export_chrome_trace(str(partial))
            partial.replace(path)

    @contextmanager
    def _benchmark(self, torch: Any) -> Iterator[None]:
        """Mark a benchmark in the trace, without the ops in it.

        With ops, a launch takes the host so long that an autotuner measures the host, and chooses another configuration
        than without a trace.
        """
        if self._profiler is None:
            yield
            return
        with torch.profiler.record_function(BENCHMARK_SPAN):
            # Of this thread alone: a backward pass tunes in a thread of its own.
            torch.autograd._enable_record_function(False)
            try:
                yield
            finally:
                torch.autograd._enable_record_function(True)

    def _give_way(self) -> None:
        if self._profiler is not None:
            say("the torch.profiler trace ends here: the program starts its own profiler")
            self.finish()


def _this_thread() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def _before_each(kind: type[Any], call: Callable[[], None]) -> None:
    """Call ``call()`` before each construction of the class. torch makes one object for each of its profilers."""
    original = kind.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        call()
        original(self, *args, **kwargs)

    kind.__init__ = made
