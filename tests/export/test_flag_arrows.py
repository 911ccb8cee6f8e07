"""Arrows from changes of flags to the waits that they end, judged by the trace processor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import drawn
import pytest
from flag_launches import ADD, SCOPES, SET, WAIT, WORK, Use, launch
from programs.child import REPO
from replacing import replace

from kprof_inject.capture.reader import read_capture
from kprof_inject.export.chrome import chrome_trace
from kprof_inject.export.perfetto import perfetto_trace
from kprof_inject.timeline.axis import place_launches
from kprof_inject.timeline.foreign import timelines_of
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.wait_ends import wait_ends

ARROWS = (
    "SELECT leaves.name AS leaves, arrives.name AS arrives, parent.name AS wait, arrives.ts AS from_ns,"
    " arrives.ts + arrives.dur AS to_ns, parent.ts + parent.dur AS end_ns,"
    " EXTRACT_ARG(arrives.arg_set_id, {prefix}.by_cta') AS by_cta,"
    " EXTRACT_ARG(arrives.arg_set_id, {prefix}.by_scope') AS by_scope"
    " FROM flow JOIN slice AS leaves ON leaves.id = slice_out JOIN slice AS arrives ON arrives.id = slice_in"
    " JOIN slice AS parent ON parent.id = arrives.parent_id WHERE arrives.category = 'wait' ORDER BY from_ns"
)
NAMES = "SELECT name, COUNT(*) AS count FROM slice GROUP BY name ORDER BY name"
Write = Callable[[Sequence[Timeline]], Iterator[bytes]]
FORMATS = [
    pytest.param(chrome_trace, "trace.json", "'args", id="chrome"),
    pytest.param(perfetto_trace, "trace.pftrace", "'debug", id="perfetto"),
]


@pytest.mark.parametrize(("write", "name", "prefix"), FORMATS)
def test_an_arrow_points_to_the_end_of_the_wait(tmp_path: Path, write: Write, name: str, prefix: str) -> None:
    uses = [
        *(Use(0, WAIT, 10_000, 30_500, 3), Use(0, WORK, 31_000, 32_000)),
        *(Use(1, SET, 29_000, 29_900, 3), Use(1, ADD, 35_000, 35_900, 1)),
        Use(2, WAIT, 40_000, 40_400, 3),
    ]
    timeline = launch(tmp_path, uses).timeline
    (rows,) = drawn.load(tmp_path / name, list(write([timeline])), ARROWS.format(prefix=prefix))
    (arrow,) = rows
    assert (arrow["leaves"], arrow["arrives"], arrow["wait"]) == ("set", "flag changed", "wait")
    assert arrow["to_ns"] == arrow["end_ns"] == arrow["from_ns"] + 600
    assert (arrow["by_cta"], arrow["by_scope"]) == (1, "set")


@pytest.mark.parametrize(("write", "name", "prefix"), FORMATS)
def test_every_arrow_of_two_gpus_is_drawn(tmp_path: Path, write: Write, name: str, prefix: str) -> None:
    launches = read_capture(REPO / "tests/captures/late-flags").launches
    timelines = list(timelines_of([one for one in launches if one.index in (3, 4)]))
    (ends,) = wait_ends(place_launches(timelines))
    (rows,) = drawn.load(tmp_path / name, list(write(timelines)), ARROWS.format(prefix=prefix))
    assert len(rows) == len(ends.arrows()) > 100
    assert {str(row["leaves"]) for row in rows} == {"tt.atomic_rmw"}


@pytest.mark.parametrize(("write", "name", "prefix"), FORMATS)
def test_scopes_of_a_task_have_its_name(tmp_path: Path, write: Write, name: str, prefix: str) -> None:
    scopes = [*SCOPES[:WORK], replace(SCOPES[WORK], tags=("task", "other"))]
    uses = [Use(cta, WORK, 1_000 * at, 1_000 * at + 900, 7, address=at % 2) for cta in (0, 1) for at in (1, 2, 3)]
    timeline = launch(tmp_path, uses, scopes=scopes).timeline
    (rows,) = drawn.load(tmp_path / name, list(write([timeline])), NAMES)
    found = {str(row["name"]): row["count"] for row in rows}
    assert (found["work task 0"], found["work task 1"], found.get("work")) == (2, 4, None)
