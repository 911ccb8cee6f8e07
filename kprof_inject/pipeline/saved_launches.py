"""Save launches of a program, and repeat them when the program has ended."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from kprof_inject.calibration import add_record_costs
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.reader import ProcessFiles
from kprof_inject.capture.saved_launch import (
    SAVED_LAUNCH_ENDING,
    SAVED_LAUNCH_FILE,
    SavedLaunch,
    compress,
    is_saved_launch,
    names_saved_launch,
    read_saved_launch,
)
from kprof_inject.capture.schema import (
    KERNEL_FILE,
    KERNELS_FOLDER,
    PROCESS_FILE,
    TIMING_FILE,
    KernelRecord,
    TimingRecord,
)
from kprof_inject.errors import KprofError
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.insertion import insert_kernels, write_insertions
from kprof_inject.pipeline.own_processes import do_tasks
from kprof_inject.quantities import counted, listed
from kprof_inject.report.launch_contents import l2_in_words
from kprof_inject.runtime.experiments.tasks import (
    MAX_TIMES,
    CaptureLaunch,
    RecompileLaunch,
    TaskResult,
    TimeRecords,
)
from kprof_inject.runtime.launch.launch_choice import (
    KERNEL_SECONDS,
    LaunchChoice,
    LaunchFilter,
    ReplayChoice,
    SavedLaunches,
    parse_launches,
)
from kprof_inject.runtime.packages import installed_version_of
from kprof_inject.runtime.process_report import Reports, read_reports
from kprof_inject.runtime.session import Session
from kprof_inject.workspace import Workspace

_MAX_NAMES = 5
# The first of them fill caches and raise the clock.
_LAUNCHES = 4


def launches_to_save(
    workspace: Workspace, capture: Path, variants: tuple[str, ...] | None, *, is_asked_for: bool
) -> SavedLaunches:
    """Return the choice of the launches that a run saves: one of each of these variants, of all if it is None.

    ``capture`` is the folder of the run's capture; ``is_asked_for`` is that of ``SavedLaunches``.
    """
    return SavedLaunches(
        variants,
        str(workspace.launches_folder(capture).resolve()),
        str(workspace.kernels_folder.resolve()),
        is_asked_for=is_asked_for,
    )


# Kernels that take less of the time of all kernels are not worth a file.
_MIN_SHARE = 0.01


def main_kernels(workspace: Workspace) -> tuple[str, ...]:
    """Return the variants that take at least 1 % of the kernels' time, as far as the dump knows it."""
    runs = {kernel.variant: workspace.clean_run(kernel.variant) for kernel in workspace.kernels()}
    ns = {variant: median(run.times_ns or (0.0,)) * (run.launches or 0) for variant, run in runs.items()}
    total_ns = sum(ns.values())
    return tuple(variant for variant, run in runs.items() if not run.times_ns or ns[variant] >= _MIN_SHARE * total_ns)


def drop_launches(workspace: Workspace, capture: Path) -> None:
    """Remove the launches that the run of a capture saved, and the builds for them."""
    shutil.rmtree(workspace.launches_folder(capture), ignore_errors=True)
    with suppress(OSError):
        workspace.launches_folder(capture).parent.rmdir()
    drop_builds(workspace)


def drop_builds(workspace: Workspace) -> None:
    """Remove the builds with which saved launches were repeated."""
    shutil.rmtree(workspace.recorded_builds_folder, ignore_errors=True)


def finish_launches(workspace: Workspace, capture: Path, say: Say) -> None:
    """Compress and report the launches that the run of a capture saved."""
    saved = sorted(path.parent for path in workspace.launches_folder(capture).glob(f"*/{SAVED_LAUNCH_FILE}"))
    for launch in saved:
        compress(launch)
    if saved:
        say(f"saved {counted(len(saved), 'launch')}; look at one: kprof-inject launch info {saved[0]}")


class _Replay:
    """A kernel of a capture's process, to be timed by a saved launch."""

    def __init__(self, files: ProcessFiles, variant: str, kernel: KernelRecord, launch: Path) -> None:
        self.files = files
        self.variant = variant
        self.kernel = kernel
        self.launch = launch

    def save(self, result: TaskResult) -> None:
        """Add the result to the kernel's times in the capture."""
        timing = _timing_of(self.files, self.variant)
        changed = replace(timing, replay=result.replay, not_replayed=result.refusal or None)
        self.files.write(_timing_name(self.variant), changed)


