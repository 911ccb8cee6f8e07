"""Run Triton's compiler in a child process, and parse its messages on stderr.

On bad input the compiler may end its process, or never return.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any

from kprof_inject.errors import KprofError
from kprof_inject.runtime.faults import flush_stderr, write_stderr
from kprof_inject.runtime.own_python import finding_this_package, own_python
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


class CompilerProcess:
    """Child process for tasks.

    The first task starts it. It is started again after a task that it did not survive, and for another target: in
    Triton 3.5 and 3.6, compiling for one target changes how the process compiles for the next. Use it as a context
    manager, which at its end kills the child and all processes that the child started.
    """

    def __init__(self, triton: Path | None = None) -> None:
        """Make a temporary folder; the child is not started yet.

        ``triton`` is a folder with the package, if it is not the installed one.
        """
        self._triton = triton
        self._folder = tempfile.TemporaryDirectory(prefix="kprof-compiler-")
        self._written = Path(self._folder.name, "written")
        self._child: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._target: object = None

    def __enter__(self) -> CompilerProcess:
        """Return the object itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Kill the child, and remove the temporary folder."""
        self._stop()
        self._folder.cleanup()

    def ask(self, task: Callable[..., Any], *arguments: Any, time_limit_s: float, target: object = None) -> Any:
        """Run ``task(*arguments, written)`` in the child, and return its result. ``target`` is what it compiles for.

        ``written`` is the file that all output goes to, empty at first, in a folder for temporary files. Raises the
        task's ``KprofError``, or another one if the child dies or exceeds the limit.
        """
        if target is not None and target != self._target:
            self._stop()
            self._target = target
        process, connection = self._child or self._start()
        self._written.write_bytes(b"")
        try:
            connection.send((task, arguments))
            if not connection.poll(max(time_limit_s, 0)):
                self._stop()
                raise KprofError("the compiler did not finish in time", hint="raise --time-limit SECONDS")
            reply = connection.recv()
        except (EOFError, ConnectionError):
            self._stop()
            raise KprofError(_death_message(process.returncode, self._written.read_bytes())) from None
        if isinstance(reply, KprofError):
            raise reply
        return reply

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        # Not forked, because the child must not inherit our threads and locks.
        variables = dict(os.environ)
        if self._triton is not None:
            variables["PYTHONPATH"] = os.pathsep.join([str(self._triton.resolve()), variables.get("PYTHONPATH", "")])
        ours, theirs = Pipe()
        with theirs, self._written.open("ab") as log:
            process = subprocess.Popen(
                own_python(["-m", __name__, str(self._written)]),
                env=finding_this_package(variables),
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                start_new_session=True,  # leads a group, so that an assembler that it waits for ends with it
            )
        self._child = process, ours
        return self._child

    def _stop(self) -> None:
        if self._child is None:
            return
        process, connection = self._child
        self._child = None
        connection.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _serve(written: Path) -> None:
    """Do tasks in the child until the parent closes the connection, which is stdin."""
    connection = Connection(os.dup(sys.stdin.fileno()))
    with open(os.devnull) as nothing:  # for the assembler
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    # The parent removes this folder, including what a dying compiler leaves there.
    tempfile.tempdir = os.environ["TMPDIR"] = str(written.parent)
    while True:
        try:
            task, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = task(*arguments, written)
        except KprofError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 (after any failure, the caller must get to the other files)
            answer = KprofError(
                f"{type(error).__name__}: {error}",
                hint="this is a bug in kprof-inject or in this version of Triton; please report it",
            )
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send(answer)


def _death_message(exit_code: int | None, written: bytes) -> str:
    """Describe how the compiler died, with its last distinct lines."""
    how = f"exit code {exit_code}"
    if exit_code is not None and exit_code < 0:
        with suppress(ValueError):
            how = f"signal {signal.Signals(-exit_code).name}"
    lines = dict.fromkeys(line.rstrip() for line in written.decode(errors="replace").splitlines() if line.strip())
    return "\n".join([f"the compiler died ({how})", *(f"  {line}" for line in [*lines][-_MAX_LAST_LINES:])])


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
