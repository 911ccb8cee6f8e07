"""Users' own arguments, counters and arrows, by the trace processor, in both formats."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drawn
import numpy as np
import pytest
from drawn import ITER, LOAD
from snapshots import check
from traces import write_trace

import kprof_inject
from kprof_inject.errors import KprofError
from kprof_inject.export.hooks import Hook, hooks_of, read_hooks
from kprof_inject.results import Results
from kprof_inject.timeline.timeline import Timeline

FILE = f"""
import numpy as np
from kprof_inject import export

@export.scope_args
def rows(launch, scopes):
    is_load = scopes["scope"] == {LOAD}
    return {{
        "number": scopes["iteration"].astype("i8") - 5,
        "share": np.where(is_load, scopes["duration_ns"] / 1000, np.nan),
        "whose": np.ma.masked_array(np.where(scopes["warp"] == 0, "producer", "consumer"), ~is_load),
    }}

@export.counters(unit="GB/s")
def rate(launch):
    starts_ns = np.sort(launch.scopes["start_ns"])[:3]
    return {{"read": (starts_ns, [0.5, 2.25, 0.0]), "written": (starts_ns[:1], [7]), "nothing": ([], [])}}

@export.arrows
def handed_on(launch):
    iterations = np.flatnonzero(launch.scopes["scope"] == {ITER})
    # The second is told back in time, and the third is left out.
    leave = np.ma.masked_array([iterations[0], iterations[2], iterations[0]], [False, False, True])
    return leave, [iterations[1], iterations[0], iterations[1]]
