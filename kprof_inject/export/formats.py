"""Which file names mean which format. A new format is one file in this folder, a function that calls it and one row.

What writes a format is imported when the first such file is written: commands ask here for names alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from kprof_inject.errors import KprofError
from kprof_inject.export.drawing import LAYOUT_NAMES
from kprof_inject.export.hooks import Hook
from kprof_inject.files import write_chunks
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.timeline import Timeline

if TYPE_CHECKING:
    from kprof_inject.export.drawing.tracks import TrackLayout

# Has zlib write the container of gzip.
_GZIP_CONTAINER = 16 + zlib.MAX_WBITS


def gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks as one gzip member; equal input gives equal bytes (no time stamp)."""
    compressor = zlib.compressobj(level=6, wbits=_GZIP_CONTAINER)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


TraceWriter = Callable[[Sequence[Timeline], JobRunner], Iterator[bytes]]
"""Turns timelines into the bytes of a file, chunk by chunk; launches are jobs of the ``JobRunner``."""

_TracksWriter = Callable[[Sequence[Timeline], "TrackLayout", JobRunner, Sequence[Hook]], Iterator[bytes]]


class Format(Protocol):
    @property
    def on_axis(self) -> bool:
        """Whether its times are on the axes of ``timeline.axis``."""
        ...

    @property
    def advice(self) -> str:
        """How to read such a ``{file}``."""
        ...

    def writer(self, ending: str, layout: str | None, hooks: Sequence[Hook]) -> TraceWriter:
        """What writes it, in one of the ``LAYOUT_NAMES`` (None: the usual one), with what the ``hooks`` add. Raises
        ``KprofError`` if it has neither, or if it needs what is not installed; ``ending`` is what to call it then."""
        ...


@dataclass(frozen=True, slots=True)
class DrawingFormat:
    """Scopes on tracks, for a viewer."""

    write: _TracksWriter
    on_axis: ClassVar[bool] = True
    advice: ClassVar[str] = "open it: drag the file onto https://ui.perfetto.dev (it stays in your browser)"

    def writer(self, ending: str, layout: str | None, hooks: Sequence[Hook]) -> TraceWriter:
        from kprof_inject.export.drawing.tracks import LAYOUTS

        tracks = LAYOUTS[layout or LAYOUT_NAMES[0]]
        return lambda timelines, run: self.write(timelines, tracks, run, hooks)


@dataclass(frozen=True, slots=True)
class TableFormat:
    """Numbers, for programs. ``needs`` is a package that not every installation has."""

    write: TraceWriter
    advice: str
    needs: str = ""
    on_axis: ClassVar[bool] = False

    def writer(self, ending: str, layout: str | None, hooks: Sequence[Hook]) -> TraceWriter:
        for option in ("--layout",) * (layout is not None) + ("--hooks",) * bool(hooks):
            drawings = [other for other, known in _FORMATS.items() if isinstance(known, DrawingFormat)]
            raise KprofError(
                f"{option} is for timelines, and a {ending} file is not one",
                hint=f"leave it out, or write {' or '.join(drawings)}",
                exit_code=2,
            )
        if self.needs:
            from kprof_inject.export.arrow import optional_module

            optional_module(self.needs, self.needs)
        return self.write


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
    from kprof_inject.export.comma_separated import csv_table

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
"""The same in words, for the help of commands."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A file to be written, in the format that its name asks for."""

    path: Path
    format: Format
    _writer: TraceWriter

    @classmethod
    def at(cls, path: Path, layout: str | None = None, hooks: Sequence[Hook] = ()) -> TraceFile:
        """Raises ``KprofError`` if no format has this ending, or the format cannot have this layout or hooks, or it
        needs what is not installed."""
        ending = _ending(path)
        return cls(path, _FORMATS[ending], _FORMATS[ending].writer(ending, layout, hooks))

    def write(self, timelines: Sequence[Timeline], run: JobRunner = in_turn) -> int:
        """Returns the file's size in bytes. Most formats have ``run`` do one launch beside the other. Raises
        ``KprofError`` if the file cannot be written."""
        try:
            return write_chunks(self.path, self._writer(timelines, run))
        except BrokenPipeError:
            raise  # whoever read it has enough
        except OSError as error:
            raise KprofError(f"cannot write {self.path}: {error.strerror}") from None


def write_trace(
    path: Path,
    timelines: Sequence[Timeline],
    layout: str | None = None,
    run: JobRunner = in_turn,
    hooks: Sequence[Hook] = (),
) -> int:
    """Write the timelines at once; raises ``KprofError`` as ``TraceFile`` does."""
    return TraceFile.at(path, layout, hooks).write(timelines, run)


def format_of(path: Path) -> Format:
    """Raises ``KprofError`` if no format has this ending."""
    return _FORMATS[_ending(path)]


def is_format(path: Path) -> bool:
    """Whether some format has this ending."""
    return _known_ending(path) is not None


def _known_ending(path: Path) -> str | None:
    name = path.name.lower()
    return next((ending for ending in _FORMATS if name.endswith(ending) and name != ending), None)


def _ending(path: Path) -> str:
    if ending := _known_ending(path):
        return ending
    raise KprofError(
        f"the name {path.name} does not say which format to write",
        hint=f"use one of the extensions {', '.join(_FORMATS)}",
        exit_code=2,
    )
