"""What ``list`` says: what there is to select in a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from rich.table import Table
from rich.text import Text

from kprof_inject.select.candidates import Candidate
from kprof_inject.ttgir.locations import SourcePoint


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


def outline_json(kernel: str, file: str, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "kernel": kernel,
        "file": file,
        "candidates": [
            {
                "selector": candidate.selector,
                "what": candidate.what,
                "sources": [{"file": point.file, "line": point.line} for point in candidate.sources],
                "sites": candidate.count,
                "depth": candidate.depth,
            }
            for candidate in candidates
        ],
    }


def _places(points: Sequence[SourcePoint]) -> str:
    return ", ".join(dict.fromkeys(f"{PurePath(point.file).name}:{point.line}" for point in points))
