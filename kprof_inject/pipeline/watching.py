"""Watch a program: read the captures that it leaves while it runs, keep their history, and raise alarms."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from kprof_inject.capture.encoding import decode
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.schema import END_FILE, PROCESS_FILE
from kprof_inject.errors import KprofError
from kprof_inject.files import read_regular
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.captures import decode_capture
from kprof_inject.quantities import counted, short_time
from kprof_inject.runtime.launch.launch_choice import LaunchChoice, WatchChoice
from kprof_inject.runtime.process_report import read_reports
from kprof_inject.runtime.program import ProgramInput, programs_triton_cache, run_program
from kprof_inject.runtime.session import Session
from kprof_inject.select.spans import Style
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.watching.alarms import ALARM_FILE, COMPARISON_FILE, Alarm, Evidence
from kprof_inject.watching.history import History, HistoryRow, launch_row, rows_of
from kprof_inject.watching.metrics import MetricsFile, WatchState
from kprof_inject.watching.ring import KeptCapture, captures_to_drop
from kprof_inject.watching.slowdowns import Event, KernelPast, Sample
from kprof_inject.workspace import Workspace, is_running

_LOOK_EVERY_S = 1.0
_MAX_BEFORE = 12
"""Captures from before a slowdown that it is compared with."""
_MAX_KERNELS = 1000
"""Kernels with a past, each with one grid: a program may launch them with ever new grids."""
_MAX_ALARMS = 100
_PINNED_ALARMS = 3
"""The latest alarms, whose captures stay."""
_MAX_ALARM_BYTES = 1 << 20
_NICENESS = 10


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """A kernel is slower if it takes longer by more than ``slower``, a part of its time.

    The captures that are kept take at most ``max_bytes``.
    """

    slower: float = 0.05
    max_bytes: int = 256 << 20


DEFAULT_LIMITS = WatchLimits()


def watch_folder(workspace: Workspace) -> Path:
    """Return the folder with the history, the metrics and the alarms."""
    return workspace.folder / "watch"


def request_file(workspace: Workspace) -> Path:
    """Return the file that requests a capture at once when it is touched."""
    return watch_folder(workspace).resolve() / "capture-now"


def watch_session(
    workspace: Workspace,
    reports_folder: Path,
    choice: LaunchChoice,
    mode: Mode,
    selectors: Sequence[str],
    style: Style,
    watch: WatchChoice,
) -> Session:
    """Return the session of a watched program."""
    return Session(
        "watch",
        str(workspace.folder.resolve()),
        str(reports_folder.resolve()),
        kernel=choice.kernel,
        launches="all",
        made_by="watch",
        max_bytes=choice.max_bytes,
        ctas=choice.ctas,
        mode=mode,
        selectors=tuple(selectors),
        style=style.words,
        watch=replace(watch, request_file=str(request_file(workspace))),
    )


def watch_program(
    workspace: Workspace,
    session: Session,
    limits: WatchLimits,
    program: Sequence[str],
    program_input: ProgramInput,
    say: Say,
) -> tuple[int, int]:
    """Run a program and watch it; return the exit code and the number of alarms.

    The exit code is the program's, or 1 if that is 0 and the watch itself has failed.
    """
    session = replace(session, programs_cache=str(programs_triton_cache(os.environ)))
    observer = Observer(workspace, Path(session.reports), limits, say)
    requests = request_file(workspace)
    say(f"watching; for a capture at once: kill -USR2 {os.getpid()}, or: touch {quote(str(requests))}")
    with _requests_by_signal(requests), observer.running():
        exit_code = run_program(program, session, workspace.kept_cache_folder, program_input)
    _say_cost(Path(session.reports), say)
    return exit_code or int(observer.has_failed), observer.alarms


def follow_workspace(workspace: Workspace, reports_folder: Path, limits: WatchLimits, say: Say) -> int:
    """Watch what programs leave in a workspace, until Ctrl-C; return the number of alarms."""
    observer = Observer(workspace, reports_folder, limits, say)
    say(f"following {workspace.folder}; Ctrl-C ends this")
    with _requests_by_signal(request_file(workspace)), suppress(KeyboardInterrupt):
        while True:
            observer.look()
            time.sleep(_LOOK_EVERY_S)
    return observer.alarms


def _say_cost(reports_folder: Path, say: Say) -> None:
    reports = read_reports(reports_folder)
    for state in reports.kernels:
        if state.state == "left alone":
            say(f"{state.name} was not watched: {state.reason}")
    for error in reports.errors:
        say(error)
    if not reports.watched:
        say("no launch was recorded: the program launched no Triton kernel, or only a few at its start")
    for note in reports.watched:
        part = 100 * note.spent_s / max(note.seconds, 1e-9)
        say(
            f"{counted(note.captures, 'capture')} took {note.spent_s:.3f} s of {note.seconds:.0f} s ({part:.3f} %); "
            f"preparing the kernels took {note.prepared_s:.1f} s of a thread"
        )


@contextmanager
def _requests_by_signal(file: Path) -> Iterator[None]:
    """Request a capture at each SIGUSR2."""

    def touch(*_: object) -> None:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

    before = signal.signal(signal.SIGUSR2, touch)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR2, before)


class Observer:
    """Reader of the captures of a watched program, which continues the history of its workspace."""

    def __init__(self, workspace: Workspace, reports_folder: Path, limits: WatchLimits, say: Say) -> None:
        """Read the history. Raises ``KprofError`` if a package is missing."""
        self._workspace = workspace
        self._reports_folder = reports_folder
        self._limits = limits
        self._say = say
        self._folder = watch_folder(workspace)
        self._history = History(self._folder / "history", platform.node())
        self._metrics = MetricsFile(self._folder / "metrics.prom")
        self._pasts: dict[tuple[str, ...], KernelPast] = {}
        self._latest: dict[tuple[str, ...], list[HistoryRow]] = {}
        self._sizes: dict[str, int] = {}
        self._captures = 0
        self.alarms = 0
        """Alarms raised since the beginning."""
        self.has_failed = False
        """True if an error that is ours has ended the watch."""
        self._reported: set[str] = set()
        self._stop = threading.Event()
        known: set[tuple[str, int]] = set()
        for row in self._history.launches():
            self._past(row).add(_sample(row))
            known.add((row.capture, row.pid))
        # If the captures were removed, their numbers are used again. Those that a killed program left incomplete stay
        # incomplete.
        self._read_captures = {
            path.name
            for path in self._workspace.capture_folders()
            if not _is_complete(path) or all((path.name, pid) in known for pid in _pids_in(path))
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look every second in a thread, and once more at the end."""
        thread = threading.Thread(target=self._work, name="observer", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _work(self) -> None:
        with suppress(OSError, AttributeError):  # on Linux, each thread has its own priority
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        try:
            while not self._stop.wait(_LOOK_EVERY_S):
                self.look()
            self.look()
        except Exception as error:  # noqa: BLE001 (the program goes on)
            self._say(f"not watching any more: {type(error).__name__}: {error}; please report this")
            self.has_failed = True

    def look(self) -> None:
        """Read the captures that are new, raise alarms, and remove captures for which there is no room.

        What the disk refuses is said once, and tried again with the next capture.
        """
        try:
            self._look()
        except (OSError, KprofError) as error:
            message = error.what if isinstance(error, KprofError) else _refused(error, self._folder)
            if message not in self._reported:
                self._reported.add(message)
                self._say(message)

    def _look(self) -> None:
        folders = self._workspace.capture_folders()
        self._read_captures &= {path.name for path in folders}
        new = [path for path in folders if path.name not in self._read_captures and _is_complete(path)]
        for folder in new:
            self._read_captures.add(folder.name)
            try:
                timelines = self._decoded(folder)
            except KprofError as error:
                self._say(f"skipped capture {folder.name}: {error.what}")
                continue
            self._captures += 1
            self._add(timelines)
        if new:
            self._remove_captures()
            self._write_metrics()

    def _decoded(self, folder: Path) -> list[Timeline]:
        return decode_capture(read_capture(folder), lambda _: None)

    def _add(self, timelines: Sequence[Timeline]) -> None:
        of_launches = [rows_of(timeline) for timeline in timelines]
        try:
            for rows in of_launches:
                past = self._past(rows[0])
                self._latest[rows[0].key] = rows
                event = past.add(_sample(rows[0]))
                if event is Event.SLOWER:
                    self._raise_alarm(rows[0], past)
                elif event is Event.USUAL_AGAIN:
                    self._say(f"{rows[0].kernel} {rows[0].grid} is as fast as usual again")
        finally:  # last, because a full disk must not keep an alarm from being raised
            self._history.append([row for rows in of_launches for row in rows], of_launches[0][0].time_ns)

    def _past(self, row: HistoryRow) -> KernelPast:
        past = self._pasts.pop(row.key, None) or KernelPast(self._limits.slower)
        self._pasts[row.key] = past  # the latest is the last
        while len(self._pasts) > _MAX_KERNELS:
            oldest = next(iter(self._pasts))
            self._pasts.pop(oldest)
            self._latest.pop(oldest, None)
        return past

    def _raise_alarm(self, row: HistoryRow, past: KernelPast) -> None:
        slowdown = past.slowdown
        if slowdown is None:
            return
        self.alarms += 1
        evidence = Evidence.of(self._launches_of(row, past.past, _MAX_BEFORE), self._launches_of(row, past.recent))
        alarm = Alarm.of(row, slowdown, evidence)
        folder = self._alarms_folder / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{self.alarms:03d}"
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alarm.since_ns / 1e9))
        self._say(
            f"slower: {row.kernel} {row.grid} takes {short_time(alarm.recent_ns)} since {since}, "
            f"usually {short_time(alarm.usual_ns)} (+{slowdown.percent:.1f} %)"
            + (f": {alarm.why}; more in {folder / COMPARISON_FILE}" if alarm.why else "")
        )
        alarm.save(folder, evidence)
        for path in sorted(self._alarms_folder.iterdir())[:-_MAX_ALARMS]:
            shutil.rmtree(path, ignore_errors=True)

    @property
    def _alarms_folder(self) -> Path:
        return self._folder / "alarms"

    def _launches_of(self, row: HistoryRow, samples: Sequence[Sample], most: int | None = None) -> list[Timeline]:
        """Return those of a kernel's launches that are on disk and can be read, at most ``most``, evenly spread."""
        folders = {path.name: path for path in self._workspace.capture_folders()}
        on_disk = [sample for sample in samples if sample.capture in folders]
        found: list[Timeline] = []
        for sample in _spread(on_disk, len(on_disk) if most is None else most):
            with suppress(KprofError):
                found += [
                    timeline
                    for timeline in self._decoded(folders[sample.capture])
                    if _is_sample(launch_row(timeline), row, sample)
                ]
        return found

    def _remove_captures(self) -> None:
        folders = {path.name: path for path in self._workspace.capture_folders() if path.name in self._read_captures}
        for name, path in folders.items():
            if name not in self._sizes:
                self._sizes[name] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        kept = [KeptCapture(name, path.stat().st_mtime, self._sizes[name]) for name, path in folders.items()]
        for name in captures_to_drop(kept, self._limits.max_bytes, set(self._needed()), time.time()):
            shutil.rmtree(folders.pop(name), ignore_errors=True)
        self._read_captures &= folders.keys()
        self._sizes = {name: size for name, size in self._sizes.items() if name in folders}

    def _needed(self) -> Iterator[str]:
        """Yield the captures of the latest alarms."""
        paths = sorted(self._alarms_folder.glob(f"*/{ALARM_FILE}"))[-_PINNED_ALARMS:]
        for path in paths:
            with suppress(OSError, KprofError):
                alarm = decode(read_regular(path, _MAX_ALARM_BYTES, self._folder), Alarm, str(path))
                yield from (*alarm.before, *alarm.after)

    def _write_metrics(self) -> None:
        notes = read_reports(self._reports_folder).watched if self._reports_folder.exists() else ()
        seconds = sum(note.seconds for note in notes)
        slowdown = sum(note.spent_s for note in notes) / seconds if seconds else None
        state = WatchState(self._latest, self._pasts, self._captures, self.alarms, slowdown)
        self._metrics.write(state)


