"""``kprof_inject.profile``: dump, insert, run and decode in one process, for notebooks and test suites."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import msgspec

from kprof_inject.capture.encoding import converted
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.reader import is_capture, read_capture
from kprof_inject.capture.recording import Recording
from kprof_inject.errors import KprofError
from kprof_inject.insertion import Inserter
from kprof_inject.pipeline.saved_launches import drop_launches, launches_to_save, measure_run, with_permitted_metrics
from kprof_inject.pipeline.workers import worker_process
from kprof_inject.quantities import listed
from kprof_inject.results import Results
from kprof_inject.runtime.process_report import ProcessReport, read_reports
from kprof_inject.runtime.session import SESSION_VARIABLE, Session
from kprof_inject.select.selectors import Selector, parse_selectors
from kprof_inject.select.spans import Style
from kprof_inject.timeline.timeline import Timeline, decode_launch
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import held

if TYPE_CHECKING:
    from kprof_inject.runtime.step import LiveCapture


_MAX_NAMES = 12

_in_use = threading.Lock()  # held while a profile runs, because a process has only one compiler

_entered_for = ""  # the environment variable that started a profile of this process; that profile ends with the process


class Profile(Results):
    """A profile of the kernels that are launched in a ``with`` block, each recorded from its first compilation there.

    The launches so far can be read at any time, in the block and after it. Kernels that Inductor compiled before the
    block are not recorded.
    """

    def __init__(self, session: Session, inserter: Inserter, folder: Path) -> None:
        """Prepare a profile; ``profile`` and ``profile_as`` do this."""
        super().__init__()
        self._session = session
        self._inserter = inserter
        self._folder, self._reports = folder, Path(session.reports)
        self._running = ExitStack()
        self._capture: LiveCapture | None = None
        self._enabled = True

    def __enter__(self) -> Profile:
        """Start to record. Raises ``KprofError`` if another profile, or kprof-inject itself, runs in this process."""
        if os.environ.get(SESSION_VARIABLE):
            hint = "start the program without kprof-inject, or take kprof_inject.profile out of it"
            raise KprofError("kprof-inject is already running this program", hint=hint)
        if not _in_use.acquire(blocking=False):
            if _entered_for:
                hint = f"unset {_entered_for}, or take kprof_inject.profile out of the program"
                raise KprofError(f"{_entered_for} already profiles this process", hint=hint)
            raise KprofError("another profile is already running", hint="profile one block at a time")
        try:
            from kprof_inject.runtime.step import live

            with ExitStack() as entered:
                entered.enter_context(held(self._folder, warnings.warn))
                report = ProcessReport(self._session.reports)
                self._capture = entered.enter_context(live(self._session, report, self._inserter))
                self._running = entered.pop_all()
        except BaseException:
            _in_use.release()
            raise
        self._capture.enabled = self._enabled
        return self

    def entered_for(self, variable: str) -> Profile:
        """Start to record for an environment variable, which the error for any further profile names."""
        global _entered_for
        self.__enter__()
        _entered_for = variable
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._collect()
        finally:
            self._capture = None
            _in_use.release()
            self._running.close()

    @property
    def enabled(self) -> bool:
        """True if launches are recorded; otherwise they run without records."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._enabled = value
        if self._capture is not None:
            self._capture.enabled = value

    @property
    def timelines(self) -> list[Timeline]:
        """The captured launches in the order in which they were made. Waits for the device."""
        self._collect()
        return list(self._timelines)

    @property
    def left_alone(self) -> dict[str, str]:
        """The reasons why kernels ran without records, by the kernels' names."""
        kernels = read_reports(self._reports).kernels
        return {kernel.name: kernel.reason for kernel in kernels if kernel.state == "left alone"}

    @property
    def passed_over(self) -> list[str]:
        """The names of the kernels that ``kernel`` did not match."""
        kernels = read_reports(self._reports).kernels
        return sorted({kernel.name for kernel in kernels if kernel.state == "passed over"})

    def reset(self) -> None:
        """Forget all launches so far."""
        self._collect()
        self._timelines.clear()

    def _collect(self) -> None:
        if self._capture is None:
            return
        folder = self._capture.take()
        if not is_capture(folder):
            return
        # A worker repeats the launches that were saved meanwhile.
        workspace, reports = Workspace(self._folder), read_reports(self._reports)
        recording = with_permitted_metrics(self._session.recording, _nothing)
        with worker_process(cache=workspace.cache_folder_of_rerun("launches")) as worker:
            measure_run(workspace, folder, reports, recording, _nothing, worker)
        if not self._session.recording.keep_launches:
            drop_launches(workspace, folder)
        fresh = [decode_launch(launch) for launch in read_capture(folder).launches]
        if self._session.recording.filter.replaces:
            variants = {timeline.launch.kernel.variant for timeline in fresh}
            self._timelines = [old for old in self._timelines if old.launch.kernel.variant not in variants]
        self._timelines += fresh

    def _nothing_kept(self) -> KprofError:
        errors = read_reports(self._reports).errors
        reasons = "; ".join([*(f"{name}: {reason}" for name, reason in self.left_alone.items()), *errors])
        if not reasons and (others := self.passed_over):
            kernel = self._session.recording.kernel
            reasons = f"no kernel matches {kernel!r}; the kernels are {listed(others, _MAX_NAMES)}"
        return KprofError(
            f"no launch was recorded{f': {reasons}' if reasons else ''}",
            hint="launch a Triton kernel inside the context, one that at= and kernel= select",
        )