def add_replays(workspace: Workspace, capture: Path, reports: Reports, choice: ReplayChoice, say: Say) -> None:
    """Repeat the launches that a run has saved, with and without records, and add their times to the capture.

    Reports what goes wrong: the capture is useful without these times.
    """
    try:
        _add_replays(workspace, capture, reports, choice, say)
    except OSError as error:
        say(f"cannot time saved launches: {error.strerror}")


def _add_replays(workspace: Workspace, capture: Path, reports: Reports, choice: ReplayChoice, say: Say) -> None:
    refusals = [note for note in reports.saved_launches if note.refusal]
    for kernel, refusal in dict.fromkeys((note.kernel, note.refusal) for note in refusals):
        say(f"no launch of {kernel} was saved, because {refusal}")
    if choice.only != ():
        for note in refusals:
            _note_refusal(capture, note.variant, f"no launch of it was saved: {note.refusal}")
    replays = list(_replays(workspace, capture)) if choice.only != () else []
    if replays:
        _time_again(replays, workspace, choice, say)


def _time_again(replays: Sequence[_Replay], workspace: Workspace, choice: ReplayChoice, say: Say) -> None:
    say(f"repeating {counted(len(replays), 'saved launch')} to time the records: {_names(replays)}")
    tasks = [
        TimeRecords(
            launch=str(replay.launch.resolve()),
            build=str((workspace.recorded_builds_folder / replay.variant).resolve()),
            kernel=replay.kernel,
            seconds=KERNEL_SECONDS,
            times=choice.times,
        )
        for replay in replays
    ]
    executable = replays[0].files.process.executable
    results = do_tasks(tasks, executable, workspace.cache_folder_of_rerun("launches"))
    for replay, result in zip(replays, results, strict=True):
        replay.save(result)
        if result.refusal:
            say(f"{replay.kernel.name} could not be timed again: {result.refusal}")


def _names(replays: Sequence[_Replay]) -> str:
    return listed(list(dict.fromkeys(replay.kernel.name for replay in replays)), _MAX_NAMES)


def _replays(workspace: Workspace, capture: Path) -> Iterator[_Replay]:
    """Yield the kernels of a capture of which a launch was saved."""
    for files, variant, kernel in _kernels_in(capture):
        name = f"{kernel.program_variant}-{files.process.pid}{SAVED_LAUNCH_ENDING}"
        launch = workspace.launches_folder(capture) / name
        if is_saved_launch(launch) and (workspace.recorded_builds_folder / variant).is_dir():
            yield _Replay(files, variant, kernel, launch)


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


def saved_launches_of(workspace: Workspace, capture: Path) -> dict[str, Path]:
    """Return a launch of each variant that was saved in the run of a capture."""
    launches: dict[str, Path] = {}
    for path in sorted(workspace.launches_folder(capture).glob(f"*{SAVED_LAUNCH_ENDING}")):
        if is_saved_launch(path):
            launches.setdefault(path.name.removesuffix(SAVED_LAUNCH_ENDING).rpartition("-")[0], path)
    return launches


def saved_launch_at(words: Sequence[str], kernel_glob: str) -> SavedLaunch | None:
    """Return the saved launch that a command names in place of a program; None if it names a program.

    Raises ``KprofError`` if it is damaged, or if its kernel does not match ``kernel_glob``.
    """
    if len(words) != 1 or not names_saved_launch(Path(words[0])):
        return None
    saved = read_saved_launch(Path(words[0]))
    if not fnmatchcase(saved.record.name, kernel_glob):
        raise KprofError(f"{words[0]} is a launch of {saved.record.name}, not of {kernel_glob}", hint="omit --kernel")
    return saved


