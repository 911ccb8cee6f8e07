"""Repeat the launches that a run has saved, add what is measured to the capture, and the kernels' machine code.

Everything that goes wrong is reported: the capture is useful without these measurements.
"""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Protocol

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.structure.recorded_lines import moves_in, original_lines
from kprof_inject.capture.measurements import (
    MACHINE_CODE_FILE,
    MEASUREMENTS_FILE,
    MOVES_FILE,
    MeasurementsRecord,
    MovesRecord,
)
from kprof_inject.capture.reader import ProcessFiles
from kprof_inject.capture.saved_launch import SAVED_LAUNCH_ENDING, is_saved_launch, read_saved_launch
from kprof_inject.capture.schema import (
    KERNEL_FILE,
    KERNELS_FOLDER,
    PROCESS_FILE,
    TIMING_FILE,
    TTGIR_FILE,
    KernelRecord,
    TimingRecord,
)
from kprof_inject.errors import KprofError
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.own_processes import do_tasks
from kprof_inject.quantities import counted, listed
from kprof_inject.runtime.compiling.compiler_process import CompilerProcess
from kprof_inject.runtime.compiling.disassembly import (
    machine_code_of,
    programs_machine_code,
    recorded_machine_code_of,
)
from kprof_inject.runtime.compiling.module_check import TIME_LIMIT_S
from kprof_inject.runtime.counters.permission import has_nvidia_module, is_permitted
from kprof_inject.runtime.devices.cuda_driver import loaded_driver
from kprof_inject.runtime.experiments.tasks import MeasureLaunch, Task, TaskResult, TimeRecords
from kprof_inject.runtime.launch.launch_choice import KERNEL_SECONDS, LaunchChoice
from kprof_inject.runtime.process_report import Reports
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import Workspace

_MAX_NAMES = 5
# Kernels that take less of the time of all kernels are not worth a file.
_MIN_SHARE = 0.01
# Compilers of one target take some 200 MB each.
_MAX_COMPILERS = 8


class CapturedKernel(Struct, frozen=True):
    """A kernel of a capture's process.

    ``launch`` is the launch of it that was saved, None if there is none. ``options`` are Triton's, with which the
    program compiled it.
    """

    files: ProcessFiles
    variant: str
    record: KernelRecord
    launch: Path | None
    options: Mapping[str, Any]

    def name_of(self, file: str) -> str:
        """Return the name of one of its files."""
        return f"{KERNELS_FOLDER}/{self.variant}/{file}"


class _Job(Protocol):
    """Something to measure of a kernel, by one task; ``purpose`` follows *repeating a launch to*."""

    purpose: ClassVar[str]

    @property
    def kernel(self) -> CapturedKernel:
        """The kernel."""

    @property
    def launch(self) -> Path:
        """The saved launch to repeat."""

    def task(self) -> Task:
        """Return the task."""

    def save(self, result: TaskResult) -> str:
        """Add the result to the capture; return what went wrong, empty if nothing did."""


class _TimeRecords(Struct, frozen=True):
    """Time the kernel without records and with them."""

    purpose: ClassVar[str] = "time the records"
    kernel: CapturedKernel
    launch: Path
    build: Path
    times: int | None

    def task(self) -> TimeRecords:
        return TimeRecords(
            launch=str(self.launch.resolve()),
            build=str(self.build.resolve()),
            kernel=self.kernel.record,
            seconds=KERNEL_SECONDS,
            times=self.times,
        )

    def save(self, result: TaskResult) -> str:
        timing = _timing_of(self.kernel.files, self.kernel.variant)
        changed = replace(timing, replay=result.replay, not_replayed=result.refusal or None)
        self.kernel.files.write(_timing_name(self.kernel.variant), changed)
        return result.refusal and f"{self.kernel.record.name} could not be timed again: {result.refusal}"


class _Measure(Struct, frozen=True):
    """Count metrics of a kernel, and sample its warps: ``kernels`` are its builds with different records."""

    purpose: ClassVar[str] = "read the counters"
    kernels: tuple[CapturedKernel, ...]
    launch: Path
    metrics: tuple[str, ...]

    @property
    def kernel(self) -> CapturedKernel:
        """The first of them."""
        return self.kernels[0]

    def task(self) -> MeasureLaunch:
        return MeasureLaunch(launch=str(self.launch.resolve()), metrics=self.metrics)

    def save(self, result: TaskResult) -> str:
        refused = MeasurementsRecord(not_counted=result.refusal, not_sampled=result.refusal)
        measured = replace(result.measurements or refused, seconds=result.seconds)
        for kernel in self.kernels:
            kernel.files.write(kernel.name_of(MEASUREMENTS_FILE), measured)
        reason = measured.not_counted or measured.not_sampled
        return reason and f"{self.kernel.record.name} could not be measured: {reason}"


