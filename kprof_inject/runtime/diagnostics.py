"""Keeps a false alarm of Proton's off the program's stderr.

Proton's check of scopes takes blocks one by one: the end of a scope in a second return block looks to it like an end
without a start. It prints that as an error and goes on; the machine code is right (the entry gets an id of its own, and
we match by name). A user would take it for a failure.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from kprof_inject.runtime.faults import flush_stderr, write_stderr
from kprof_inject.runtime.interruptions import in_forked_child

_FALSE_ALARM = re.compile(
    rb".*error: The scope name '[^']*' (?:is not properly closed \(missing start record\)"
    rb"|is closed without being opened|has duplicate end record|must appear in pairs)\n"
    rb"(?: *proton\.record end [^\n]*\n *\^\n)?"
)


@dataclass(slots=True, weakref_slot=True)
class HeldMessages:
    """What was written to stderr so far, kept in a file."""

    _file: IO[bytes] | None
    _stderr: int = -1

    def take(self) -> bytes:
        """All of it: it is then not written to stderr any more."""
        if self._file is None:
            return b""
        self._file.seek(0)
        written = self._file.read()
        self._file.seek(0)
        self._file.truncate()
        return written

    def let_go(self) -> None:
        """A forked child writes to stderr itself: what its parent holds back is the parent's to write."""
        os.dup2(self._stderr, 2)


@contextmanager
def without_false_alarms() -> Iterator[HeldMessages]:
    """Hold back what is written to stderr, by this thread or another, and write it at the end without false alarms.

    MLIR writes to the file descriptor itself, so Python's ``sys.stderr`` is not the place to stand in.
    """
    try:
        held = tempfile.TemporaryFile()  # noqa: SIM115 (only this may fail)
    except OSError:  # a full disk: a false alarm is the lesser evil
        yield HeldMessages(None)
        return
    with held:
        flush_stderr()
        try:
            stderr = os.dup(2)
        except OSError:  # a program without a stderr: there is nothing to keep clean
            yield HeldMessages(None)
            return
        messages = HeldMessages(held, stderr)
        in_forked_child(messages.let_go)
        os.dup2(held.fileno(), 2)
        try:
            yield messages
        finally:
            flush_stderr()
            os.dup2(stderr, 2)
            os.close(stderr)
            write_stderr(drop_false_alarms(messages.take()))


def drop_false_alarms(written: bytes) -> bytes:
    """What the compiler wrote to stderr, less the false alarms and the excerpts that belong to them."""
    return _FALSE_ALARM.sub(b"", written)
