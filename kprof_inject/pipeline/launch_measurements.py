"""Repeat the launches that a run has saved, add what is measured to the capture, and the kernels' machine code.

Everything that goes wrong is reported: the capture is useful without these measurements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from kprof_inject.capture.capture_files import (
    FILES,
    KERNELS_FOLDER,
    KernelRecord,
    ProcessRecord,
    read,
    read_optional,
    write,
)
from kprof_inject.capture.measurements import MeasurementsRecord
from kprof_inject.capture.reader import read_process
from kprof_inject.capture.recording import KERNEL_SECONDS, Recording
from kprof_inject.capture.resources import TimingRecord
from kprof_inject.capture.saved_launch import SAVED_LAUNCH_ENDING, is_saved_launch
from kprof_inject.errors import KprofError
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.captured_kernels import CapturedKernel, kernels_examined
from kprof_inject.pipeline.workers import do_tasks
from kprof_inject.quantities import counted, listed, percent
from kprof_inject.runtime.counters.cupti import has_nvidia_module, is_permitted
from kprof_inject.runtime.process_report import Reports
from kprof_inject.runtime.worker.tasks import CountLaunch, SampleLaunch, Task, TaskResult, TimeRecords
from kprof_inject.workspace import Workspace

_MAX_NAMES = 5
_WAITS_FOR_OTHERS = "it polls memory, and several processes run it: alone, it might wait for ever"
# Kernels that take less of the time of all kernels are not worth a file.
_MIN_SHARE = 0.01


class _Job(NamedTuple):
    """Task with a saved launch; ``purpose`` follows *repeating a launch to*.

    ``kernels`` are the builds of one kernel with different records, which get the result.
    """

    purpose: str
    kernels: tuple[CapturedKernel, ...]
    task: TimeRecords | CountLaunch | SampleLaunch

    @property
    def name(self) -> str:
        return self.kernels[0].record.name


def _save(job: _Job, result: TaskResult) -> str:
    for kernel in job.kernels:
        write(kernel.folder, _record_with(kernel.folder, job.task, result))
    return result.refusal and _REFUSALS[type(job.task)].format(name=job.name, reason=result.refusal)


def _record_with(folder: Path, task: Task, result: TaskResult) -> TimingRecord | MeasurementsRecord:
    if isinstance(task, TimeRecords):
        return replace(_timing_of(folder), replay=result.replay, not_replayed=result.refusal or None)
    if isinstance(task, CountLaunch):
        return replace(result.measurements or MeasurementsRecord(not_counted=result.refusal), seconds=result.seconds)
    counted = read(folder, MeasurementsRecord)
    samples = result.measurements.samples if result.measurements else None
    return replace(counted, samples=samples, not_sampled=result.refusal, seconds=counted.seconds + result.seconds)


_REFUSALS: Mapping[type[Task], str] = {
    TimeRecords: "{name} could not be timed again: {reason}",
    CountLaunch: "the counters of {name} could not be read: {reason}",
    SampleLaunch: "the warps of {name} could not be sampled: {reason}",
}


def main_kernels(workspace: Workspace) -> tuple[str, ...]:
    """Return the variants that take at least 1 % of the kernels' time, as far as the dump knows it."""
    return tuple(variant for variant, share in _shares_of_time(workspace).items() if share >= _MIN_SHARE)


def _shares_of_time(workspace: Workspace) -> dict[str, float]:
    """Return each variant's share of the kernels' time, and 1 for those whose time is unknown."""
    runs = {kernel.variant: workspace.clean_run(kernel.variant) for kernel in workspace.kernels()}
    ns = {variant: median(run.times_ns or (0.0,)) * (run.launches or 0) for variant, run in runs.items()}
    total_ns = sum(ns.values())
    return {variant: ns[variant] / total_ns if run.times_ns and total_ns else 1.0 for variant, run in runs.items()}


def with_permitted_metrics(recording: Recording, say: Say) -> Recording:
    """Return the recording without metrics if no launch can be measured, and say why if a GPU has counters."""
    if not recording.metrics or not has_nvidia_module():
        return replace(recording, counters="none")
    if not is_permitted():
        say("without hardware counters, which this user may not read; doctor says how to get the permission")
        return replace(recording, counters="none")
    return recording


def measure_run(workspace: Workspace, capture: Path, reports: Reports, recording: Recording, say: Say) -> None:
    """Measure the kernels of which a run has saved a launch."""
    refusals = [note for note in reports.saved_launches if note.refusal]
    for kernel, refusal in dict.fromkeys((note.kernel, note.refusal) for note in refusals):
        say(f"no launch of {kernel} was saved, because {refusal}")
    try:
        if recording.variants_to_replay != ():
            for note in refusals:
                _note_refusal(capture, note.variant, f"no launch of it was saved: {note.refusal}")
        kernels = list(_captured_kernels(workspace, capture))
        if recording.metrics:
            _note_small_kernels(workspace, capture, {kernel.folder for kernel in kernels})
        if not recording.replay:
            kernels = _without_those_that_wait_for_others(capture, kernels, say)
        _measure(workspace, kernels, recording, say)
    except OSError as error:
        say(f"cannot measure saved launches: {error.strerror}")


def _note_small_kernels(workspace: Workspace, capture: Path, measured: Set[Path]) -> None:
    """Save why kernels of a capture are not measured that take less than 1 % of the time."""
    shares = _shares_of_time(workspace)
    for _, folder, kernel in _kernels_in(capture):
        if folder not in measured and (share := shares.get(kernel.program_variant)) is not None:
            reason = f"it takes {percent(share)} of the kernels' time; profile --kernel {kernel.name} measures it"
            write(folder, MeasurementsRecord(not_counted=reason, not_sampled=reason))


