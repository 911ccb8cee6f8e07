"""The lines under a launch's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Cta, Scope, end, save_launch, start
from known_launch import FUNC, ITER, SCOPES, known_launch
from timelines import Ran, cta_rows, incomplete_rows

from kprof_inject.analysis.summary import summarise
from kprof_inject.capture.record_costs import RecordCost
from kprof_inject.report.launch_notes import launch_notes
from kprof_inject.timeline.columns import ScopeFlag
from kprof_inject.timeline.timeline import Timeline, decode_launch

MARKED = [*SCOPES, Scope("here", "mark", 0)]
MARK = 4
MEASURED = {"record_cost": RecordCost(17.0, 16.5, 13.75, "measured")}


def notes(timeline: Timeline) -> list[str]:
    return list(launch_notes(summarise(timeline)))


def note(timeline: Timeline, subject: str) -> str:
    """The only line on the subject."""
    (found,) = (line for line in notes(timeline) if line.startswith(f"{subject}:"))
    return found


def with_iterations(folder: Path, *runs: Sequence[int]) -> Timeline:
    """Each run of the loop is of a CTA of its own."""
    rows = [
        Ran(ITER, ns, cta, sm=cta, iteration=number, start_record=2 * number, end_record=2 * number + 1)
        for cta, run in enumerate(runs)
        for number, ns in enumerate(run)
    ]
    ctas = cta_rows(*[(cta, cta, 0, 50_000, 50_000) for cta in range(len(runs))])
    return replace(known_launch(folder, rows=rows), ctas=ctas)


def with_ctas(folder: Path, *ctas: tuple[int, int, int]) -> Timeline:
    """SM, begin and end of each."""
    rows = [(number, sm, begin_ns, end_ns, end_ns) for number, (sm, begin_ns, end_ns) in enumerate(ctas)]
    return replace(known_launch(folder, rows=[]), ctas=cta_rows(*rows))


def test_all_that_a_reader_is_told(tmp_path: Path) -> None:
    assert notes(known_launch(tmp_path)) == [
        "clock: 2000.0 MHz ± 1.25 %, timer readings within 10 ns (rms); totals and shares are over all warps",
        "record cost: unknown; nothing was subtracted, and durations include the records' own time",
        "iterations of iter[0]: 5; first 90 ns (9.0 x a steady one); steady 10 ns; last 20 ns (2.0 x a steady one)",
        "between iterations of loop[0]: 720 ns, 72.0 % of the loop (its self)",
        "spread: all warps, CTAs and SMs within 11.8 % of the median of their scope",
        "waves: 1.00; 2 CTAs on the 2 SMs, numbered up to 4, that ran any, with up to 1 at once on each",
        "tail: in the last 500 ns SMs run out of work, and idle for 16.7 % of the launch on average",
        "idle: over the whole launch, these SMs run no CTA for 33.3 % of the time on average; "
        "33.3 % of their CTA slots stay empty",
    ]


def test_a_launch_that_never_ran_has_little_to_tell(tmp_path: Path) -> None:
    timeline = decode_launch(save_launch(tmp_path, SCOPES, [None, None], slots=4))
    assert [line.partition(":")[0] for line in notes(timeline)] == ["clock", "record cost", "never ran"]


def test_an_assumed_clock_is_called_one(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    assumed = replace(timeline.clock, rate_ns=1 / 1.98, rate_error=0.25, source="nominal")
    assert note(replace(timeline, clock=assumed), "clock") == (
        "clock: 1980 MHz is assumed, the device's nominal rate: there are no timer readings to measure it. All times "
        "may be off by 25 %, and each SM's first record is taken as the launch's start; totals and shares are over "
        "all warps"
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "assumed",
            "clock: 1500 MHz is assumed, since the device's nominal rate is unknown too: the timer readings do not "
            "say, because the launch is too short or no record encloses the whole kernel. Durations may be off by any "
            "factor; totals and shares are over all warps",
        ),
        (
            "nominal",
            "clock: 1500 MHz is assumed, since the device's nominal rate is unknown too: there are no timer readings "
            "to measure it. All times may be off by any factor, and each SM's first record is taken as the launch's "
            "start; totals and shares are over all warps",
        ),
    ],
)
def test_a_clock_that_not_even_the_device_told_is_called_so(tmp_path: Path, source: str, said: str) -> None:
    timeline = known_launch(tmp_path, kernel={"sm_clock_hz": 0.0})
    assumed = replace(timeline.clock, rate_ns=1 / 1.5, rate_error=0.25, source=source)
    assert note(replace(timeline, clock=assumed), "clock") == said


def test_without_a_timer_nothing_is_said_of_how_the_sms_are_filled(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    untimed = replace(timeline, clock=replace(timeline.clock, source="nominal"))
    assert note(untimed, "waves") == "waves: unknown, and so are tail and idle SMs: no timer says when each CTA began"
    assert not [line for line in notes(untimed) if line.startswith(("tail", "idle"))]


def test_a_launch_within_a_step_of_the_timer_says_nothing_of_idle_sms(tmp_path: Path) -> None:
    timeline = with_ctas(tmp_path, (0, 50, 50), (0, 50, 50), (1, 50, 50))
    assert note(timeline, "waves") == "waves: 0.75; 3 CTAs on the 2 SMs that ran any, with up to 2 at once on each"
    assert not [line for line in notes(timeline) if line.startswith(("tail", "idle"))]


def test_marks_are_neither_cut_nor_uneven(tmp_path: Path) -> None:
    marks = [Ran(MARK, 3 * warp, warp=warp, sm=3, start_record=2, flags=ScopeFlag.CUT) for warp in range(2)]
    rows = [Ran(FUNC, 500, warp=warp, sm=3, start_record=0, end_record=9) for warp in range(2)]
    with_marks = known_launch(tmp_path / "marks", MARKED, [rows[0], marks[0], rows[1], marks[1]], kernel=MEASURED)
    assert notes(with_marks) == notes(known_launch(tmp_path / "plain", MARKED, rows, kernel=MEASURED))


def test_what_was_subtracted_is_told_with_its_cost(tmp_path: Path) -> None:
    rows = [Ran(FUNC, 500, sm=3, record_ns=100), Ran(FUNC, 500, warp=1, sm=3, record_ns=100)]
    assert note(known_launch(tmp_path, rows=rows, kernel=MEASURED), "record cost") == (
        "record cost: 17 ± 14 cycles each (measured); 200 ns were subtracted, 5.0 % of the warps' time"
    )


def test_scopes_of_which_nothing_was_left_are_counted(tmp_path: Path) -> None:
    rows = [Ran(FUNC, 500, sm=3, flags=ScopeFlag.CUT)]
    rows += [Ran(ITER, 0, warp=1, sm=3, flags=ScopeFlag.CUT if number else 0) for number in range(4)]
    assert note(known_launch(tmp_path, rows=rows, kernel=MEASURED), "record cost").endswith(
        "warps' time. Nothing was left of 4 scopes, most of iter[0]: 3 of 4"
    )


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([[600]], "1; first 600 ns"),
        ([[600, 500]], "2; first 600 ns; last 500 ns"),
        (
            [[5000, 600, 300]],
            "3; first 5.00 µs (8.3 x a steady one); steady 600 ns; last 300 ns (0.50 x a steady one)",
        ),
        (
            [[80, 80], [80, 80, 80], [80] * 64],
            "2 to 64, median 3; first 80 ns (1.00 x a steady one); steady 80 ns; last 80 ns (1.00 x a steady one)",
        ),
        ([[80, 0, 80]], "3; first 80 ns; steady 0 ns; last 80 ns"),
    ],
    ids=["one", "two", "three", "of several lengths", "no steady time"],
)
def test_iterations_in_a_line(tmp_path: Path, runs: list[list[int]], said: str) -> None:
    assert note(with_iterations(tmp_path, *runs), "iterations of iter[0]") == f"iterations of iter[0]: {said}"


def test_iterations_whose_numbers_are_unknown(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path, rows=[Ran(ITER, 80, sm=3), Ran(ITER, 90, sm=3, start_record=2, end_record=3)])
    assert note(timeline, "iterations of iter[0]") == (
        "iterations of iter[0]: their numbers are unknown, because records of their loops are missing"
    )


def test_the_last_wave_and_the_tail(tmp_path: Path) -> None:
    timeline = with_ctas(tmp_path, *[(sm, 0, 820) for sm in range(132)], *[(sm, 820, 1000) for sm in range(12)])
    assert note(timeline, "waves") == (
        "waves: 1.09; 144 CTAs on the 132 SMs that ran any, with up to 1 at once on each. "
        "The last wave is 12 CTAs on 12 SMs and takes 180 ns"
    )
    assert note(timeline, "tail") == (
        "tail: in the last 180 ns SMs run out of work, and idle for 16.4 % of the launch on average"
    )
    assert "these SMs run no CTA for 16.4 % of the time on average;" in note(timeline, "idle")


def test_what_a_tail_comes_of_is_told_where_it_is_two_things(tmp_path: Path) -> None:
    # 9 CTAs on 8 SMs, the last of which takes twice as long as the others.
    timeline = with_ctas(tmp_path, *[(sm, 0, 1000) for sm in range(8)], (0, 1000, 3000))
    assert note(timeline, "tail") == (
        "tail: in the last 2.00 µs SMs run out of work, and idle for 58.3 % of the launch on average: "
        "43.8 % because others run more CTAs, 14.6 % because CTAs take longer"
    )


def test_room_by_occupancy_is_told_as_such(tmp_path: Path) -> None:
    timeline = with_ctas(tmp_path, (0, 0, 100))
    kernel = timeline.launch.kernel
    kernel = replace(kernel, with_records=replace(kernel.with_records, ctas_per_sm=4))
    known = replace(timeline, launch=replace(timeline.launch, kernel=kernel))
    assert note(known, "waves") == "waves: 0.25; 1 CTA on the 1 SM that ran any, with room for 4 on each"


def test_sms_that_all_end_at_once_have_no_tail(tmp_path: Path) -> None:
    assert not [line for line in notes(with_ctas(tmp_path, (0, 0, 100), (1, 0, 100))) if line.startswith("tail")]


LOST = {"cta": 5, "warp": 1, "records_written": 12, "records_lost": 6}
MORE_LOST = {"cta": 5, "warp": 0, "records_written": 10, "records_lost": 2}
OPEN = {"cta": 7, "warp": 1, "records_written": 8, "open_starts": 1}
STRAY = {"cta": 7, "warp": 0, "records_written": 8, "stray_ends": 2}
DAMAGED = {"cta": 0, "warp": 0, "records_written": 8, "records_damaged": 5}


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        (
            {"records_lost": 8, "incomplete": incomplete_rows(LOST, MORE_LOST)},
            [
                "lost: 8 of 32 records (25 %): the ring keeps the newest, in 2 warps of 1 CTA, most in warp 1 of CTA "
                "5 (6 of 12); totals and shares cover only these. --fit reruns with rings that keep them all"
            ],
        ),
        (
            {
                "open_starts": np.array([1, 0, 0, 0]),
                "stray_ends": np.array([0, 2, 0, 0]),
                "incomplete": incomplete_rows(OPEN, STRAY),
            },
            [
                "unpaired: 3 records whose start or end is missing, not in the table above",
                "  starts without an end: 1, in 1 warp of 1 CTA, most in warp 1 of CTA 7 (1 of 8)",
                "  ends without a start: 2, in 1 warp of 1 CTA, most in warp 0 of CTA 7 (2 of 8)",
            ],
        ),
        (
            {"records_damaged": 5, "incomplete": incomplete_rows(DAMAGED)},
            [
                "damaged: 5 of 32 entries left out, because they are not this kernel's records, in 1 warp of 1 CTA, "
                "most in warp 0 of CTA 0 (5 of 8)"
            ],
        ),
        ({"ctas_never_ran": 6}, ["never ran: 6 CTAs of the grid wrote nothing"]),
        ({"ctas_never_ran": 1}, ["never ran: 1 CTA of the grid wrote nothing"]),
        ({"ctas_damaged": 7}, ["damaged: 7 CTAs left out, because the header contradicts itself"]),
        ({"ctas_damaged": 1}, ["damaged: 1 CTA left out, because the header contradicts itself"]),
    ],
    ids=["lost", "unpaired", "damaged", "never ran", "one never ran", "damaged CTAs", "a damaged CTA"],
)
def test_what_is_missing_is_told_last(tmp_path: Path, changes: dict[str, Any], lines: list[str]) -> None:
    plain = known_launch(tmp_path)
    assert notes(replace(plain, **changes)) == [*notes(plain), *lines]


def test_of_a_decoded_buffer_whose_rings_were_too_small(tmp_path: Path) -> None:
    warp = [entry for cycles in range(100, 900, 100) for entry in (start(ITER, cycles), end(ITER, cycles + 50))]
    timeline = decode_launch(save_launch(tmp_path, SCOPES, [Cta([warp, warp[:4]])], slots=8))
    assert note(timeline, "lost").startswith(
        "lost: 8 of 20 records (40 %): the ring keeps the newest, in 1 warp of 1 CTA, most in warp 0 of CTA 0 (8 of 16)"
    )
