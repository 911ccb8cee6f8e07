"""Remembers what a trace was made of, so that none is shown of a capture that is gone or was replaced.

The trace's time does not tell: the capture may be another than then, or a copy that kept its older times.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kprof_inject.capture.schema import PROCESS_FILE, RECORD_COSTS_FILE
from kprof_inject.files import write_text
from kprof_inject.version import __version__
from kprof_inject.viewing.trace_to_show import Slice, TraceToShow

_OPENS_ON = "opens_on"


def state_of(capture: Path) -> str:
    """A text that is another as soon as any file of the capture was changed, added or removed, or as this program is of
    another version. What lies in the capture's folder beside the processes' folders is not the capture's."""
    processes = [path.parent for path in capture.glob(f"*/{PROCESS_FILE}")]
    files = [path for folder in processes for path in folder.rglob("*") if path.is_file()]
    return _digest(capture, [*files, *capture.glob(RECORD_COSTS_FILE)])


def made_of(path: Path, state: str) -> TraceToShow | None:
    """The trace at ``path`` if it is there, as ``remember`` saw it, and was made of a capture in this state."""
    try:
        noted = json.loads(_note(path).read_bytes())
        trace = TraceToShow(path, None if noted[_OPENS_ON] is None else Slice(*map(int, noted[_OPENS_ON])))
    except (OSError, ValueError, TypeError, LookupError):
        return None
    return trace if path.is_file() and noted == _facts(trace, state) else None


def remember(trace: TraceToShow, state: str) -> None:
    """Note, beside the trace, the state in which the capture was before it was read for this trace."""
    write_text(_note(trace.path), json.dumps(_facts(trace, state)))


def _note(path: Path) -> Path:
    return path.with_name(f".{path.name}.made-of")


def _facts(trace: TraceToShow, state: str) -> dict[str, Any]:
    opens_on = trace.opens_on
    return {
        "capture": state,
        "trace": _digest(trace.path.parent, [trace.path]),
        _OPENS_ON: None if opens_on is None else [opens_on.start_ns, opens_on.duration_ns],
    }


def _digest(folder: Path, files: Iterable[Path]) -> str:
    known = hashlib.sha256(__version__.encode())
    for path in sorted(files):
        status = path.stat()
        # A copy may set back the time of a file's content, but not the time at which it was put there.
        facts = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known.update(f"{path.relative_to(folder)}\0{facts}\0".encode(errors="surrogateescape"))
    return known.hexdigest()
