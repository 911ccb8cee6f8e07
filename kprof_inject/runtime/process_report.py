"""Report files: each process of the program writes one during a step, and we read them all at its end."""

from __future__ import annotations

import functools
import os
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from kprof_inject.capture.encoding import decode, encode
from kprof_inject.capture.schema import MAX_TEXT_BYTES
from kprof_inject.errors import printable
from kprof_inject.files import read_regular, write_bytes
from kprof_inject.quantities import counted
from kprof_inject.runtime.children import UNREACHED_ENDING
from kprof_inject.runtime.faults import first_line, say
from kprof_inject.runtime.process_events import Guarded
from kprof_inject.workspace import is_running


@dataclass(frozen=True, slots=True)
class AutotunerChoice:
    """An autotuner's choice for the arguments that ``key`` represents."""

    kernel: str
    key: str
    config: str


@dataclass(frozen=True, slots=True)
class SavedLaunchNote:
    """A kernel of which a launch was saved, or the reason why none was, in words that follow *because*."""

    variant: str
    kernel: str
    refusal: str


@dataclass(frozen=True, slots=True)
class KernelState:
    """State of one variant in one process; ``ProcessReport.add_kernel`` lists the states."""

    variant: str
    name: str
    state: str
    reason: str


class _ReportRecord(Struct, kw_only=True):
    pid: int = 0
    argv: list[str] = []
    triton_version: str = ""
    gpu: bool | None = None
    kernels: dict[str, KernelState] = {}
    choices: list[AutotunerChoice] = []
    saved_launches: list[SavedLaunchNote] = []
    errors: list[str] = []
    launches: int = 0
    saved: int = 0
    ended: bool = False


class ProcessReport:
    """Report of one process of the program: a small JSON file in ``folder``, rewritten at each change.

    It is safe to use from several threads, and in a child made by ``fork``.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._started_ns = time.time_ns()
        self._record = _ReportRecord()
        self._changes = 0
        self._refused = False

    def note_triton(self, version: str) -> None:
        """Note that the process imported this version of Triton."""
        self._record.triton_version = version
        self.write()

    def note_gpu(self, has_gpu: bool) -> None:
        """Note whether torch sees a GPU."""
        self._record.gpu = has_gpu
        self.write()

    def add_kernel(self, variant: str, name: str, state: str, reason: str = "") -> None:
        """Set the state of a variant.

        ``state`` is ``dumped``, ``passed over`` (by ``--kernel``), ``instrumented``, or ``left alone`` with a reason.
        """
        self._record.kernels[variant] = KernelState(variant, name, state, reason)
        self.write()

    def add_choice(self, kernel: str, key: str, config: str) -> None:
        """Add an autotuner's choice for a kernel and the arguments that ``key`` represents."""
        self._record.choices.append(AutotunerChoice(kernel, key, config))
        self.write()

    def add_saved_launch(self, variant: str, kernel: str, refusal: str = "") -> None:
        """Add a kernel of which a launch was saved, or was not because of ``refusal``."""
        self._record.saved_launches.append(SavedLaunchNote(variant, kernel, refusal))
        self.write()

    def note_launches(self, launches: int, saved: int) -> None:
        """Set how many launches with records were made so far, and how many of them are on disk."""
        self._record.launches, self._record.saved = launches, saved
        self.write()

    def forget_launches(self) -> None:
        """Reset the counts of launches in a forked child, whose parent made them."""
        self._record.launches, self._record.saved = 0, 0

    def note_end(self) -> None:
        """Note that the process has saved everything. A forked child that has not written a report writes none."""
        self._record.ended = True
        if self._record.pid == os.getpid():
            self.write()

    def guard(self, doing: str) -> AbstractContextManager[None, bool]:
        """Return a context that reports our own failures instead of letting them reach the program."""
        return Guarded(functools.partial(self._add_error, doing))

    def _add_error(self, doing: str, error: Exception) -> None:
        self._record.errors.append(f"{doing}: {type(error).__name__}: {first_line(error)}")
        self.write()

    def write(self) -> None:
        """Write the file. Never raises, because a full disk must not stop the program."""
        self._changes += 1
        while True:
            changes = self._changes
            self._record.pid = os.getpid()
            self._record.argv = list(getattr(sys, "argv", ())) or list(sys.orig_argv)
            # msgspec runs no Python code, so no thread or signal handler changes the record meanwhile.
            data = encode(self._record) + b"\n"
            try:
                write_bytes(self._folder / f"{os.getpid()}-{self._started_ns}.json", data)
            except OSError as error:
                if not self._refused:
                    self._refused = True
                    say(f"cannot write this process's report: {error}")
            if self._changes == changes:
                return  # else another thread changed the report, and may have written it before this write


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports of all processes of one step.

    ``joined`` is true if any process started with our hook. ``unreached`` has the commands of Python processes that
    started without it. ``unfinished`` has a message for each process that launched with records, but did not report
    that it saved them all.
    """

    joined: bool
    unreached: tuple[str, ...]
    triton_versions: frozenset[str]
    gpu: bool | None
    kernels: tuple[KernelState, ...]
    choices: tuple[AutotunerChoice, ...]
    saved_launches: tuple[SavedLaunchNote, ...]
    errors: tuple[str, ...]
    unfinished: tuple[str, ...] = ()


def read_reports(folder: Path) -> Reports:
    """Merge the reports in a folder. ``gpu`` is None if no process could determine it.

    A process that never imported Triton leaves no report, only an empty file PID.joined.
    """
    records = [
        decode(read_regular(path, MAX_TEXT_BYTES, folder), _ReportRecord, str(path), "run it again")
        for path in sorted(folder.glob("*.json"))
    ]
    unreached_paths = sorted(folder.glob(f"*{UNREACHED_ENDING}"))
    unreached = [line for path in unreached_paths for line in path.read_text(errors="replace").splitlines()]
    seen = [record.gpu for record in records if record.gpu is not None]
    kernels = {(kernel.variant, kernel.state): kernel for record in records for kernel in record.kernels.values()}
    return Reports(
        joined=bool(records) or any(folder.glob("*.joined")),
        unreached=tuple(dict.fromkeys(map(printable, unreached))),
        triton_versions=frozenset(record.triton_version for record in records if record.triton_version),
        gpu=any(seen) if seen else None,
        kernels=tuple(kernels.values()),
        choices=tuple(dict.fromkeys(choice for record in records for choice in record.choices)),
        saved_launches=tuple(note for record in records for note in record.saved_launches),
        errors=tuple(error for record in records for error in record.errors),
        unfinished=tuple(_unfinished(record) for record in records if record.launches and not record.ended),
    )


def _unfinished(record: _ReportRecord) -> str:
    if is_running(record.pid):
        return (
            f"process {record.pid} is still running, and has saved {counted(record.saved, 'launch')} with records so "
            "far; the capture gets the rest when it ends"
        )
    return (
        f"process {record.pid} was killed before it had saved everything: it saved {record.saved} of at least "
        f"{counted(record.launches, 'launch')} with records"
    )
