"""The kernel's TTGIR with the lines of each scope."""

from __future__ import annotations

from typing import Any

import numpy as np

from kprof_inject.printable import printable
from kprof_inject.report.html.sections.packing import packed
from kprof_inject.report.html.sections.ttgir_places import chains_of
from kprof_inject.report.html.sections.ttgir_sites import sites_of
from kprof_inject.report.kernel_files import lines_of, shown_line, ttgir_of
from kprof_inject.timeline.timeline import Timeline

_MOST_LINES = 200_000


def ttgir_lines(timeline: Timeline) -> dict[str, Any] | None:
    """None if the capture has no module.

    ``lines`` are those of the module without records, from 0. ``places`` are source lines as ``[file, line]``, and
    ``place_of`` says for each line of the module which of them it comes from, -1 if that is unknown. ``sites`` has for
    each scope of the table its ranges of lines (see ``sites_of``).
    """
    text = ttgir_of(timeline.launch.kernel)
    if not text:
        return None
    all_lines = lines_of(text)
    lines = all_lines[:_MOST_LINES]
    chains = chains_of(lines)
    numbers: dict[str, int] = {}
    place_of = [numbers.setdefault(chain[0], len(numbers)) if chain else -1 for chain in chains]
    return {
        "lines": [shown_line(line) for line in lines],
        "left_out": len(all_lines) - len(lines),
        "places": [_place(place) for place in numbers],
        "place_of": packed(np.array(place_of, dtype=np.int64), "i4"),
        "sites": sites_of(timeline.table.scopes, lines, chains),
    }


def _place(place: str) -> tuple[str, int]:
    path, _, line = place.rpartition(":")
    return printable(path), int(line)
