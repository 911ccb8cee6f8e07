"""Remembers what a trace was made of, so that none is shown of a capture that is gone or was replaced.

The trace's time does not tell: the capture may be another than then, or a copy that kept its older times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from kprof_inject.capture.format import PROCESS_FILE, RECORD_COSTS_FILE
from kprof_inject.files import write_text
from kprof_inject.version import __version__


def state_of(capture: Path) -> str:
    """A text that is another as soon as any file of the capture was changed, added or removed, or as this program is of
    another version. What lies in the capture's folder beside the processes' folders is not the capture's."""
    processes = [path.parent for path in capture.glob(f"*/{PROCESS_FILE}")]
    files = [path for folder in processes for path in folder.rglob("*") if path.is_file()]
    return _digest(capture, [*files, *capture.glob(RECORD_COSTS_FILE)])


def was_made_of(trace: Path, state: str) -> bool:
    """Whether the trace is there, as ``remember`` saw it, and was made of a capture in this state."""
    note = _note(trace)
    return trace.is_file() and note.is_file() and note.read_bytes() == _text(trace, state).encode()


def remember(trace: Path, state: str) -> None:
    """Note, beside the trace, the state in which the capture was before it was read for this trace."""
    write_text(_note(trace), _text(trace, state))


def _note(trace: Path) -> Path:
    return trace.with_name(f".{trace.name}.made-of")


def _text(trace: Path, state: str) -> str:
    return f"{state} {_digest(trace.parent, [trace])}\n"


def _digest(folder: Path, files: Iterable[Path]) -> str:
    known = hashlib.sha256(__version__.encode())
    for path in sorted(files):
        status = path.stat()
        # A copy may set back the time of a file's content, but not the time at which it was put there.
        facts = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known.update(f"{path.relative_to(folder)}\0{facts}\0".encode(errors="surrogateescape"))
    return known.hexdigest()
