"""The formats by file name. To add one, add a file to this folder, a function that calls it and a row to the table.

Each writer is imported when the first such file is written, because commands only need the names.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from kprof_inject.errors import KprofError
from kprof_inject.export.drawing import LAYOUT_NAMES
from kprof_inject.export.hooks import Hook
from kprof_inject.files import write_chunks
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.timeline import Timeline

if TYPE_CHECKING:
    from kprof_inject.export.drawing.tracks import TrackLayout

# Makes zlib write a gzip container.
_GZIP_CONTAINER = 16 + zlib.MAX_WBITS


def gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks as one gzip member; equal input gives equal bytes (no time stamp)."""
    compressor = zlib.compressobj(level=6, wbits=_GZIP_CONTAINER)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


TraceWriter = Callable[[Sequence[Timeline], JobRunner], Iterator[bytes]]
"""A function that turns timelines into the bytes of a file, in chunks; launches are jobs of the ``JobRunner``."""

_TracksWriter = Callable[[Sequence[Timeline], "TrackLayout", JobRunner, Sequence[Hook]], Iterator[bytes]]


class DrawingFormat(Struct, frozen=True):
    """A format that draws scopes on tracks, for a viewer.

    Its times are ``on_axis``: on the axes of ``timeline.axis``. ``advice`` says how to read such a file.
    """

    write: _TracksWriter
    on_axis: ClassVar[bool] = True
    advice: ClassVar[str] = "open it: drag the file onto https://ui.perfetto.dev (it stays in your browser)"

    def writer(self, ending: str, layout: str | None, hooks: Sequence[Hook]) -> TraceWriter:
        """Return the function that writes it in one of the ``LAYOUT_NAMES`` (None: the default), with these hooks."""
        from kprof_inject.export.drawing.tracks import LAYOUTS

        tracks = LAYOUTS[layout or LAYOUT_NAMES[0]]
        return lambda timelines, run: self.write(timelines, tracks, run, hooks)


class TableFormat(Struct, frozen=True):
    """A format of numbers, for programs; ``needs`` is an optional package, ``advice`` says how to read a ``{file}``."""

    write: TraceWriter
    advice: str
    needs: str = ""
    on_axis: ClassVar[bool] = False

    def writer(self, ending: str, layout: str | None, hooks: Sequence[Hook]) -> TraceWriter:
        """Return the function that writes it; raises ``KprofError`` for a layout, hooks or a missing package."""
        option = "--layout" if layout is not None else "--hooks" if hooks else ""
        if option:
            drawings = [known for known, format in _FORMATS.items() if isinstance(format, DrawingFormat)]
            raise KprofError(
                f"{option} only applies to timelines, and a {ending} file is a table",
                hint=f"leave it out, or write {' or '.join(drawings)}",
                exit_code=2,
            )
        if self.needs:
            from kprof_inject.export.arrow import optional_module

            optional_module(self.needs, self.needs)
        return self.write


Format = DrawingFormat | TableFormat


def _chrome(
    timelines: Sequence[Timeline], layout: TrackLayout, run: JobRunner, hooks: Sequence[Hook]
) -> Iterator[bytes]:
    from kprof_inject.export.chrome import chrome_trace

    return chrome_trace(timelines, layout, run, hooks)


def _perfetto(
    timelines: Sequence[Timeline], layout: TrackLayout, run: JobRunner, hooks: Sequence[Hook]
) -> Iterator[bytes]:
    from kprof_inject.export.perfetto import perfetto_trace

    return perfetto_trace(timelines, layout, run, hooks)


def _gzipped_drawing(write: _TracksWriter) -> _TracksWriter:
    return lambda timelines, layout, run, hooks: gzipped(write(timelines, layout, run, hooks))


def _csv(timelines: Sequence[Timeline], run: JobRunner) -> Iterator[bytes]:
    from kprof_inject.export.scope_rows import csv_table

    return csv_table(timelines, run)


def _parquet(timelines: Sequence[Timeline], run: JobRunner) -> Iterator[bytes]:
    from kprof_inject.export.arrow import parquet_table

    return parquet_table(timelines)


def _hatchet(timelines: Sequence[Timeline], run: JobRunner) -> Iterator[bytes]:
    from kprof_inject.export.hatchet import hatchet_tree

    return hatchet_tree(timelines)


_ROWS = "one row per scope that ran: DuckDB, Polars and pandas read it"
_FORMATS: dict[str, Format] = {
    ".json": DrawingFormat(_chrome),
    ".json.gz": DrawingFormat(_gzipped_drawing(_chrome)),
    ".pftrace": DrawingFormat(_perfetto),
    ".pftrace.gz": DrawingFormat(_gzipped_drawing(_perfetto)),
    ".csv": TableFormat(_csv, _ROWS),
    ".csv.gz": TableFormat(lambda timelines, run: gzipped(_csv(timelines, run)), _ROWS),
    ".parquet": TableFormat(_parquet, _ROWS, needs="pyarrow"),
    ".hatchet": TableFormat(_hatchet, "see it: proton-viewer -m normalized_cycles {file}"),
}


ENDINGS = (
    "its extension sets the format: .json or .pftrace for ui.perfetto.dev, .csv (these also with .gz), .parquet, or "
    ".hatchet for proton-viewer"
)
"""The formats in words, for the help of commands."""


class TraceFile(Struct, frozen=True):
    """A file to write, in the format that its name's ending determines."""

    path: Path
    format: Format
    _writer: TraceWriter

    @classmethod
    def at(cls, path: Path, layout: str | None = None, hooks: Sequence[Hook] = ()) -> TraceFile:
        """Prepare to write a file.

        Raises ``KprofError`` if no format has this ending, if it does not support this layout or hooks, or if it needs
        a package that is not installed.
        """
        ending = _ending(path)
        return cls(path, _FORMATS[ending], _FORMATS[ending].writer(ending, layout, hooks))

    def write(self, timelines: Sequence[Timeline], run: JobRunner = in_turn) -> int:
        """Write the file; return its size in bytes. For most formats, ``run`` runs launches in parallel.

        Raises ``KprofError`` if the file cannot be written.
        """
        try:
            return write_chunks(self.path, self._writer(timelines, run))
        except BrokenPipeError:
            raise  # the reader wants no more
        except OSError as error:
            raise KprofError(f"cannot write {self.path}: {error.strerror}") from None


def write_trace(
    path: Path,
    timelines: Sequence[Timeline],
    layout: str | None = None,
    run: JobRunner = in_turn,
    hooks: Sequence[Hook] = (),
) -> int:
    """Write the timelines. Raises ``KprofError`` as ``TraceFile`` does."""
    return TraceFile.at(path, layout, hooks).write(timelines, run)


def format_of(path: Path) -> Format:
    """Return the format of a file. Raises ``KprofError`` if no format has this ending."""
    return _FORMATS[_ending(path)]


def is_format(path: Path) -> bool:
    """Return whether a format has this ending."""
    return _known_ending(path) is not None


def _known_ending(path: Path) -> str | None:
    name = path.name.lower()
    return next((ending for ending in _FORMATS if name.endswith(ending) and name != ending), None)


def _ending(path: Path) -> str:
    if ending := _known_ending(path):
        return ending
    raise KprofError(
        f"{path.name} has no extension of a known format",
        hint=f"use one of the extensions {', '.join(_FORMATS)}",
        exit_code=2,
    )
