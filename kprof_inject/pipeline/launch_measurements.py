"""Repeat the launches that a run has saved, add what is measured to the capture, and the kernels' machine code.

Everything that goes wrong is reported: the capture is useful without these measurements.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.capture.measurements import MACHINE_CODE_FILE, MEASUREMENTS_FILE, MeasurementsRecord
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
from kprof_inject.runtime.compiling.disassembly import programs_machine_code
from kprof_inject.runtime.counters.permission import has_nvidia_module, is_permitted
from kprof_inject.runtime.experiments.tasks import MeasureLaunch, Task, TaskResult, TimeRecords
from kprof_inject.runtime.launch.launch_choice import KERNEL_SECONDS, LaunchChoice
from kprof_inject.runtime.process_report import Reports
from kprof_inject.workspace import Workspace

_MAX_NAMES = 5
# Compilers of one target take some 200 MB each.
_MAX_COMPILERS = 8


class SavedKernel(Struct, frozen=True):
    """A kernel of a capture's process, of which a launch was saved."""

    files: ProcessFiles
    variant: str
    record: KernelRecord
    launch: Path

    def name_of(self, file: str) -> str:
        """Return the name of one of its files."""
        return f"{KERNELS_FOLDER}/{self.variant}/{file}"


class _Job(Protocol):
    """Something to measure of a kernel, by one task."""

    @property
    def kernel(self) -> SavedKernel:
        """The kernel."""

    def task(self) -> Task:
        """Return the task."""

    def save(self, result: TaskResult) -> str:
        """Add the result to the capture; return what went wrong, empty if nothing did."""


class _TimeRecords(Struct, frozen=True):
    """Time the kernel without records and with them."""

    kernel: SavedKernel
    build: Path
    times: int | None

    def task(self) -> TimeRecords:
        return TimeRecords(
            launch=str(self.kernel.launch.resolve()),
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
    """Count metrics of the kernel, and sample its warps."""

    kernel: SavedKernel
    metrics: tuple[str, ...]

    def task(self) -> MeasureLaunch:
        return MeasureLaunch(launch=str(self.kernel.launch.resolve()), metrics=self.metrics)

    def save(self, result: TaskResult) -> str:
        refused = MeasurementsRecord(not_counted=result.refusal, not_sampled=result.refusal)
        measured = replace(result.measurements or refused, seconds=result.seconds)
        self.kernel.files.write(self.kernel.name_of(MEASUREMENTS_FILE), measured)
        reason = measured.not_counted or measured.not_sampled
        return reason and f"{self.kernel.record.name} could not be measured: {reason}"


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
        _measure(workspace, list(_saved_kernels(workspace, capture)), choice, say)
    except OSError as error:
        say(f"cannot measure saved launches: {error.strerror}")


def measure_capture(workspace: Workspace, capture: Path, choice: LaunchChoice, say: Say, launch: Path) -> None:
    """Measure the kernels of a capture of a saved launch."""
    kernels = [SavedKernel(files, variant, record, launch) for files, variant, record in _kernels_in(capture)]
    _measure(workspace, kernels, choice, say)


def _measure(workspace: Workspace, kernels: Sequence[SavedKernel], choice: LaunchChoice, say: Say) -> None:
    jobs: list[_Job] = [*_record_jobs(workspace, kernels, choice), *_measure_jobs(kernels, choice)]
    if not jobs:
        return
    say(f"repeating {counted(len({job.kernel.launch for job in jobs}), 'saved launch')} of {_names(jobs)}")
    with _machine_code_saved([job.kernel for job in jobs if isinstance(job, _Measure)]):
        executable = jobs[0].kernel.files.process.executable
        tasks = [job.task() for job in jobs]
        results = do_tasks(tasks, executable, workspace.cache_folder_of_rerun("launches"))
        troubles = [job.save(result) for job, result in zip(jobs, results, strict=True)]
    for trouble in dict.fromkeys(filter(None, troubles)):
        say(trouble)


def _record_jobs(workspace: Workspace, kernels: Sequence[SavedKernel], choice: LaunchChoice) -> Iterator[_TimeRecords]:
    wanted = choice.replays.only
    for kernel in kernels if wanted != () else ():
        build = workspace.recorded_builds_folder / kernel.variant
        if build.is_dir() and (wanted is None or kernel.record.program_variant in wanted):
            yield _TimeRecords(kernel, build, choice.replays.times)


def _measure_jobs(kernels: Sequence[SavedKernel], choice: LaunchChoice) -> Iterator[_Measure]:
    """Yield a job for each saved launch: builds of a kernel with different records share one."""
    if choice.metrics:
        launches = {kernel.launch: kernel for kernel in kernels}
        for kernel in launches.values():
            yield _Measure(kernel, choice.metrics)


@contextmanager
def _machine_code_saved(kernels: Sequence[SavedKernel]) -> Iterator[None]:
    """Compile and disassemble the kernels meanwhile, and save their machine code at the end of the context."""
    with ThreadPoolExecutor(max(min(len(kernels), os.cpu_count() or 1, _MAX_COMPILERS), 1)) as pool:
        codes: list[tuple[SavedKernel, Future[MachineFunction]]] = [
            (kernel, pool.submit(_machine_code, kernel)) for kernel in kernels
        ]
        yield
        for kernel, code in codes:
            try:
                kernel.files.write(kernel.name_of(MACHINE_CODE_FILE), code.result())
            except KprofError:
                continue  # the report says what is missing


def _machine_code(kernel: SavedKernel) -> MachineFunction:
    ttgir = kernel.files.folder / kernel.name_of(TTGIR_FILE)
    return programs_machine_code(read_saved_launch(kernel.launch), ttgir.read_text())


def _names(jobs: Sequence[_Job]) -> str:
    return listed(list(dict.fromkeys(job.kernel.record.name for job in jobs)), _MAX_NAMES)


def _saved_kernels(workspace: Workspace, capture: Path) -> Iterator[SavedKernel]:
    """Yield the kernels of a capture of which a launch was saved."""
    for files, variant, kernel in _kernels_in(capture):
        name = f"{kernel.program_variant}-{files.process.pid}{SAVED_LAUNCH_ENDING}"
        launch = workspace.launches_folder(capture) / name
        if is_saved_launch(launch):
            yield SavedKernel(files, variant, kernel, launch)


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
