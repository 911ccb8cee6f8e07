"""What each process of the program says of one step over it: a file, which is read when all is over."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from kprof_inject.capture.encoding import decode, encode
from kprof_inject.capture.schema import MAX_TEXT_BYTES
from kprof_inject.errors import printable
from kprof_inject.files import read_regular, write_bytes
from kprof_inject.runtime.children import UNREACHED_ENDING
from kprof_inject.runtime.faults import first_line, say
from kprof_inject.runtime.process_events import Guarded
from kprof_inject.workspace import is_running


@dataclass(frozen=True, slots=True)
class AutotunerChoice:
    """What an autotuner chose for the arguments that ``key`` stands for."""

    kernel: str
    key: str
    config: str


@dataclass(frozen=True, slots=True)
class ReplayNote:
    """A kernel that was launched again to be timed, which took ``seconds``; or was not, for a reason in words that
    follow *because*."""

    kernel: str
    seconds: float
    refusal: str


class _KernelRecord(Struct, frozen=True):
    """See ``KernelState``; a report has it by the name of the variant."""

    name: str
    state: str
    reason: str


class _ReportRecord(Struct, frozen=True, kw_only=True):
    """The file of one process."""

    pid: int
    argv: list[str]
    triton_version: str
    gpu: bool | None
    kernels: dict[str, _KernelRecord]
    choices: list[AutotunerChoice]
    replays: list[ReplayNote]
    errors: list[str]
    launches: int
    saved: int
    ended: bool


class ProcessReport:
    """What one process of the program says about itself: a small JSON file, rewritten as things happen.

    Safe to use from several threads, and in a child made by ``fork``."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._started_ns = time.time_ns()
        self._changes = 0
        self._kernels: dict[str, _KernelRecord] = {}
        self._choices: list[AutotunerChoice] = []
        self._replays: list[ReplayNote] = []
        self._errors: list[str] = []
        self._refused = False
        self.triton_version = ""
        self.gpu: bool | None = None
        self._launches, self._saved = 0, 0
        self._has_ended = False
        self._written_by = 0

    def add_kernel(self, variant: str, name: str, state: str, reason: str = "") -> None:
        """``state`` is ``dumped``, ``passed over`` by ``--kernel``, ``instrumented``, ``left alone`` for a reason."""
        self._kernels[variant] = _KernelRecord(name, state, reason)
        self.write()

    def add_choice(self, kernel: str, key: str, config: str) -> None:
        """What an autotuner chose for a kernel, for the arguments that ``key`` stands for."""
        self._choices.append(AutotunerChoice(kernel, key, config))
        self.write()

    def add_replay(self, kernel: str, seconds: float, refusal: str = "") -> None:
        """A kernel was launched again to be timed, or was not, because ``refusal``."""
        self._replays.append(ReplayNote(kernel, seconds, refusal))
        self.write()

    def note_launches(self, launches: int, saved: int) -> None:
        """How many launches with records were made so far, and how many of them were written to the disk."""
        self._launches, self._saved = launches, saved
        self.write()

    def forget_launches(self) -> None:
        """Those were the parent's: this is a forked child."""
        self._launches, self._saved = 0, 0

    def note_end(self) -> None:
        """All that the process had to save is saved. A forked child that had nothing to say of itself says nothing."""
        self._has_ended = True
        if self._written_by == os.getpid():
            self.write()

    def note_resumed(self) -> None:
        """It did not end after all."""
        self._has_ended = False
        self.write()

    def guard(self, doing: str) -> AbstractContextManager[None, bool]:
        """Keep a failure of ours from reaching the program; it is reported instead."""
        return Guarded(functools.partial(self._add_error, doing))

    def _add_error(self, doing: str, error: Exception) -> None:
        self._errors.append(f"{doing}: {type(error).__name__}: {first_line(error)}")
        self.write()

    def write(self) -> None:
        """Never raises: a full disk must not stop the program."""
        self._changes += 1
        self._written_by = os.getpid()
        while True:
            changes = self._changes
            self._write_once()
            if self._changes == changes:
                return  # else another thread knew more, and may have written before us

    def _write_once(self) -> None:
        record = _ReportRecord(
            pid=os.getpid(),
            argv=list(getattr(sys, "argv", ())) or list(sys.orig_argv),
            triton_version=self.triton_version,
            gpu=self.gpu,
            kernels=self._kernels.copy(),
            choices=self._choices.copy(),
            replays=self._replays.copy(),
            errors=self._errors.copy(),
            launches=self._launches,
            saved=self._saved,
            ended=self._has_ended,
        )
        try:
            write_bytes(self._folder / f"{os.getpid()}-{self._started_ns}.json", encode(record) + b"\n")
        except OSError as error:
            if not self._refused:
                self._refused = True
                say(f"cannot report: {error}")


@dataclass(frozen=True, slots=True)
class KernelState:
    """What became of one variant in one process."""

    variant: str
    name: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnfinishedProcess:
    """A process that launched with records, and did not say that it saved what it had.

    ``launches`` it had made when it last reported, and ``saved`` of them were on the disk."""

    pid: int
    launches: int
    saved: int
    is_running: bool

    def __str__(self) -> str:
        if self.is_running:
            return (
                f"process {self.pid} is still running: {self.saved} of its launches with records are saved so far, and "
                "the capture gets the rest when it ends"
            )
        return (
            f"process {self.pid} was killed before it had saved everything: {self.saved} of at least {self.launches} "
            "launches with records were saved"
        )


@dataclass(frozen=True, slots=True)
class Reports:
    """All processes of one step together. ``unreached`` are commands of Python processes that started without us."""

    joined: bool
    unreached: tuple[str, ...]
    triton_versions: frozenset[str]
    gpu: bool | None
    kernels: tuple[KernelState, ...]
    choices: tuple[AutotunerChoice, ...]
    replays: tuple[ReplayNote, ...]
    errors: tuple[str, ...]
    unfinished: tuple[UnfinishedProcess, ...] = ()


def read_reports(folder: Path) -> Reports:
    """Merge what the processes wrote. ``gpu`` is None if none could tell.

    One that never imported Triton has left an empty file, PID.joined, and no report."""
    records = [
        decode(read_regular(path, MAX_TEXT_BYTES, folder), _ReportRecord, str(path), "run it again")
        for path in sorted(folder.glob("*.json"))
    ]
    seen = [record.gpu for record in records if record.gpu is not None]
    kernels = {
        (variant, kernel.state): KernelState(variant, kernel.name, kernel.state, kernel.reason)
        for record in records
        for variant, kernel in record.kernels.items()
    }
    return Reports(
        bool(records) or any(folder.glob("*.joined")),
        tuple(dict.fromkeys(_unreached(folder))),
        frozenset(record.triton_version for record in records if record.triton_version),
        any(seen) if seen else None,
        tuple(kernels.values()),
        tuple(dict.fromkeys(choice for record in records for choice in record.choices)),
        tuple(replay for record in records for replay in record.replays),
        tuple(error for record in records for error in record.errors),
        tuple(
            UnfinishedProcess(record.pid, record.launches, record.saved, is_running(record.pid))
            for record in records
            if record.launches and not record.ended
        ),
    )


def _unreached(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob(f"*{UNREACHED_ENDING}")):
        yield from map(printable, path.read_text(errors="replace").splitlines())