"""

# What each format has before the names of arguments, and where it keeps a counter's unit.
FORMATS = {".json": ("args", "track.name"), ".pftrace": ("debug", "track.name || ' ' || unit")}


@pytest.fixture(scope="module")
def timelines(tmp_path_factory: pytest.TempPathFactory) -> list[Timeline]:
    return drawn.loops(tmp_path_factory.mktemp("captures"))[:2]


@pytest.mark.parametrize("ending", FORMATS)
def test_what_hooks_give_is_drawn(timelines: list[Timeline], tmp_path: Path, ending: str) -> None:
    (tmp_path / "hooks.py").write_text(FILE)
    write_trace(tmp_path / f"trace{ending}", timelines, hooks=read_hooks(tmp_path / "hooks.py"))
    prefix, unit = FORMATS[ending]
    values = ", ".join(f"EXTRACT_ARG(arg_set_id, '{prefix}.{name}') AS {name}" for name in ("number", "share", "whose"))
    data = (tmp_path / f"trace{ending}").read_bytes()
    slices, counters, flows = drawn.load(
        tmp_path / f"again{ending}",
        [data],
        f"SELECT name, dur, EXTRACT_ARG(arg_set_id, '{prefix}.iteration') AS iteration, "
        f"EXTRACT_ARG(arg_set_id, '{prefix}.duration_ns') AS duration_ns, {values} "
        "FROM slice WHERE category IN ('func', 'loop', 'iter', 'op')",
        f"SELECT {unit} AS counter, ts, value FROM counter JOIN counter_track track ON track.id = track_id "
        "WHERE counter GLOB '*GB/s' ORDER BY ts, value",
        "SELECT a.name AS leaves, a.ts AS left_ts, b.name AS arrives, b.ts AS ts FROM flow "
        "JOIN slice a ON a.id = slice_out JOIN slice b ON b.id = slice_in ORDER BY b.ts",
    )
    assert len(slices) == sum(timeline.scope_count for timeline in timelines)
    for row in slices:
        assert row["number"] == (-6 if row["iteration"] is None else drawn.number(row, "iteration") - 5)
        is_load = row["name"] == "load"
        assert row["share"] == (drawn.number(row, "duration_ns") / 1000 if is_load else None)
        assert row["whose"] in (("producer", "consumer") if is_load else (None,))
    assert {row["whose"] for row in slices} == {"producer", "consumer", None}
    assert [row["value"] for row in counters if row["counter"] == "read GB/s"] == [0.5, 2.25, 0.0] * 2
    assert [row["value"] for row in counters if row["counter"] == "written GB/s"] == [7, 7]
    assert counters[0]["ts"] == min(drawn.number(row, "ts") for row in counters) == 30
    # Two arrows leave one iteration of each launch.
    assert [(row["leaves"], row["arrives"]) for row in flows] == [("iter[0]", "iter[0]")] * 4
    assert len({row["left_ts"] for row in flows}) == 2
    assert len({row["ts"] for row in flows}) == 4


def of_counters(function: Callable[..., Any]) -> Hook:
    return kprof_inject.export.counters("B")(function)


def of_args(function: Callable[..., Any]) -> Hook:
    return kprof_inject.export.scope_args(function)


@pytest.mark.parametrize(
    ("case", "hook"),
    [
        ("two values", of_args(lambda launch, scopes: {"a": [1, 2]})),
        ("iteration", of_args(lambda launch, scopes: {"iteration": scopes["warp"]})),
        ("source", of_args(lambda launch, scopes: {"source": scopes["warp"]})),
        ("dicts", of_args(lambda launch, scopes: {"a": [{}] * len(scopes)})),
        ("no field", of_args(lambda launch, scopes: scopes["nothing"])),
        ("None", of_args(lambda launch, scopes: {"a": ["b", None] * (len(scopes) // 2)})),
        ("nowhere", of_args(lambda launch, scopes: kprof_inject.load("nowhere"))),
        ("int", of_args(lambda launch, scopes: 3)),
        ("ragged", of_args(lambda launch, scopes: {"a": [[1], [1, 2]]})),
        ("SystemExit", of_args(lambda launch, scopes: sys.exit(0))),
        ("read-only", of_args(lambda launch, scopes: scopes["start_ns"].sort())),
        ("no pair", of_counters(lambda launch: {"a": 3})),
        ("lengths of counters", of_counters(lambda launch: {"a": ([1, 2], [1])})),
        ("fractions", of_counters(lambda launch: {"a": ([0.5], [1])})),
        ("before the launch", of_counters(lambda launch: {"a": ([30], [1])})),
        ("after the launch", of_counters(lambda launch: {"a": (np.array([2**64 - 1], "u8"), [1])})),
        ("row 77", kprof_inject.export.arrows(lambda launch: ([0], [77]))),
        ("lengths of arrows", kprof_inject.export.arrows(lambda launch: ([0, 1], [1]))),
        ("to itself", kprof_inject.export.arrows(lambda launch: ([4], [4]))),
        ("no rows", kprof_inject.export.arrows(lambda launch: 3)),
    ],
)
def test_what_a_hook_gives_wrongly_is_an_error_that_leaves_no_file(
    timelines: list[Timeline], tmp_path: Path, case: str, hook: Hook
) -> None:
    with pytest.raises(KprofError) as raised:
        write_trace(tmp_path / "trace.json", timelines[:1], hooks=[hook])
    # What numpy says of a column depends on its version.
    said = re.sub(r"(?<=is not a column: ).*", "NUMPY", raised.value.what)
    check("export/hooks", f"{said}\n{raised.value.hint}", case)
    assert "call it by itself" in raised.value.hint
    assert raised.value.where is not None and raised.value.where.file == __file__
    assert not list(tmp_path.iterdir())


def test_a_hook_is_still_a_function() -> None:
    assert kprof_inject.export.scope_args(lambda launch, scopes: launch + scopes)(1, 2) == 3


def test_what_is_no_hook_is_refused(timelines: list[Timeline], tmp_path: Path) -> None:
    def plain() -> None: ...

    results = Results(timelines)
    wrong: list[tuple[Any, str]] = [(plain, "plain"), ([plain], "plain"), ("x.py", "'x.py'"), (None, "None"), (7, "7")]
    for given, name in wrong:
        with pytest.raises(KprofError, match=f"{name} is not a hook"):
            results.export(tmp_path / "trace.json", hooks=given)
    with pytest.raises(KprofError, match="counters need a unit"):
        kprof_inject.export.counters(plain)  # type: ignore[arg-type]
    lowest = of_args(lambda launch, scopes: {"lowest": np.full(len(scopes), -(2**63))})
    write_trace(tmp_path / "trace.json", timelines[:1], hooks=hooks_of(lowest))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["args"]["lowest"] for event in events if event.get("cat") == "iter"} == {-(2.0**63)}