def main_kernels(workspace: Workspace) -> tuple[str, ...]:
    """Return the variants that take at least 1 % of the kernels' time, as far as the dump knows it."""
    runs = {kernel.variant: workspace.clean_run(kernel.variant) for kernel in workspace.kernels()}
    ns = {variant: median(run.times_ns or (0.0,)) * (run.launches or 0) for variant, run in runs.items()}
    total_ns = sum(ns.values())
    return tuple(variant for variant, run in runs.items() if not run.times_ns or ns[variant] >= _MIN_SHARE * total_ns)


def with_permitted_metrics(choice: LaunchChoice, say: Say) -> LaunchChoice:
    """Return the choice without metrics if no launch can be measured, and say why if a GPU has counters."""
    if not choice.metrics or choice.replays.in_program or not has_nvidia_module():
        return dataclasses.replace(choice, metrics=())
    if not is_permitted():
        say("without hardware counters, which this user may not read; doctor says how to get the permission")
        return dataclasses.replace(choice, metrics=())
    return choice


def measure_run(workspace: Workspace, capture: Path, reports: Reports, choice: LaunchChoice, say: Say) -> None:
    """Measure the kernels of which a run has saved a launch."""
    refusals = [note for note in reports.saved_launches if note.refusal]
    for kernel, refusal in dict.fromkeys((note.kernel, note.refusal) for note in refusals):
        say(f"no launch of {kernel} was saved, because {refusal}")
    try:
        if choice.replays.only != ():
            for note in refusals:
                _note_refusal(capture, note.variant, f"no launch of it was saved: {note.refusal}")
        _measure(workspace, list(_captured_kernels(workspace, capture)), choice, say)
    except OSError as error:
        say(f"cannot measure saved launches: {error.strerror}")


def measure_capture(workspace: Workspace, capture: Path, choice: LaunchChoice, say: Say, launch: Path) -> None:
    """Measure the kernels of a capture of a saved launch."""
    options = _options_in(workspace)
    kernels = [
        CapturedKernel(files, variant, record, launch, options.get(record.program_variant or "", {}))
        for files, variant, record in _kernels_in(capture)
    ]
    _measure(workspace, kernels, choice, say)


def _measure(workspace: Workspace, kernels: Sequence[CapturedKernel], choice: LaunchChoice, say: Say) -> None:
    jobs: list[_Job] = [*_record_jobs(workspace, kernels, choice), *_measure_jobs(kernels, choice)]
    with _machine_code_saved(workspace, kernels):
        if not jobs:
            return
        purposes = " and to ".join(dict.fromkeys(job.purpose for job in jobs))
        launches = counted(len({job.launch for job in jobs}), "saved launch")
        say(f"repeating {launches} to {purposes}: {_names(jobs)}")
        executable = jobs[0].kernel.files.process.executable
        tasks = [job.task() for job in jobs]
        results = do_tasks(tasks, executable, workspace.cache_folder_of_rerun("launches"))
        troubles = [job.save(result) for job, result in zip(jobs, results, strict=True)]
    for trouble in dict.fromkeys(filter(None, troubles)):
        say(trouble)


def _record_jobs(
    workspace: Workspace, kernels: Sequence[CapturedKernel], choice: LaunchChoice
) -> Iterator[_TimeRecords]:
    wanted = choice.replays.only
    for kernel in kernels if wanted != () else ():
        build = workspace.recorded_builds_folder / kernel.variant
        is_wanted = wanted is None or kernel.record.program_variant in wanted
        if kernel.launch is not None and build.is_dir() and is_wanted:
            yield _TimeRecords(kernel, kernel.launch, build, choice.replays.times)


def _measure_jobs(kernels: Sequence[CapturedKernel], choice: LaunchChoice) -> Iterator[_Measure]:
    """Yield a job for each saved launch: builds of a kernel with different records share one."""
    of_launch: defaultdict[Path, list[CapturedKernel]] = defaultdict(list)
    for kernel in kernels if choice.metrics else ():
        if kernel.launch is not None:
            of_launch[kernel.launch].append(kernel)
    for launch, sharing in of_launch.items():
        yield _Measure(tuple(sharing), launch, choice.metrics)


