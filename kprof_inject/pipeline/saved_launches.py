"""Choose which launches of a program are saved, and repeat them in workers when the program has ended.

What is measured is added to the capture, as is the kernels' machine code. Everything that goes wrong is reported: the
capture is useful without these measurements.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median

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
from kprof_inject.capture.saved_launch import (
    SAVED_LAUNCH_ENDING,
    SAVED_LAUNCH_FILE,
    SavedLaunch,
    compress,
    is_saved_launch,
    names_saved_launch,
    read_saved_launch,
)
from kprof_inject.errors import KprofError
from kprof_inject.insertion import insert_kernels, write_insertions
from kprof_inject.packages import installed_version_of
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.captured_kernels import CapturedKernel, kernels_examined
from kprof_inject.pipeline.workers import WorkerProcess, worker_process
from kprof_inject.quantities import counted, listed, percent
from kprof_inject.report.notes import l2_in_words
from kprof_inject.runtime.compiling.builds import require_own_files
from kprof_inject.runtime.counters.cupti import has_nvidia_module, is_permitted
from kprof_inject.runtime.process_report import Reports, read_reports
from kprof_inject.runtime.program import require_startable
from kprof_inject.runtime.session import SavedLaunches, Session
from kprof_inject.runtime.worker.tasks import (
    MAX_TIMES,
    CaptureLaunch,
    CountLaunch,
    SampleLaunch,
    Task,
    TaskResult,
    TimeRecords,
)
from kprof_inject.workspace import Workspace

# The first of them fill caches and raise the clock.
_LAUNCHES = 4
_MAX_NAMES = 5
_WAITS_FOR_OTHERS = "it polls memory, and several processes run it: alone, it might wait for ever"
# Kernels that take less of the time of all kernels are not worth a file.
_MIN_SHARE = 0.01
# What a task is for, and the message on its refusal.
_WORDS: Mapping[type[Task], tuple[str, str]] = {
    TimeRecords: ("time the records", "{name} could not be timed again: {reason}"),
    CountLaunch: ("read the counters", "the counters of {name} could not be read: {reason}"),
    SampleLaunch: ("sample the warps", "the warps of {name} could not be sampled: {reason}"),
}


def launches_to_save(
    workspace: Workspace, capture: Path, recording: Recording, variants: tuple[str, ...] | None
) -> SavedLaunches:
    """Return the choice of the launches that the run of a capture saves: one of each variant, of all if it is None."""
    folders = str(workspace.launches_folder(capture).resolve()), str(workspace.kernels_folder.resolve())
    return SavedLaunches(variants, *folders, is_asked_for=recording.asks_for_saved_launches)


def drop_launches_except(workspace: Workspace, capture: Path, variants: Container[str]) -> None:
    """Remove the saved launches of all other variants."""
    for path in workspace.launches_folder(capture).glob(f"*{SAVED_LAUNCH_ENDING}"):
        if _variant_in(path) not in variants:
            shutil.rmtree(path, ignore_errors=True)


def _variant_in(saved_launch: Path) -> str:
    # The name also has the process's id.
    return saved_launch.name.removesuffix(SAVED_LAUNCH_ENDING).rpartition("-")[0]


def drop_launches(workspace: Workspace, capture: Path) -> None:
    """Remove the launches that the run of a capture saved, and the builds for them."""
    shutil.rmtree(workspace.launches_folder(capture), ignore_errors=True)
    with suppress(OSError):
        workspace.launches_folder(capture).parent.rmdir()
    shutil.rmtree(workspace.recorded_builds_folder, ignore_errors=True)


def finish_launches(workspace: Workspace, capture: Path, say: Say) -> None:
    """Compress and report the launches that the run of a capture saved, and remove the builds for them."""
    shutil.rmtree(workspace.recorded_builds_folder, ignore_errors=True)
    saved = sorted(path.parent for path in workspace.launches_folder(capture).glob(f"*/{SAVED_LAUNCH_FILE}"))
    for launch in saved:
        compress(launch)
    if saved:
        say(f"saved {counted(len(saved), 'launch')}; repeat one: kprof-inject report {saved[0]}")


def saved_launches_of(workspace: Workspace, capture: Path) -> dict[str, Path]:
    """Return a launch of each variant that was saved in the run of a capture."""
    launches: dict[str, Path] = {}
    for path in sorted(workspace.launches_folder(capture).glob(f"*{SAVED_LAUNCH_ENDING}")):
        if is_saved_launch(path):
            launches.setdefault(_variant_in(path), path)
    return launches


def saved_launch_at(words: Sequence[str], kernel_glob: str) -> SavedLaunch | None:
    """Return the saved launch that a command names in place of a program; None if it names a program.

    Raises ``KprofError`` for a program that does not exist, and if the launch is damaged or not safe to compile, or its
    kernel does not match ``kernel_glob``.
    """
    if len(words) != 1 or not names_saved_launch(Path(words[0])):
        require_startable(words)
        return None
    saved = read_saved_launch(Path(words[0]))
    if not fnmatchcase(saved.record.name, kernel_glob):
        raise KprofError(f"{words[0]} is a launch of {saved.record.name}, not of {kernel_glob}", hint="omit --kernel")
    require_own_files(saved.kernel.options)
    return saved


def captured(saved: SavedLaunch, launches: str, say: Say) -> Path:
    """Return a temporary workspace with a capture of a saved launch; ``launches`` is as in ``run``.

    Raises ``KprofError``.
    """
    require_own_files(saved.kernel.options)
    folder = Path(tempfile.mkdtemp(prefix="kprof-launch-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    workspace = Workspace.begin(folder)
    adopt(workspace, saved)
    write_insertions(workspace, insert_kernels(workspace, ()))
    capture_launch(workspace, saved, Recording(launches=launches), say)
    return folder


def adopt(workspace: Workspace, saved: SavedLaunch) -> None:
    """Replace the workspace's kernels by that of a saved launch, as ``dump`` would.

    Raises ``KprofError`` if another version of Triton compiled it.
    """
    version = installed_version_of("triton")
    if version not in ("", saved.record.triton):
        raise KprofError(
            f"Triton {saved.record.triton} compiled {saved.folder}, and this Python has {version}",
            hint=f"install triton=={saved.record.triton}, or save the launch again",
        )
    with workspace.results_replaced():
        folder = workspace.kernels_folder / saved.record.variant
        folder.mkdir(parents=True)
        for name in saved.record.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(saved.folder / name, folder / name)


def capture_launch(workspace: Workspace, saved: SavedLaunch, recording: Recording, say: Say, made_by: str = "") -> Path:
    """Launch a saved launch with the planned records, as ``run`` has a program do it; return the capture's folder.

    It is repeated so often that the filter keeps some. Raises ``KprofError`` if nothing was captured.
    """
    launches = recording.filter
    times = launches.stop if launches.stop is not None else launches.first + _LAUNCHES
    if times > MAX_TIMES:
        raise KprofError(
            f"--launches {launches.text} needs {times} launches, and a saved one is repeated at most {MAX_TIMES} times",
            hint="leave it out: all of them do the same",
            exit_code=2,
        )
    folder = workspace.new_capture_folder()
    reports_folder = workspace.new_reports_folder("run")
    session = Session(
        "run",
        str(workspace.folder.resolve()),
        str(reports_folder.resolve()),
        replace(recording, kernel="*", torch_trace=False),
        capture=str(folder.resolve()),
        made_by=made_by,
        saved=SavedLaunches((saved.record.variant,)),
    )
    session.write()
    task = CaptureLaunch(launch=str(saved.folder.resolve()), session=str(session.path), times=times)
    with worker_process(cache=workspace.cache_folder_of_rerun("launches")) as worker:
        try:
            (result,) = worker.do_all([task])
        finally:
            workspace.forget_if_empty(folder)
        reports = read_reports(reports_folder)
        left_alone = [state.reason for state in reports.kernels if state.state == "left alone"]
        if reason := result.refusal or (left_alone[0] if left_alone else ""):
            raise KprofError(f"{saved.record.name} was not recorded: {reason}")
        say(f"captured to {folder}" + (f", {l2}" if (l2 := l2_in_words(result.l2)) else ""))
        kernels = [CapturedKernel(path, record, saved.folder) for _, path, record in _kernels_in(folder)]
        _measure(workspace, kernels, with_permitted_metrics(recording, say), say, worker)
    drop_launches(workspace, folder)
    return folder


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


def measure_run(
    workspace: Workspace, capture: Path, reports: Reports, recording: Recording, say: Say, worker: WorkerProcess
) -> None:
    """Measure the kernels of which a run has saved a launch."""
    refusals = [note for note in reports.saved_launches if note.refusal]
    for kernel, refusal in dict.fromkeys((note.kernel, note.refusal) for note in refusals):
        say(f"no launch of {kernel} was saved, because {refusal}")
    try:
        if recording.variants_to_replay != ():
            for note in refusals:
                _note_refusal(capture, note.variant, f"no launch of it was saved: {note.refusal}")
        kernels, main = list[CapturedKernel](), main_kernels(workspace)
        for process, folder, record in _kernels_in(capture):
            name = f"{record.program_variant}-{process.pid}{SAVED_LAUNCH_ENDING}"
            launch = workspace.launches_folder(capture) / name
            is_saved = is_saved_launch(launch)
            if is_saved or record.program_variant in main:
                kernels.append(CapturedKernel(folder, record, launch if is_saved else None))
        if recording.metrics:
            shares, measured = _shares_of_time(workspace), {kernel.folder for kernel in kernels}
            for _, folder, record in _kernels_in(capture):
                if folder not in measured and (share := shares.get(record.program_variant)) is not None:
                    what = f"it takes {percent(share)} of the kernels' time; profile --kernel {record.name} measures it"
                    write(folder, MeasurementsRecord(not_counted=what, not_sampled=what))
        if not recording.replay:
            kernels = _without_those_that_wait_for_others(capture, kernels, say)
        _measure(workspace, kernels, recording, say, worker)
    except OSError as error:
        say(f"cannot measure saved launches: {error.strerror}")


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


def _measure(
    workspace: Workspace, kernels: Sequence[CapturedKernel], recording: Recording, say: Say, worker: WorkerProcess
) -> None:
    jobs: list[tuple[TimeRecords | CountLaunch | SampleLaunch, list[CapturedKernel]]] = []
    wanted = recording.variants_to_replay
    # Builds of a kernel with different records share the counters and samples of a launch.
    sharing: defaultdict[str, list[CapturedKernel]] = defaultdict(list)
    for kernel in kernels:
        if kernel.launch is None:
            continue
        launch = str(kernel.launch.resolve())
        build = workspace.recorded_builds_folder / kernel.folder.name
        if build.is_dir() and (wanted is None or kernel.record.program_variant in wanted):
            timing = TimeRecords(
                launch=launch,
                build=str(build.resolve()),
                kernel=kernel.record,
                seconds=KERNEL_SECONDS,
                times=recording.replay,
            )
            jobs.append((timing, [kernel]))
        if recording.metrics:
            sharing[launch].append(kernel)
    # All are counted before the first is sampled, because changing between the two takes time.
    jobs += [(CountLaunch(launch=launch, metrics=recording.metrics), builds) for launch, builds in sharing.items()]
    jobs += [(SampleLaunch(launch=launch), builds) for launch, builds in sharing.items()]
    with kernels_examined(workspace, kernels, say):
        if not jobs:
            return
        purposes = ", to ".join(dict.fromkeys(_WORDS[type(task)][0] for task, _ in jobs))
        launches = counted(len({task.launch for task, _ in jobs}), "saved launch")
        names = listed(list(dict.fromkeys(builds[0].record.name for _, builds in jobs)), _MAX_NAMES)
        say(f"repeating {launches} to {purposes}: {names}")
        worker.use(read_process(jobs[0][1][0].folder.parents[1]).executable)
        results = worker.do_all([task for task, _ in jobs])
        troubles = []
        for (task, builds), result in zip(jobs, results, strict=True):
            for kernel in builds:
                write(kernel.folder, _record_with(kernel.folder, task, result))
            if result.refusal:
                troubles.append(_WORDS[type(task)][1].format(name=builds[0].record.name, reason=result.refusal))
    for trouble in dict.fromkeys(troubles):
        say(trouble)


def _record_with(folder: Path, task: Task, result: TaskResult) -> TimingRecord | MeasurementsRecord:
    if isinstance(task, TimeRecords):
        return replace(_timing_of(folder), replay=result.replay, not_replayed=result.refusal or None)
    if isinstance(task, CountLaunch):
        return replace(result.measurements or MeasurementsRecord(not_counted=result.refusal), seconds=result.seconds)
    counted = read(folder, MeasurementsRecord)
    samples = result.measurements.samples if result.measurements else None
    return replace(counted, samples=samples, not_sampled=result.refusal, seconds=counted.seconds + result.seconds)


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
