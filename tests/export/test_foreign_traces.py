"""Traces of other profilers' buffers, by the trace processor: every scope is there, and none is torn by another."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from drawn import FAULTS
from foreign_buffers import Mark, flashinfer, triton_distributed
from trace_processor.processor import query_many
from traces import write_trace

import kprof_inject
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.results import Results

SLICES = (
    "SELECT slice.name AS name, ts, dur, COALESCE(thread.name, around.name || ' ' || track.name) AS thread"
    " FROM slice JOIN track ON track.id = track_id LEFT JOIN track AS around ON around.id = track.parent_id"
    " LEFT JOIN thread_track ON thread_track.id = track_id LEFT JOIN thread USING (utid) WHERE category = 'scope'"
)


def tokens() -> Results:
    """Scopes open across iterations: they cross each other, and that around them holds them all."""
    held = [Mark(1 + turn % 3, side, 100 * turn + 250 * side) for turn in range(6) for side in range(2)]
    inside = sorted(held, key=lambda mark: (mark.ns, -mark.side))
    marks = [Mark(0, 0, 0), *inside, Mark(0, 1, 1000)]
    words = flashinfer(1, [[[mark._replace(ns=mark.ns + 2_000) for mark in marks]]] * 2)
    return kprof_inject.read_buffer(words, format="flashinfer", names=["all", "held", "held", "held"])


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
@pytest.mark.parametrize("ending", ["json", "pftrace"])
def test_scopes_that_overlap_their_own_kind_keep_their_times(tmp_path: Path, ending: str, layout: str) -> None:
    path = tmp_path / f"trace.{ending}"
    made = tokens()
    write_trace(path, made.timelines, layout)
    slices, faults = query_many(path, [SLICES, FAULTS])
    assert not faults
    first = min(row["ts"] for row in slices if isinstance(row["ts"], int))
    shown = Counter((row["name"], row["ts"] - first, row["dur"]) for row in slices if isinstance(row["ts"], int))
    assert shown == {("all", 0, 1000): 2, **{("held", 100 * turn, 250): 2 for turn in range(6)}}
    # Who has no SM has none in a name.
    assert all("CTA" in str(row["thread"]) and "SM" not in str(row["thread"]) for row in slices)


def test_groups_are_called_so_and_stand_by_their_sm(tmp_path: Path) -> None:
    marks = [[[Mark(0, 0, 100), Mark(0, 1, 200)] for _ in range(2)] for _ in range(2)]
    made = kprof_inject.read_buffer(triton_distributed(2, marks, [5, 3]), format="triton-distributed", names=["work"])
    slices = query_many(made.export(tmp_path / "trace.json"), [SLICES])[0]
    names = [f"SM {sm} CTA {cta} group {group}" for cta, sm in enumerate([5, 3]) for group in range(2)]
    assert sorted(str(row["thread"]) for row in slices) == sorted(names)
