"""The summary of a launch: its numbers by hand, its table and its notes."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Cta, Scope, save_launch
from rich.console import Console

from kprof_inject.capture.origin import Place
from kprof_inject.report.summary import LaunchSummary, ScopeSummary, print_summaries, summarise
from kprof_inject.timeline.timeline import CTA_COLUMNS, SCOPE_COLUMNS, Timeline, decode_launch

SCOPES = [
    Scope("kernel", "func", -1, ("/src/my kernel.py", 12)),
    Scope("loop[0]", "loop", 0, ("/src/my kernel.py", 15)),
    Scope("iter[0]", "iter", 1, ("/src/my kernel.py", 15)),
    Scope("tail", "loop", 0),
]


def made_timeline(folder: Path, scopes: Sequence[Scope] = SCOPES) -> Timeline:
    """Two CTAs of 1,000 ns with two warps each, whose scopes lasted what the rows say."""
    empty = decode_launch(save_launch(folder, scopes, [Cta([[], []])], slots=4))
    durations_ns = [
        *[(0, ns) for ns in (700, 1000, 800, 900)],
        *[(1, ns) for ns in (500, 501)],
        *[(2, ns) for ns in (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)],
    ]
    rows = np.zeros(len(durations_ns), dtype=SCOPE_COLUMNS)
    rows["scope"] = [scope for scope, _ in durations_ns]
    rows["start_ns"] = 5_000_000_000_000_000_000
    rows["end_ns"] = rows["start_ns"] + [ns for _, ns in durations_ns]
    ctas = np.array([(0, 3, 2000, 3000, 3100), (1, 4, 2500, 3500, 3600)], dtype=CTA_COLUMNS)
    clock = replace(empty.clock, rate_ns=0.625, rate_error=0.0125, residual_ns=9.6, source="fitted")
    return replace(empty, scopes=rows, ctas=ctas, clock=clock, records_written=32)


def printed(*timelines: Timeline, width: int = 200) -> list[str]:
    """The lines that a file gets."""
    out = io.StringIO()
    print_summaries([summarise(timeline) for timeline in timelines], Console(file=out, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_launch_in_numbers(tmp_path: Path) -> None:
    summary = summarise(made_timeline(tmp_path))
    assert replace(summary, scopes=()) == LaunchSummary(
        kernel="kernel",
        variant="v0",
        launch=0,
        graph=False,
        place=Place("", None, 7, 0),
        grid=(1, 1, 1),
        warps=2,
        ctas=2,
        duration_ns=1500,
        clock_mhz=1600.0,
        clock_error=0.0125,
        residual_ns=9.6,
        clock_source="fitted",
        records_written=32,
        records_lost=0,
        records_unknown=0,
        ctas_never_ran=0,
        ctas_damaged=0,
        scopes=(),
    )


def test_scopes_in_numbers(tmp_path: Path) -> None:
    func, loop, iteration, tail = summarise(made_timeline(tmp_path)).scopes
    # Shares are of 2 CTAs of 1,000 ns with 2 warps each.
    assert func == ScopeSummary("kernel", 0, "/src/my kernel.py:12", 4, 3400, 850.0, 850.0, 997.0, 0.85, 0)
    assert loop == ScopeSummary("loop[0]", 1, "/src/my kernel.py:15", 2, 1001, 500.5, 500.5, 500.99, 0.25025, 0)
    assert replace(iteration, p99_ns=None) == (
        ScopeSummary("iter[0]", 2, "/src/my kernel.py:15", 10, 550, 55.0, 55.0, None, 0.1375, 0)
    )
    assert iteration.p99_ns == pytest.approx(99.1)
    assert tail == ScopeSummary("tail", 1, "", 0, 0, None, None, None, 0.0, 0)


def test_records_without_a_partner_are_told_of_their_scope(tmp_path: Path) -> None:
    timeline = replace(made_timeline(tmp_path), open_starts=np.array([0, 3, 0, 1]), stray_ends=np.array([2, 4, 0, 0]))
    assert [scope.without_partner for scope in summarise(timeline).scopes] == [2, 7, 0, 1]


def test_a_launch_that_never_ran_has_a_summary(tmp_path: Path) -> None:
    timeline = decode_launch(save_launch(tmp_path, SCOPES, [None, None], slots=4))
    summary = summarise(timeline)
    assert (summary.ctas, summary.ctas_never_ran, summary.duration_ns) == (0, 2, 0)
    assert [(scope.count, scope.total_ns, scope.share) for scope in summary.scopes] == [(0, 0, 0.0)] * 4
    assert printed(timeline)[-1] == "never ran: 2 CTAs of the grid wrote nothing"


def test_the_json_form_survives_a_round_trip(tmp_path: Path) -> None:
    values = summarise(made_timeline(tmp_path)).to_json()
    read = json.loads(json.dumps(values))
    assert json.dumps(read) == json.dumps(values)
    assert read["grid"] == [1, 1, 1]
    assert read["scopes"][0] == {
        "scope": "kernel",
        "depth": 0,
        "source": "/src/my kernel.py:12",
        "count": 4,
        "total_ns": 3400,
        "mean_ns": 850.0,
        "p50_ns": 850.0,
        "p99_ns": 997.0,
        "share": 0.85,
        "without_partner": 0,
    }
    assert read["scopes"][3]["mean_ns"] is None


def test_the_json_form_of_a_decoded_launch_is_json(tmp_path: Path) -> None:
    summary = summarise(decode_launch(save_launch(tmp_path, SCOPES, [Cta([[], []]), None], slots=4)))
    assert json.loads(json.dumps(summary.to_json()))["ctas_never_ran"] == 1


def test_the_table(tmp_path: Path) -> None:
    assert printed(made_timeline(tmp_path)) == [
        "kernel, launch 0: grid 1x1x1, 2 warps, 1.500 µs, SM clock 1600 MHz",
        "┏━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━━━┳━━━━━━━━┳━━━━━━━━┳━━━━━━━━┳━━━━━━━━┓",
        "┃ scope       ┃ source          ┃ count ┃    total ┃   mean ┃    p50 ┃    p99 ┃  share ┃",
        "┡━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━╇━━━━━━━━╇━━━━━━━━┩",
        "│ kernel      │ my kernel.py:12 │     4 │ 3.400 µs │ 850 ns │ 850 ns │ 997 ns │ 85.0 % │",
        "│   loop[0]   │ my kernel.py:15 │     2 │ 1.001 µs │ 500 ns │ 500 ns │ 501 ns │ 25.0 % │",
        "│     iter[0] │ my kernel.py:15 │    10 │   550 ns │  55 ns │  55 ns │  99 ns │ 13.8 % │",
        "│   tail      │ -               │     0 │     0 ns │      - │      - │      - │  0.0 % │",
        "└─────────────┴─────────────────┴───────┴──────────┴────────┴────────┴────────┴────────┘",
        "clock: 1600.0 MHz ± 1.25 %, timer readings within 10 ns (rms); totals and shares are over all warps",
    ]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (
            {"records_lost": 8},
            "lost: 8 of 32 records (25 %): the ring keeps the newest. "
            "--fit runs once more with rings that keep them all",
        ),
        (
            {"open_starts": np.array([1, 0, 0, 0]), "stray_ends": np.array([0, 2, 0, 0])},
            "unpaired: 3 records whose start or end is missing; they are in no row above",
        ),
        ({"records_unknown": 5}, "unknown: 5 entries bear no scope of this kernel; they were left out"),
        ({"ctas_never_ran": 6}, "never ran: 6 CTAs of the grid wrote nothing"),
        ({"ctas_damaged": 7}, "damaged: 7 CTAs whose header contradicts itself; they were left out"),
    ],
    ids=["lost", "unpaired", "unknown", "never ran", "damaged"],
)
def test_what_a_reader_must_know_is_noted(tmp_path: Path, changes: dict[str, Any], note: str) -> None:
    plain = made_timeline(tmp_path)
    assert printed(replace(plain, **changes)) == [*printed(plain), note]


def test_an_assumed_clock_is_called_one(tmp_path: Path) -> None:
    timeline = made_timeline(tmp_path)
    assumed = replace(timeline.clock, rate_ns=1 / 1.98, rate_error=0.25, source="nominal")

    lines = printed(replace(timeline, clock=assumed), width=300)

    assert lines[0].endswith(", assumed SM clock 1980 MHz")
    assert lines[-1] == (
        "clock: 1980 MHz is an assumption, the device's nominal rate: there are no timer readings to measure it by. "
        "All times may be off by 25 %, and each SM's first record is taken for the launch's begin; "
        "totals and shares are over all warps"
    )


def test_each_launch_has_its_table(tmp_path: Path) -> None:
    timeline = made_timeline(tmp_path)
    second = replace(timeline, launch=replace(timeline.launch, index=1))
    assert printed(timeline, second) == printed(timeline) + printed(second)


def test_titles_say_which_rank_and_device_where_there_are_several(tmp_path: Path) -> None:
    timeline = made_timeline(tmp_path)
    origin = replace(timeline.launch.origin, rank=1)
    lines = printed(
        replace(timeline, launch=replace(timeline.launch, origin=replace(origin, rank=0, pid=8))),
        replace(timeline, launch=replace(timeline.launch, origin=origin, device=3)),
    )
    titles = [line for line in lines if "launch" in line]
    assert [title.partition(": grid")[0] for title in titles] == [
        "rank 0, device 0: kernel, launch 0",
        "rank 1, device 3: kernel, launch 0",
    ]


def test_the_last_replay_of_a_graph_is_named(tmp_path: Path) -> None:
    timeline = made_timeline(tmp_path)
    title = printed(replace(timeline, launch=replace(timeline.launch, graph=True)))[0]
    assert title.startswith("kernel, launch 0 (last replay of a CUDA graph): grid 1x1x1")


@pytest.mark.parametrize(
    ("total_ns", "shown"),
    [(999, "999 ns"), (1000, "1.000 µs"), (1_500_000, "1.500 ms"), (2_000_000_000, "2.000 s")],
)
def test_times_bear_their_unit(tmp_path: Path, total_ns: int, shown: str) -> None:
    timeline = made_timeline(tmp_path)
    one = timeline.scopes[:1].copy()
    one["end_ns"] = one["start_ns"] + total_ns
    row = printed(replace(timeline, scopes=one))[4].split("│")
    assert [cell.strip() for cell in row[3:8]] == ["1", shown, shown, shown, shown]


def test_nothing_is_cut_in_a_pipe(tmp_path: Path) -> None:
    name = "triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_" + "x" * 30
    source = "a_file_with_a_rather_long_name.py"
    lines = printed(made_timeline(tmp_path, [Scope(name, source=(f"/deep/{source}", 1234)), *SCOPES[1:]]))
    assert any(name in line and f"{source}:1234" in line and "85.0 %" in line for line in lines)
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("name", ["load[a]", "[b]", "[/b]", ":warning:"])
def test_names_are_shown_as_they_are(tmp_path: Path, name: str) -> None:
    lines = printed(made_timeline(tmp_path, [Scope(name), *SCOPES[1:]]))
    assert any(f"│ {name} " in line for line in lines)
