"""How the tracks of a Perfetto trace nest, by the table that the Perfetto UI makes its rows of."""

from __future__ import annotations

import re
from pathlib import Path

import drawn
from buffers import Cta, Scope, end, save_launch, start
from drawn import NESTED_TRACKS, launch_name, number
from programs.child import REPO
from replacing import replace
from snapshots import check
from traces import perfetto_trace

from kprof_inject.export.open_trace import last_launch
from kprof_inject.timeline.timeline import Timeline, decode_launch


def rows_of(folder: Path, timelines: list[Timeline], layout: str = "sm") -> list[str]:
    """The UI's rows from top to bottom, indented as they nest."""
    (rows,) = drawn.load(folder / "trace.pftrace", list(perfetto_trace(timelines, layout)), NESTED_TRACKS)
    return ["  " * number(row, "depth") + str(row["name"]) for row in rows]


FIRST = launch_name(0, 3)
COUNTERS = ["  active CTAs", "    all SMs", "    SM 4", "    SM 17"]


def test_warps_stand_in_ctas_in_sms(tmp_path: Path) -> None:
    assert rows_of(tmp_path, drawn.loops(tmp_path)[:1]) == [
        FIRST,
        *COUNTERS,
        "  SM 4",
        "    CTA 1",
        "      warp 0",
        "      warp 1",
        "  SM 17",
        "    CTA 0",
        "      warp 0",
        "      warp 1",
        "    CTA 2",
        "      warp 0",
        "      warp 1",
    ]


def test_warps_stand_in_ctas(tmp_path: Path) -> None:
    assert rows_of(tmp_path, drawn.loops(tmp_path)[:1], "cta") == [
        FIRST,
        *COUNTERS,
        "  CTA 0, SM 17",
        "    warp 0",
        "    warp 1",
        "  CTA 1, SM 4",
        "    warp 0",
        "    warp 1",
        "  CTA 2, SM 17",
        "    warp 0",
        "    warp 1",
    ]


def test_warps_stand_in_scopes(tmp_path: Path) -> None:
    places = [f"    SM {sm} CTA {cta} warp {warp}" for sm, cta in ((8, 1), (9, 0)) for warp in (0, 1)]
    # Of warps that lost most, what is left is the end of the last iteration, and the scope behind the loop.
    assert rows_of(tmp_path, drawn.loops(tmp_path)[2:], "scope")[5:] == [
        row for name in ("iter[0]", "load", "nowhere", "incomplete") for row in (f"  {name}", *places)
    ]


def test_warps_say_which_partition_they_run(tmp_path: Path) -> None:
    timelines = drawn.partitioned(tmp_path / "c")
    assert rows_of(tmp_path, timelines)[-3:] == [
        "      warp 0, default partition",
        "      warp 1, default partition",
        "      warp 2, partition 0",
    ]
    assert "  loop (partition 0)" in rows_of(tmp_path, timelines, "scope")


def test_scopes_and_launches_of_one_name_stay_apart(tmp_path: Path) -> None:
    scopes = [Scope("step", "op", record="1"), Scope("step", "op", record="2")]
    warp = [start(0, 1000), end(0, 1100), start(1, 1200), end(1, 1300)]
    timeline = decode_launch(save_launch(tmp_path / "c", scopes, [Cta([warp])], 8))
    other = replace(timeline)
    rows = rows_of(tmp_path, [timeline, other], "scope")
    assert rows[4:8] == ["  step (1 of 2)", "    SM 0 CTA 0 warp 0", "  step (2 of 2)", "    SM 0 CTA 0 warp 0"]
    assert rows[8:] == rows[:8]


def test_launches_stand_in_the_process_that_called_them(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, drawn.called(tmp_path))
    check("export/nested_tracks", "\n".join(row for row in rows if not row.startswith("    ")))


def test_what_is_in_flight_stands_before_the_sms(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, drawn.copying(tmp_path))
    lanes = [row for row in rows if "lane" in row]
    assert [row.strip().rpartition(", ")[2] for row in lanes] == ["lane 0", "lane 1", "lane 2"]
    assert [row for row in rows[1:] if row not in lanes] == [
        "  active CTAs",
        "    all SMs",
        "    SM 0",
        "  bytes in flight",
        "    SM 0",
        "  in flight",
        "    SM 0",
        "      CTA 0",
        "  SM 0",
        "    CTA 0",
        "      warp 0",
    ]


def test_the_tracks_to_open_lead_to_the_first_warps(tmp_path: Path) -> None:
    timelines = drawn.loops(tmp_path)
    seen = last_launch(timelines)
    assert seen
    # Of a kernel with three warps a screen has room for five CTAs.
    assert seen.tracks == (launch_name(0, 2), "SM 8", "SM 9", "CTA 1", "CTA 0")
    (rows,) = drawn.load(tmp_path / "trace.pftrace", list(perfetto_trace(timelines)), NESTED_TRACKS)
    opened = [
        str(row["path"])
        for row in rows
        if row["name"] == "warp 0" and set(str(row["path"]).split(" > ")[:-1]) <= set(seen.tracks)
    ]
    assert opened == [f"{seen.tracks[0]} > {place} > warp 0" for place in ("SM 8 > CTA 1", "SM 9 > CTA 0")]


def test_all_around_a_called_launch_is_opened(tmp_path: Path) -> None:
    seen = last_launch(drawn.called(tmp_path))
    assert seen
    assert seen.tracks[:2] == ("rank 1, host process 41", launch_name(1, 1, rank=1))


def sql_in(page: str) -> list[str]:
    """The queries of a page of the documentation."""
    return re.findall(r"```sql\n(.*?)```", (REPO / "docs" / page).read_text(), re.DOTALL)


def test_the_query_in_the_documentation_finds_something(tmp_path: Path) -> None:
    timelines = drawn.loops(tmp_path)
    (by_place,) = sql_in("traces.md")
    (places,) = drawn.load(tmp_path / "trace.pftrace", list(perfetto_trace(timelines)), by_place)
    assert places[0].keys() == {"sm", "cta", "warp", "ts", "dur"}
    assert len(places) == 10
    durations = [number(row, "dur") for row in places]
    assert durations == sorted(durations, reverse=True)