def _without_those_that_wait_for_others(
    capture: Path, kernels: Sequence[CapturedKernel], say: Say
) -> list[CapturedKernel]:
    """Return the kernels, without the launches of those that poll memory where several processes run them.

    Repeated alone, such a launch would wait until it is ended: another process sets what it polls.
    """
    processes: defaultdict[str, set[str]] = defaultdict(set)
    for kernel in kernels:
        processes[kernel.record.name].add(kernel.folder.parents[1].name)

    def waits_for_others(kernel: CapturedKernel) -> bool:
        relaunch = kernel.record.scopes.relaunch
        polls = relaunch is not None and relaunch.waits
        return kernel.launch is not None and polls and len(processes[kernel.record.name]) > 1

    waiting = list(filter(waits_for_others, kernels))
    for variant in {kernel.record.program_variant for kernel in waiting}:
        _note_refusal(capture, variant, _WAITS_FOR_OTHERS)
    for name in sorted({kernel.record.name for kernel in waiting}):
        say(f"{name} is not repeated, because {_WAITS_FOR_OTHERS}")
    return [replace(kernel, launch=None) if waits_for_others(kernel) else kernel for kernel in kernels]


def measure_capture(workspace: Workspace, capture: Path, recording: Recording, say: Say, launch: Path) -> None:
    """Measure the kernels of a capture of a saved launch."""
    options = {kernel.variant: kernel.info.options for kernel in workspace.kernels()}
    kernels = [
        CapturedKernel(folder, record, launch, options.get(record.program_variant, {}))
        for _, folder, record in _kernels_in(capture)
    ]
    _measure(workspace, kernels, recording, say)


def _measure(workspace: Workspace, kernels: Sequence[CapturedKernel], recording: Recording, say: Say) -> None:
    jobs = [*_record_jobs(workspace, kernels, recording), *_measure_jobs(kernels, recording)]
    with kernels_examined(workspace, kernels, say):
        if not jobs:
            return
        purposes = ", to ".join(dict.fromkeys(job.purpose for job in jobs))
        launches = counted(len({job.task.launch for job in jobs}), "saved launch")
        names = listed(list(dict.fromkeys(job.name for job in jobs)), _MAX_NAMES)
        say(f"repeating {launches} to {purposes}: {names}")
        executable = read_process(jobs[0].kernels[0].folder.parents[1]).executable
        results = do_tasks([job.task for job in jobs], executable, workspace.cache_folder_of_rerun("launches"))
        troubles = [_save(job, result) for job, result in zip(jobs, results, strict=True)]
    for trouble in dict.fromkeys(filter(None, troubles)):
        say(trouble)


def _record_jobs(workspace: Workspace, kernels: Sequence[CapturedKernel], recording: Recording) -> Iterator[_Job]:
    wanted = recording.variants_to_replay
    for kernel in kernels if wanted != () else ():
        build = workspace.recorded_builds_folder / kernel.variant
        is_wanted = wanted is None or kernel.record.program_variant in wanted
        if kernel.launch is not None and build.is_dir() and is_wanted:
            task = TimeRecords(
                launch=str(kernel.launch.resolve()),
                build=str(build.resolve()),
                kernel=kernel.record,
                seconds=KERNEL_SECONDS,
                times=recording.replay,
            )
            yield _Job("time the records", (kernel,), task)


def _measure_jobs(kernels: Sequence[CapturedKernel], recording: Recording) -> Iterator[_Job]:
    """Yield two jobs for each saved launch: builds of a kernel with different records share one.

    All launches are counted before the first is sampled, because changing between the two takes time.
    """
    sharing: defaultdict[str, list[CapturedKernel]] = defaultdict(list)
    for kernel in kernels if recording.metrics else ():
        if kernel.launch is not None:
            sharing[str(kernel.launch.resolve())].append(kernel)
    for launch, builds in sharing.items():
        yield _Job("read the counters", tuple(builds), CountLaunch(launch=launch, metrics=recording.metrics))
    for launch, builds in sharing.items():
        yield _Job("sample the warps", tuple(builds), SampleLaunch(launch=launch))


def _captured_kernels(workspace: Workspace, capture: Path) -> Iterator[CapturedKernel]:
    """Yield the kernels of a capture that take at least 1 % of the time, or of which a launch was saved."""
    main = main_kernels(workspace)
    options = {kernel.variant: kernel.info.options for kernel in workspace.kernels()}
    for process, folder, kernel in _kernels_in(capture):
        name = f"{kernel.program_variant}-{process.pid}{SAVED_LAUNCH_ENDING}"
        launch = workspace.launches_folder(capture) / name
        is_saved = is_saved_launch(launch)
        if is_saved or kernel.program_variant in main:
            of_variant = options.get(kernel.program_variant, {})
            yield CapturedKernel(folder, kernel, launch if is_saved else None, of_variant)


def _kernels_in(capture: Path) -> Iterator[tuple[ProcessRecord, Path, KernelRecord]]:
    for path in sorted(capture.glob(f"*/{FILES[ProcessRecord]}")):
        try:
            process = read_process(path.parent)
            for folder in sorted((path.parent / KERNELS_FOLDER).glob("*")):
                yield process, folder, read(folder, KernelRecord)
        except KprofError:
            continue


def _note_refusal(capture: Path, program_variant: str, reason: str) -> None:
    for _, folder, kernel in _kernels_in(capture):
        if kernel.program_variant == program_variant:
            timing = _timing_of(folder)
            if timing.replay is None:
                write(folder, replace(timing, not_replayed=reason))


def _timing_of(kernel_folder: Path) -> TimingRecord:
    return read_optional(kernel_folder, TimingRecord) or TimingRecord(())
