"""What ``list`` says: what there is to select in a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from rich.table import Table
from rich.text import Text

from kprof_inject.cli.distinctions import in_words
from kprof_inject.select.candidates import Candidate
from kprof_inject.ttgir.locations import SourcePoint
from kprof_inject.workspace import DumpedKernel


@dataclass(frozen=True, slots=True)
class Outline:
    """One kernel. ``dumped`` is None for a file from elsewhere; ``apart`` tells it from others of its name."""

    kernel: str
    file: str
    candidates: Sequence[Candidate]
    dumped: DumpedKernel | None = None
    apart: Mapping[str, str] = field(default_factory=dict)


def heading(outline: Outline) -> str:
    if outline.apart:
        return f"{outline.kernel} ({in_words(outline.apart)}) {outline.file}"
    return f"{outline.kernel} ({outline.file})"


def outline_table(candidates: Sequence[Candidate]) -> Table:
    """One row for each thing to select."""
    table = Table(box=None, pad_edge=True)
    for heading in ("selector", "what", "source"):
        table.add_column(heading, overflow="fold")
    table.add_column("sites", justify="right", no_wrap=True)
    for candidate in candidates:
        table.add_row(
            Text("  " * candidate.depth + candidate.selector),
            Text(candidate.what),
            Text(_places(candidate.sources)),
            str(candidate.count),
        )
    return table


def outline_json(outline: Outline) -> dict[str, Any]:
    """A kernel as JSON values; ``options`` are all that it was compiled with."""
    info = outline.dumped.info if outline.dumped else None
    return {
        "kernel": outline.kernel,
        "file": outline.file,
        "variant": outline.dumped and outline.dumped.variant,
        "options": info.options if info else {},
        "constants": info.constants if info else {},
        "candidates": [
            {
                "selector": candidate.selector,
                "what": candidate.what,
                "sources": [{"file": point.file, "line": point.line} for point in candidate.sources],
                "sites": candidate.count,
                "depth": candidate.depth,
            }
            for candidate in outline.candidates
        ],
    }


def _places(points: Sequence[SourcePoint]) -> str:
    return ", ".join(dict.fromkeys(f"{PurePath(point.file).name}:{point.line}" for point in points))
