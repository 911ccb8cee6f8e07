"""The step inside the program: dump each kernel when it is compiled, plan its records, and launch it with them.

``dump``, ``run`` and ``profile`` differ in where the plans come from: ``dump`` has none, ``run`` has those that
``insert`` wrote, and ``profile``, like our Python API, makes them when a kernel is compiled.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kprof_inject.capture.edits import write_other_values
from kprof_inject.insertion import Inserter
from kprof_inject.runtime.compiling.compiler import (
    ANOTHER_TTGIR,
    Compile,
    call_of,
    compiling_alone,
    other_values,
    put_in_place,
    same_code,
    variant_of,
    with_room,
    wrap_compiler,
)
from kprof_inject.runtime.compiling.recording_build import ArgumentKinds, binaries_folder, remove_binaries
from kprof_inject.runtime.compiling.triton_caches import fresh_jit_caches, overriding, take_from
from kprof_inject.runtime.devices.device import Device, devices_of_process
from kprof_inject.runtime.imports import INDUCTOR_AUTOTUNER, after_import
from kprof_inject.runtime.launch import triton_wrapping
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.launch_saver import KernelToSave, LaunchSaver
from kprof_inject.runtime.launch.launcher import CleanTimes, CurrentCapture, SavingLauncher, record_launches
from kprof_inject.runtime.launch.planned_kernel import Fewer, KernelPlan, PlannedKernel
from kprof_inject.runtime.launch.timing import watch_programs_events
from kprof_inject.runtime.launch.triton_wrapping import Load, around_load, watch_graphs_of
from kprof_inject.runtime.plans import PlansMadeNow, WorkspacePlans, dump_alone
from kprof_inject.runtime.process_events import at_end
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.torch_tracer import TorchTracer
from kprof_inject.workspace import DumpedKernel, Workspace

PlanOf = Callable[[DumpedKernel, Any], KernelPlan | None]
"""Function that returns the plan of a variant, which Triton has just compiled, or None to leave it as it is."""


@dataclass(slots=True, eq=False)
class Step:
    """Compiler of this process, which arranges that the launches of each planned kernel have records.

    The program gets the kernel that Triton compiles. A build with records is compiled at the first launch that needs
    it, so the configurations that an autotuner only tries have none. Kernels without a plan may be timed or saved.
    Without a plan for any kernel, neither ``capture`` nor the device are needed. With ``times``, kernels without
    records are timed. The first plan starts the ``trace``.
    """

    session: Session
    report: ProcessReport
    plan_of: PlanOf
    _device: Device | None = None
    capture: CurrentCapture = lambda: None
    times: CleanTimes | None = None
    fewer: Fewer = lambda plan: None
    trace: TorchTracer | None = None
    workspace: Workspace = field(init=False)

    def __post_init__(self) -> None:
        self.workspace = Workspace(Path(self.session.workspace))

    @property
    def device(self) -> Device:
        """The devices of this process. To look for them imports torch."""
        return self._device or devices_of_process()

    def compile(self, original: Compile, args: Any, kwargs: Any) -> Any:
        """Compile a kernel, and prepare to record its launches if it is planned."""
        compile = with_room(original)
        plain = functools.partial(compile, *args, **kwargs)
        with compiling_alone():
            kernel = plain()
            with self.report.guard("preparing a kernel"):
                source, target, options = call_of(original, args, kwargs)
                variant = variant_of(self.workspace, source, target, options, kernel.asm)
                if isinstance(source, str) and source.endswith(".ttgir"):
                    # Triton replaces the results of its stages, and this is where it starts.
                    from_file = functools.partial(compile, target=target, options=options)
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
        plan = self.plan_of(variant, kernel)
        if plan is not None:
            if self.trace is not None:
                self.trace.start()
            # Inductor then passes binaries to C++ code, which launches them without Triton.
            is_packaged = getattr(sys.modules.get("torch._inductor.config"), "cpp_wrapper", False)
            if reason := _why_no_records_fit(variant) or ("Inductor packages it for C++" if is_packaged else ""):
                self.report.add_kernel(variant.variant, variant.name, "left alone", reason)
                plan = None
        if plan is not None:

            def compile_plan(path: Path, effects: ExitStack) -> Any:
                effects.enter_context(overriding(path.parents[1], binaries_folder(self.workspace)))
                return overridden(path)

            planned = PlannedKernel(self.session, self.report, self.device, self.fewer, variant, plan, compile_plan)
            around_load(kernel, functools.partial(self._load_planned, planned))
        elif self._is_timed(variant) or self.session.saved.has(variant.variant):
            around_load(kernel, functools.partial(self._load_unplanned, variant))

    def _load_planned(self, planned: PlannedKernel, kernel: Any, load: Load) -> None:
        load()
        with self.report.guard("preparing to record a kernel"):
            gave_up = functools.partial(self.save_launch_of, variant=planned.dumped)
            record_launches(kernel, planned, self.capture, gave_up)

    def _is_timed(self, variant: DumpedKernel) -> bool:
        return self.times is not None and fnmatchcase(variant.name, self.session.recording.kernel)

    def _load_unplanned(self, variant: DumpedKernel, kernel: Any, load: Load) -> None:
        if self.times is not None and self._is_timed(variant):
            self.times.load(variant.variant, kernel, load)
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
                kernel._run = SavingLauncher(kernel, to_save, self.capture)


def _why_no_records_fit(variant: DumpedKernel) -> str:
    """Return the reason if what runs is not made of the kernel's TTGIR; empty if it is."""
    path = put_in_place(variant)
    is_after_ttgir = path and not path.endswith((".ttir", ".ttgir"))
    return f"the program replaces what is made of its TTGIR by {path}" if is_after_ttgir else ""