def _refused(error: OSError, folder: Path) -> str:
    return f"cannot use {error.filename or folder}: {error.strerror}"


def _sample(row: HistoryRow) -> Sample:
    return Sample(row.time_ns, row.duration_ns, row.cycles, row.capture)


def _is_complete(folder: Path) -> bool:
    """Return whether every process has ended its part of a capture, or does not run any more."""
    parts = [path for path in folder.iterdir() if path.is_dir()]
    return bool(parts) and all((part / END_FILE).exists() or _is_abandoned(part) for part in parts)


def _is_abandoned(part: Path) -> bool:
    pid = _pid_of(part)
    return (part / PROCESS_FILE).exists() and pid is not None and not is_running(pid)


def _pids_in(folder: Path) -> list[int | None]:
    return [_pid_of(path) for path in folder.iterdir() if path.is_dir()]


def _pid_of(part: Path) -> int | None:
    """Return the process that wrote a part of a capture: its folder is called PID-TIME."""
    pid = part.name.partition("-")[0]
    return int(pid) if pid.isdecimal() else None


def _is_sample(found: HistoryRow, row: HistoryRow, sample: Sample) -> bool:
    """Return whether a launch is this sample of the row's kernel. The history has times in microseconds."""
    return found.key == row.key and found.time_ns // 1000 == sample.time_ns // 1000


def _spread(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Return at most ``most`` of the samples, evenly spread, the last one among them."""
    count = len(samples)
    if count <= most:
        return list(samples)
    return [samples[(number + 1) * count // most - 1] for number in range(most)]
