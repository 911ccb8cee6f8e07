"""Run Triton's compiler in a child process, and parse its messages on stderr.

On bad input the compiler may end its process, or never return.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from kprof_inject.errors import KprofError
from kprof_inject.runtime.child_process import ChildProcess, ProcessDiedError, serve
from kprof_inject.runtime.faults import flush_stderr, write_stderr
from kprof_inject.runtime.process_events import in_forked_child
from kprof_inject.ttgir.strings import POINT, unquote

_FALSE_ALARM = re.compile(
    rb".*error: The scope name '[^']*' (?:is not properly closed \(missing start record\)"
    rb"|is closed without being opened|is started without being closed|has duplicate end record|must appear in pairs)\n"
    rb"(?: *proton\.record (?:start|end) [^\n]*\n *\^\n)?"
)


@dataclass(slots=True, weakref_slot=True)
class HeldMessages:
    """Output to stderr so far, held in a file."""

    _file: IO[bytes] | None
    _stderr: int = -1

    def take(self) -> bytes:
        """Return the output, and drop it: it is not written to stderr."""
        if self._file is None:
            return b""
        self._file.seek(0)
        written = self._file.read()
        self._file.seek(0)
        self._file.truncate()
        return written

    def release_in_child(self) -> None:
        """Restore stderr in a forked child, whose parent writes the held output."""
        os.dup2(self._stderr, 2)


@contextmanager
def without_false_alarms() -> Iterator[HeldMessages]:
    """Hold back what any thread writes to stderr, and write it at the end without false alarms.

    MLIR writes to the file descriptor itself, so replacing Python's ``sys.stderr`` would not help.
    """
    try:
        held = tempfile.TemporaryFile()  # noqa: SIM115 (only this may fail)
    except OSError:  # a full disk: false alarms do less harm than a failure
        yield HeldMessages(None)
        return
    with held:
        flush_stderr()
        try:
            stderr = os.dup(2)
        except OSError:  # the program has no stderr
            yield HeldMessages(None)
            return
        messages = HeldMessages(held, stderr)
        in_forked_child(messages.release_in_child)
        os.dup2(held.fileno(), 2)
        try:
            yield messages
        finally:
            flush_stderr()
            os.dup2(stderr, 2)
            os.close(stderr)
            write_stderr(drop_false_alarms(messages.take()))


def drop_false_alarms(written: bytes) -> bytes:
    """Return what the compiler wrote to stderr, without false alarms and their excerpts.

    Proton's check of scopes looks at one block at a time. It takes the end of a scope in a second return block for an
    end without a start, and likewise the end of iterations after their loop. It prints an error and goes on; the
    machine code is right (the record gets an id of its own, and we match by name). A user would take the message for a
    failure.
    """
    return _FALSE_ALARM.sub(b"", written)


# MLIR writes ``loc("a.py":3:4): error: …``, also with nested locations, or ``a.py:3:4: error: …`` with a handler.
_MESSAGE = re.compile(
    r"(?:loc\((?P<location>.*?)\)|(?P<file>[^\s\"].*?):(?P<line>\d+):(?P<column>\d+)|<unknown>:0): "
    r"(?P<severity>error|warning|remark|note): (?P<text>.*)"
)
_NAMED_PLACE = re.compile(POINT)

# Lines that do not continue a message: of the module that MLIR prints after some messages, and of excerpts.
_NO_MESSAGE = re.compile(r"\s|$|[#!{}]|module\b|\"")
_MAX_MESSAGE_LINES = 4
_MAX_LAST_LINES = 5

# Says only that there was an earlier message.
_FOLLOW_UP = "Failures have been detected while processing an MLIR pass pipeline"


@dataclass(frozen=True, slots=True)
class Message:
    """Diagnostic of the compiler. ``file`` is empty if it named no location."""

    severity: str
    text: str
    file: str = ""
    line: int = 0
    column: int = 0


def errors_in(written: bytes) -> list[Message]:
    """Return the errors in what the compiler wrote, without Proton's false alarms."""
    text = drop_false_alarms(written).decode(errors="replace")
    return [
        message
        for message in _messages(text)
        if message.severity == "error" and not message.text.startswith(_FOLLOW_UP)
    ]


def _messages(text: str) -> Iterator[Message]:
    message: Message | None = None
    for line in text.splitlines():
        if found := _MESSAGE.fullmatch(line):
            if message is not None:
                yield message
            place = _NAMED_PLACE.search(found["location"]) if found["location"] else found
            message = Message(found["severity"], found["text"].rstrip())
            if place is not None and place["file"] is not None:
                file = place["file"] if place is found else unquote(place["file"])
                message = replace(message, file=file, line=int(place["line"]), column=int(place["column"]))
        elif message is not None:
            if _NO_MESSAGE.match(line) or message.text.count("\n") + 1 == _MAX_MESSAGE_LINES:
                yield message
                message = None
            else:
                message = replace(message, text=f"{message.text}\n{line}")
    if message is not None:
        yield message


class CompilerProcess(ChildProcess):
    """Child process for the tasks of Triton's compiler: the installed one, or that in the folder ``triton``.

    It is started again for another target: in Triton 3.5 and 3.6, compiling for one target changes how the process
    compiles for the next.
    """

    def __init__(self, triton: Path | None = None) -> None:
        super().__init__(__name__)
        self._triton = triton
        self._target: object = None

    def environment(self) -> Mapping[str, str]:
        """Return an environment with the folder of ``triton`` first."""
        folders = [str(self._triton.resolve())] if self._triton is not None else []
        return {**os.environ, "PYTHONPATH": os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])}

    def ask(self, task: Callable[..., Any], *arguments: Any, time_limit_s: float, target: object = None) -> Any:
        """Run ``task(*arguments, written)`` in the child, and return its result, as ``begin_task`` and ``result``."""
        self.begin_task(task, *arguments, time_limit_s=time_limit_s, target=target)
        return self.result()

    def begin_task(self, task: Callable[..., Any], *arguments: Any, time_limit_s: float, target: object = None) -> None:
        """Begin with ``task(*arguments, written)`` in the child; ``target`` is what it compiles for."""
        if target is not None and target != self._target:
            self.stop()
            self._target = target
        self.begin((task, arguments), time_limit_s)

    def result(self) -> Any:
        """Wait for the task's result. Raises its ``KprofError``, or another one if the child dies or is overdue."""
        try:
            answer = self.answer()
        except ProcessDiedError as error:
            lines = [f"  {line}" for line in [*dict.fromkeys(error.lines)][-_MAX_LAST_LINES:]]
            raise KprofError("\n".join([f"the compiler died ({error.how})", *lines])) from None
        if isinstance(answer, KprofError):
            raise answer
        return answer


def _answer_to(request: tuple[Callable[..., Any], tuple[Any, ...]], written: Path) -> Any:
    task, arguments = request
    try:
        return task(*arguments, written)
    except KprofError as error:
        return error
    except Exception as error:  # noqa: BLE001 (after any failure, the caller must get to the other files)
        return KprofError(
            f"{type(error).__name__}: {error}",
            hint="this is a bug in kprof-inject or in this version of Triton; please report it",
        )


if __name__ == "__main__":
    serve(_answer_to)
