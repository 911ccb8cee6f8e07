"""Save launches of a program, and repeat them when the program has ended."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Container, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace

from kprof_inject.capture.recording import Recording
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
from kprof_inject.pipeline.launch_measurements import measure_capture, with_permitted_metrics
from kprof_inject.pipeline.workers import do_tasks
from kprof_inject.quantities import counted
from kprof_inject.report.notes import l2_in_words
from kprof_inject.runtime.compiling.builds import require_own_files
from kprof_inject.runtime.process_report import read_reports
from kprof_inject.runtime.program import require_startable
from kprof_inject.runtime.session import SavedLaunches, Session
from kprof_inject.runtime.worker.tasks import MAX_TIMES, CaptureLaunch
from kprof_inject.workspace import Workspace

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


def keep_launches_of(workspace: Workspace, capture: Path, variants: Container[str]) -> None:
    """Remove the launches of other variants that the run of a capture saved."""
    for path in workspace.launches_folder(capture).glob(f"*{SAVED_LAUNCH_ENDING}"):
        if _variant_in(path) not in variants:
            shutil.rmtree(path, ignore_errors=True)


def _variant_in(saved_launch: Path) -> str:
    """Return the variant in the name of a saved launch, which also has the process's id."""
    return saved_launch.name.removesuffix(SAVED_LAUNCH_ENDING).rpartition("-")[0]


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
    try:
        (result,) = do_tasks([task], cache=workspace.cache_folder_of_rerun("launches"))
    finally:
        workspace.forget_if_empty(folder)
    reports = read_reports(reports_folder)
    left_alone = [state.reason for state in reports.kernels if state.state == "left alone"]
    if reason := result.refusal or (left_alone[0] if left_alone else ""):
        raise KprofError(f"{saved.record.name} was not recorded: {reason}")
    say(f"captured to {folder}" + (f", {l2}" if (l2 := l2_in_words(result.l2)) else ""))
    measure_capture(workspace, folder, with_permitted_metrics(recording, say), say, saved.folder)
    drop_launches(workspace, folder)
    return folder