@contextmanager
def _machine_code_saved(workspace: Workspace, kernels: Sequence[CapturedKernel]) -> Iterator[None]:
    """Compile and disassemble the kernels meanwhile, and save what is known of them at the end of the context.

    Not without NVIDIA's driver: no kernel of this machine was really launched then.
    """
    is_nvidia = loaded_driver() is not None
    of_nvidia = [kernel for kernel in kernels if is_nvidia and _backend_of(kernel.record) == "cuda"]
    with ThreadPoolExecutor(max(min(2 * len(of_nvidia), os.cpu_count() or 1, _MAX_COMPILERS), 1)) as pool:
        made: list[tuple[CapturedKernel, str, Future[Any]]] = []
        for kernel in of_nvidia:
            made.append((kernel, MACHINE_CODE_FILE, pool.submit(_machine_code, kernel)))
            made.append((kernel, MOVES_FILE, pool.submit(_moves, workspace, kernel)))
        yield
        for kernel, file, result in made:
            try:
                kernel.files.write(kernel.name_of(file), result.result())
            except (KprofError, OSError):
                continue  # without it, the report has less evidence


def _moves(workspace: Workspace, kernel: CapturedKernel) -> MovesRecord:
    """Return what the compiler moved across the kernel's records."""
    original = (kernel.files.folder / kernel.name_of(TTGIR_FILE)).read_text()
    path = workspace.override_path(workspace.kernel(kernel.record.program_variant or kernel.variant))
    text = path.read_text()
    module = parse(text, str(path))
    with CompilerProcess() as compiler:
        functions = recorded_machine_code_of(module, compiler, TIME_LIMIT_S)
    lines = original_lines(text, original)
    return MovesRecord(
        scopes={
            name: moved and tuple(replace(one, line=lines[one.line - 1]) for one in moved)
            for name, moved in moves_in(module, functions).items()
        }
    )


def _machine_code(kernel: CapturedKernel) -> MachineFunction:
    """Return the machine code of the program's kernel; of the same kernel compiled again if no launch was saved."""
    ttgir = (kernel.files.folder / kernel.name_of(TTGIR_FILE)).read_text()
    if kernel.launch is not None:
        return programs_machine_code(read_saved_launch(kernel.launch), ttgir)
    functions = machine_code_of(parse(ttgir), kernel.options)
    found = next((function for function in functions if function.name == kernel.record.name), None)
    if found is None:
        raise KprofError(f"the machine code has no {kernel.record.name}")
    return found


def _backend_of(kernel: KernelRecord) -> str:
    target = kernel.metadata.get("target")
    return str(target.get("backend", "")) if isinstance(target, dict) else ""


def _options_in(workspace: Workspace) -> dict[str, Mapping[str, Any]]:
    """Return the options of each variant that was dumped."""
    return {kernel.variant: kernel.info.options for kernel in workspace.kernels()}


def _names(jobs: Sequence[_Job]) -> str:
    return listed(list(dict.fromkeys(job.kernel.record.name for job in jobs)), _MAX_NAMES)


def _captured_kernels(workspace: Workspace, capture: Path) -> Iterator[CapturedKernel]:
    """Yield the kernels of a capture that take at least 1 % of the time, or of which a launch was saved."""
    main, options = main_kernels(workspace), _options_in(workspace)
    for files, variant, kernel in _kernels_in(capture):
        name = f"{kernel.program_variant}-{files.process.pid}{SAVED_LAUNCH_ENDING}"
        launch = workspace.launches_folder(capture) / name
        is_saved = is_saved_launch(launch)
        if is_saved or kernel.program_variant in main:
            of_variant = options.get(kernel.program_variant or "", {})
            yield CapturedKernel(files, variant, kernel, launch if is_saved else None, of_variant)


def _kernels_in(capture: Path) -> Iterator[tuple[ProcessFiles, str, KernelRecord]]:
    for path in sorted(capture.glob(f"*/{PROCESS_FILE}")):
        try:
            files = ProcessFiles.open(path.parent)
            for folder in sorted((path.parent / KERNELS_FOLDER).glob("*")):
                yield files, folder.name, files.read(f"{KERNELS_FOLDER}/{folder.name}/{KERNEL_FILE}", KernelRecord)
        except KprofError:
            continue


def _note_refusal(capture: Path, program_variant: str, reason: str) -> None:
    for files, variant, kernel in _kernels_in(capture):
        if kernel.program_variant == program_variant:
            timing = _timing_of(files, variant)
            if timing.replay is None:
                files.write(_timing_name(variant), replace(timing, not_replayed=reason))


def _timing_of(files: ProcessFiles, variant: str) -> TimingRecord:
    return files.read_if_there(_timing_name(variant), TimingRecord) or TimingRecord(())


def _timing_name(variant: str) -> str:
    return f"{KERNELS_FOLDER}/{variant}/{TIMING_FILE}"