def install(session: Session, report: ProcessReport) -> None:
    """Install the session's step. Called once, right after the import of Triton."""
    times = None if session.step == "run" else CleanTimes(Workspace(Path(session.workspace)), report)
    if session.step == "dump":
        _watch(Step(session, report, functools.partial(dump_alone, session, report), times=times))
    else:
        device = devices_of_process()
        saver = LaunchSaver(session.saved, session.recording.launches, device, report)
        capture = LaunchCapture(session, report, device, saver)
        trace = TorchTracer(Path(session.reports), report) if session.recording.torch_trace else None
        if trace is not None:
            at_end(trace.finish)
        if session.runs_once:
            plans = PlansMadeNow(session, report, Inserter(session.selectors, session.style))
            step = Step(session, report, plans.plan_of, device, capture.current, times, plans.fewer, trace)
        else:
            plan_of = WorkspacePlans(session, report).plan_of
            step = Step(session, report, plan_of, device, capture.current, times, trace=trace)
        _watch(step)
        if session.saved.variants != ():
            after_import({"torch.cuda.graphs": watch_graphs_of})
        at_end(functools.partial(remove_binaries, step.workspace))
        at_end(capture.finish)
    if times is not None:
        at_end(times.finish)


def _watch(step: Step) -> None:
    watch_programs_events()
    triton_wrapping.wrap_loading()
    triton_wrapping.mark_benchmarks()
    triton_wrapping.report_choices(step.report)
    wrap_compiler(step.compile)
    if step.session.programs_cache:
        take_from(Path(step.session.programs_cache))
    at_end(step.report.note_end)
    at_end(functools.partial(_note_gpu, step.report, os.getpid()))


def _note_gpu(report: ProcessReport, pid: int) -> None:
    """Report whether the program could have used a GPU, if this is process ``pid`` and it has imported torch.

    Its forked children report nothing, as they would see the same.
    """
    torch = sys.modules.get("torch")
    if torch is not None and os.getpid() == pid:
        with report.guard("looking for a GPU"):
            report.note_gpu(bool(torch.cuda.is_available()))


class LiveCapture:
    """Captures to the workspace, one after another: taking one begins the next."""

    def __init__(self, session: Session, report: ProcessReport, device: Device) -> None:
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
        self._saver.folder = self._workspace.launches_folder(folder)
        session = replace(self._session, capture=str(folder))
        return folder, LaunchCapture(session, self._report, self._device, self._saver)


@contextmanager
def live(session: Session, report: ProcessReport, inserter: Inserter) -> Iterator[LiveCapture]:
    """Record the kernels that this process launches in this context, as ``session`` says."""
    device = devices_of_process()
    capture = LiveCapture(session, report, device)
    plans = PlansMadeNow(session, report, inserter)
    step = Step(session, report, plans.plan_of, device, capture.current, fewer=plans.fewer)
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
        remove_binaries(step.workspace)


@functools.cache
def _install_once() -> None:
    triton_wrapping.wrap_loading()
    triton_wrapping.mark_benchmarks()
    after_import({INDUCTOR_AUTOTUNER: triton_wrapping.mark_inductors_benchmarks})
