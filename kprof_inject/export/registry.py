"""Which file names mean which trace format. A new format is one file here and one row below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kprof_inject.errors import KprofError
from kprof_inject.export.chrome import chrome_trace
from kprof_inject.export.gzip import gzipped
from kprof_inject.files import write_chunks
from kprof_inject.timeline.timeline import Timeline

TraceWriter = Callable[[Sequence[Timeline]], Iterator[bytes]]
"""Turns timelines into the bytes of a trace file, chunk by chunk."""

_WRITERS: dict[str, TraceWriter] = {
    ".json": chrome_trace,
    ".json.gz": lambda timelines: gzipped(chrome_trace(timelines)),
}


def write_trace(path: Path, timelines: Sequence[Timeline]) -> int:
    """Write a trace in the format that the file's name asks for; returns its size in bytes.

    Raises ``KprofError`` for a name with another ending, or if the file cannot be written.
    """
    writer = trace_writer(path)
    try:
        return write_chunks(path, writer(timelines))
    except OSError as error:
        raise KprofError(f"cannot write {path}: {error.strerror}") from None


def trace_writer(path: Path) -> TraceWriter:
    """Raises ``KprofError`` if no format has this ending."""
    for ending, writer in _WRITERS.items():
        if path.name.endswith(ending) and path.name != ending:
            return writer
    raise KprofError(
        f"the name {path.name} does not say in which format to write",
        hint=f"let it end in {' or '.join(_WRITERS)}",
        exit_code=2,
    )
