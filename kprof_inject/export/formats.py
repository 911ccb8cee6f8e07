"""The formats by file name. To add one, add a function that yields its bytes, and a row to the table."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from kprof_inject.errors import KprofError
from kprof_inject.export import chrome, perfetto
from kprof_inject.export.drawing import draw
from kprof_inject.export.hooks import Hook
from kprof_inject.export.tables import csv_table, hatchet_tree, optional_module, parquet_table
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.files import write_chunks
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.timeline import Timeline


class Format(Struct, frozen=True):
    """A format for a viewer (``is_drawing``) or of numbers, for programs.

    ``encode`` yields the bytes of a scene or of a table, in chunks; launches are jobs of the ``JobRunner``. ``advice``
    says how to read a ``{file}``; ``needs`` is an optional package.
    """

    encode: Callable[..., Iterator[bytes]]
    advice: str
    is_drawing: bool = False
    needs: str = ""


_VIEWER = "open it: drag the file onto https://ui.perfetto.dev (it stays in your browser)"
_ROWS = "one row per scope that ran: DuckDB, Polars and pandas read it"
_VIEW_TREE = "see it: proton-viewer -m normalized_cycles {file}"
_CHROME = Format(chrome.encode, _VIEWER, is_drawing=True)
_PERFETTO = Format(perfetto.encode, _VIEWER, is_drawing=True)
_CSV = Format(csv_table, _ROWS)

FORMATS = {
    ".json": _CHROME,
    ".json.gz": _CHROME,
    ".pftrace": _PERFETTO,
    ".pftrace.gz": _PERFETTO,
    ".csv": _CSV,
    ".csv.gz": _CSV,
    ".parquet": Format(lambda timelines, _: parquet_table(timelines), _ROWS, needs="pyarrow"),
    ".hatchet": Format(lambda timelines, *_: hatchet_tree(timelines), _VIEW_TREE),
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
    layout: str
    hooks: Sequence[Hook]

    @classmethod
    def at(cls, path: Path, layout: str | None = None, hooks: Sequence[Hook] = ()) -> TraceFile:
        """Prepare to write a file; raises ``KprofError`` if its format is unknown, or lacks layouts or a package."""
        format = format_of(path)
        option = "--layout" if layout is not None else "--hooks" if hooks else ""
        if option and not format.is_drawing:
            drawings = [known for known, format in FORMATS.items() if format.is_drawing]
            raise KprofError(
                f"{option} only applies to timelines, and a {ending_of(path)} file is a table",
                hint=f"leave it out, or write {' or '.join(drawings)}",
                exit_code=2,
            )
        if format.needs:
            optional_module(format.needs, format.needs)
        return cls(path, format, layout or LAYOUT_NAMES[0], hooks)

    def write(self, timelines: Sequence[Timeline], run: JobRunner = in_turn) -> int:
        """Write the file, with launches as ``run``'s jobs for most formats; return its size. Raises ``KprofError``."""
        if self.format.is_drawing:
            chunks = self.format.encode(draw(timelines, self.layout, self.hooks), run)
        else:
            chunks = self.format.encode(timelines, run)
        if self.path.suffix.lower() == ".gz":
            chunks = gzipped(chunks)
        try:
            return write_chunks(self.path, chunks)
        except BrokenPipeError:
            raise  # the reader wants no more
        except OSError as error:
            raise KprofError(f"cannot write {self.path}: {error.strerror}") from None


def gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks as one gzip member; equal input gives equal bytes (no time stamp)."""
    compressor = zlib.compressobj(level=6, wbits=16 + zlib.MAX_WBITS)  # 16: a gzip container
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def ending_of(path: Path) -> str | None:
    """Return a file's ending among those of ``FORMATS``."""
    name = path.name.lower()
    return next((ending for ending in FORMATS if name.endswith(ending) and name != ending), None)


def format_of(path: Path) -> Format:
    """Return the format of a file. Raises ``KprofError`` if no format has this ending."""
    if ending := ending_of(path):
        return FORMATS[ending]
    raise KprofError(
        f"{path.name} has no extension of a known format",
        hint=f"use one of the extensions {', '.join(FORMATS)}",
        exit_code=2,
    )