def captured(saved: SavedLaunch, launches: str, say: Say) -> Path:
    """Return a temporary workspace with a capture of a saved launch; ``launches`` is as in ``run``.

    Raises ``KprofError``.
    """
    folder = Path(tempfile.mkdtemp(prefix="kprof-launch-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    workspace = Workspace.begin(folder)
    saved = adopt(workspace, saved, say)
    write_insertions(workspace, insert_kernels(workspace, ()))
    capture_launch(workspace, saved, LaunchChoice(parse_launches(launches)), Mode(), say)
    return folder


def adopt(workspace: Workspace, saved: SavedLaunch, say: Say) -> SavedLaunch:
    """Replace the workspace's kernels by that of a saved launch, as ``dump`` would, and return the launch.

    If another version of Triton saved it, the kernel is compiled again. Raises ``KprofError``.
    """
    if installed_version_of("triton") not in ("", saved.record.triton):
        saved = _recompiled(workspace, saved, say)
    with workspace.results_replaced():
        folder = workspace.kernels_folder / saved.record.variant
        folder.mkdir(parents=True)
        for name in saved.record.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(saved.folder / name, folder / name)
    return saved


def _recompiled(workspace: Workspace, saved: SavedLaunch, say: Say) -> SavedLaunch:
    say(f"compiling {saved.record.name} again, which Triton {saved.record.triton} compiled before")
    folder = workspace.recompiled_launch_folder
    task = RecompileLaunch(launch=str(saved.folder.resolve()), folder=str(folder.resolve()))
    (result,) = do_tasks([task])
    if result.refusal:
        raise KprofError(f"{saved.record.name} cannot be compiled again: {result.refusal}")
    return read_saved_launch(folder)


def adopted(workspace: Workspace, saved: SavedLaunch) -> SavedLaunch:
    """Return the launch that ``adopt`` returned for a saved launch. Raises ``KprofError`` if it was not adopted."""
    if saved.record.variant not in [kernel.variant for kernel in workspace.kernels()]:
        raise KprofError(f"{workspace.folder} was not made from {saved.folder}", hint="dump the launch first")
    if workspace.kernel(saved.record.variant).info.triton_version != saved.record.triton:
        return read_saved_launch(workspace.recompiled_launch_folder)
    return saved


def capture_launch(
    workspace: Workspace, saved: SavedLaunch, choice: LaunchChoice, mode: Mode, say: Say, made_by: str = ""
) -> Path:
    """Launch a saved launch with the planned records, as ``run`` has a program do it; return the capture's folder.

    Raises ``KprofError`` if nothing was captured.
    """
    times = _times_for(choice.launches)
    folder = workspace.new_capture_folder()
    reports_folder = workspace.new_reports_folder("run")
    session = Session(
        "run",
        str(workspace.folder.resolve()),
        str(reports_folder.resolve()),
        capture=str(folder.resolve()),
        made_by=made_by,
        launches=choice.launches.text,
        max_bytes=choice.max_bytes,
        max_launches=choice.max_launches,
        saved=SavedLaunches((saved.record.variant,)),
        mode=mode,
    )
    session.write()
    task = CaptureLaunch(launch=str(saved.folder.resolve()), session=str(session.path), times=times)
    try:
        (result,) = do_tasks([task], cache=workspace.cache_folder_of_rerun("launches"))
    finally:
        workspace.forget_if_empty(folder)
    reports = read_reports(reports_folder)
    left_alone = [state.reason for state in reports.kernels if state.state == "left alone"]
    if reason := result.refusal or (left_alone[0] if left_alone else ""):
        raise KprofError(f"{saved.record.name} was not recorded: {reason}")
    say(f"captured to {folder}" + (f", {l2}" if (l2 := l2_in_words(result.l2)) else ""))
    if choice.replays.only != ():
        for files, variant, kernel in _kernels_in(folder):
            _time_again([_Replay(files, variant, kernel, saved.folder)], workspace, choice.replays, say)
    for message in add_record_costs(workspace, folder):
        say(message)
    drop_launches(workspace, folder)
    return folder


def _times_for(launches: LaunchFilter) -> int:
    """Return how often to repeat a launch so that the filter keeps some.

    Raises ``KprofError`` if that is too often.
    """
    times = launches.stop if launches.stop is not None else launches.first + _LAUNCHES
    if times > MAX_TIMES:
        raise KprofError(
            f"--launches {launches.text} needs {times} launches, and a saved one is repeated at most {MAX_TIMES} times",
            hint="leave it out: all of them do the same",
            exit_code=2,
        )
    return times
