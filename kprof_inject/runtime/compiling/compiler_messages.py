"""Messages of Triton's compiler on stderr: hold back its false alarms, and find its errors."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO

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
        held, stderr = tempfile.TemporaryFile(), os.dup(2)  # noqa: SIM115 (only these may fail)
    except OSError:  # a full disk: false alarms do less harm than a failure; or the program has no stderr
        yield HeldMessages(None)
        return
    with held:
        flush_stderr()
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