def profile(
    at: str | Sequence[str] = (),
    *,
    kernel: str = "*",
    split: Literal["never", "runs"] = "never",
    iter_records: Literal["one", "two"] = "one",
    launches: str | int = "last",
    max_launches: int = 0,
    max_bytes: int = 1 << 30,
    ctas: str = "auto",
    replay: int | None = None,
    counters: str = "default",
    mode: Mode = Mode("auto"),  # noqa: B008 (frozen)
    folder: str | Path | None = None,
) -> Profile:
    """Profile the launches in a ``with`` block.

    The arguments have the meaning of the options of ``kprof-inject profile``; ``at`` is one selector or several.
    ``replay`` None replays every kernel to time it, because there is no run without records to compare with; 0 replays
    none. ``counters`` are read only where that is permitted. ``folder`` keeps the dumped kernels and the raw buffers,
    and serves one block at a time; without it they are in a temporary folder until the process ends. Raises
    ``KprofError`` for invalid arguments, and for a folder that is in use.

        with kprof_inject.profile(at=["func", "loop"]) as prof:
            kernel[grid](x, y)
        prof.export("trace.json")
    """
    given = {
        "kernel": kernel,
        "launches": str(launches),
        "max_launches": max_launches,
        "max_bytes": max_bytes,
        "ctas": ctas,
        "replay": replay,
        "counters": counters,
        "mode": msgspec.structs.asdict(mode) if isinstance(mode, Mode) else mode,
    }
    recording = converted(given, Recording, "profile", "help(kprof_inject.profile) says what it takes")
    selectors, style = parse_selectors((at,) if isinstance(at, str) else tuple(at)), Style(split, iter_records)
    if folder is None:
        folder = tempfile.mkdtemp(prefix="kprof-inject-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # The program may change its own folder before it enters the block.
    return profile_as(selectors, style, recording, Path(folder).absolute())


def profile_as(selectors: Sequence[Selector], style: Style, recording: Recording, folder: Path) -> Profile:
    """Profile with arguments that have been parsed.

    Raises ``KprofError`` for a folder that is in use, and for choices that exclude each other.
    """
    recording.mode.require_tags_kept(any(selector.tags for selector in selectors))
    with held(folder, warnings.warn):
        workspace = Workspace.create(folder)
        reports_folder = workspace.new_reports_folder("run")
    variants = None if recording.keep_launches else recording.variants_to_replay
    saved = launches_to_save(workspace, workspace.folder, recording, variants)
    folders = str(workspace.folder.resolve()), str(reports_folder.resolve())
    session = Session("run", *folders, recording, saved=saved)
    style = style.for_mode(recording.mode)
    words = style.split, style.iteration_records
    inserter = Inserter([selector.text for selector in selectors], words, is_by_program=True)
    return Profile(session, inserter, workspace.folder)


def _nothing(message: str) -> None:
    pass
