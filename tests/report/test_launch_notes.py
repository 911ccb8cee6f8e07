"""The lines under a launch's table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Cta, Scope, end, save_launch, start
from figures_in import figures_in
from known_launch import FUNC, ITER, SCOPES, known_launch
from replacing import replace
from snapshots import check
from timelines import Ran, cta_rows, incomplete_rows

from kprof_inject.analysis.summary import summarise
from kprof_inject.capture.mode import RecordCost
from kprof_inject.report.notes import launch_notes
from kprof_inject.timeline.columns import ScopeFlag
from kprof_inject.timeline.timeline import Timeline, decode_launch

MARKED = [*SCOPES, Scope("here", "mark", 0)]
MARK = 4
MEASURED = {"record_cost": RecordCost(17.0, 16.5, 13.75)}


def notes(timeline: Timeline) -> list[str]:
    return list(launch_notes(summarise(timeline)))


def note(timeline: Timeline, subject: str) -> str:
    """The only line on the subject."""
    (found,) = (line for line in notes(timeline) if line.startswith(f"{subject}:"))
    return found


def figures(line: str) -> list[str]:
    """Return the words after the line's subject."""
    return figures_in(line.partition(": ")[2])


def check_note(line: str, case: str) -> None:
    check("report/launch-notes", line, case)


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
    check_note("\n".join(notes(known_launch(tmp_path))), "a known launch")


def test_a_launch_that_never_ran_has_little_to_tell(tmp_path: Path) -> None:
    timeline = decode_launch(save_launch(tmp_path, SCOPES, [None, None], slots=4))
    assert [line.partition(":")[0] for line in notes(timeline)] == ["clock", "record cost", "never ran"]


@pytest.mark.parametrize(
    ("source", "ghz", "kernel", "case"),
    [
        ("nominal", 1.98, {}, "the device's nominal rate"),
        ("assumed", 1.5, {"sm_clock_hz": 0.0}, "no nominal rate, no timer reading"),
        ("nominal", 1.5, {"sm_clock_hz": 0.0}, "no nominal rate, and no timer"),
    ],
)
def test_an_assumed_clock_is_called_one(
    tmp_path: Path, source: str, ghz: float, kernel: dict[str, float], case: str
) -> None:
    timeline = known_launch(tmp_path, kernel=kernel)
    assumed = replace(timeline.clock, rate_ns=1 / ghz, rate_error=0.25, source=source)
    check_note(note(replace(timeline, clock=assumed), "clock"), case)


def test_without_a_timer_nothing_is_said_of_how_the_sms_are_filled(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    untimed = replace(timeline, clock=replace(timeline.clock, source="nominal"))
    check_note(note(untimed, "waves"), "waves without a timer")
    assert not [line for line in notes(untimed) if line.startswith(("tail", "idle"))]


def test_a_launch_within_a_step_of_the_timer_says_nothing_of_idle_sms(tmp_path: Path) -> None:
    timeline = with_ctas(tmp_path, (0, 50, 50), (0, 50, 50), (1, 50, 50))
    assert figures(note(timeline, "waves")) == ["0.75", "3", "2", "2"]
    assert not [line for line in notes(timeline) if line.startswith(("tail", "idle"))]


def test_marks_are_neither_cut_nor_uneven(tmp_path: Path) -> None:
    marks = [Ran(MARK, 3 * warp, warp=warp, sm=3, start_record=2, flags=ScopeFlag.CUT) for warp in range(2)]
    rows = [Ran(FUNC, 500, warp=warp, sm=3, start_record=0, end_record=9) for warp in range(2)]
    with_marks = known_launch(tmp_path / "marks", MARKED, [rows[0], marks[0], rows[1], marks[1]], kernel=MEASURED)
    assert notes(with_marks) == notes(known_launch(tmp_path / "plain", MARKED, rows, kernel=MEASURED))


def test_what_was_subtracted_is_told_with_its_cost(tmp_path: Path) -> None:
    rows = [Ran(FUNC, 500, sm=3, record_ns=100), Ran(FUNC, 500, warp=1, sm=3, record_ns=100)]
    check_note(note(known_launch(tmp_path, rows=rows, kernel=MEASURED), "record cost"), "a measured record cost")


def test_scopes_of_which_nothing_was_left_are_counted(tmp_path: Path) -> None:
    rows = [Ran(FUNC, 500, sm=3, flags=ScopeFlag.CUT)]
    rows += [Ran(ITER, 0, warp=1, sm=3, flags=ScopeFlag.CUT if number else 0) for number in range(4)]
    timeline = known_launch(tmp_path, rows=rows, kernel=MEASURED)
    check_note(note(timeline, "record cost"), "scopes of which nothing was left")


@pytest.mark.parametrize(
    ("case", "runs"),
    [
        ("one iteration", [[600]]),
        ("two iterations", [[600, 500]]),
        ("three iterations", [[5000, 600, 300]]),
        ("runs of several lengths", [[80, 80], [80, 80, 80], [80] * 64]),
        ("no steady time", [[80, 0, 80]]),
    ],
)
def test_iterations_in_a_line(tmp_path: Path, case: str, runs: list[list[int]]) -> None:
    check_note(note(with_iterations(tmp_path, *runs), "iterations of iter[0]"), case)


def test_iterations_whose_numbers_are_unknown(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path, rows=[Ran(ITER, 80, sm=3), Ran(ITER, 90, sm=3, start_record=2, end_record=3)])
    check_note(note(timeline, "iterations of iter[0]"), "iterations without numbers")


def test_the_last_wave_and_the_tail(tmp_path: Path) -> None:
    timeline = with_ctas(tmp_path, *[(sm, 0, 820) for sm in range(132)], *[(sm, 820, 1000) for sm in range(12)])
    lines = [note(timeline, subject) for subject in ("waves", "tail", "idle")]
    check_note("\n".join(lines), "a last wave")


def test_what_a_tail_comes_of_is_told_where_it_is_two_things(tmp_path: Path) -> None:
    # 9 CTAs on 8 SMs, the last of which takes twice as long as the others.
    timeline = with_ctas(tmp_path, *[(sm, 0, 1000) for sm in range(8)], (0, 1000, 3000))
    check_note(note(timeline, "tail"), "a tail of two causes")


def test_room_by_occupancy_is_told_as_such(tmp_path: Path) -> None:
    timeline = with_ctas(tmp_path, (0, 0, 100))
    kernel = timeline.launch.kernel
    kernel = replace(kernel, with_records=replace(kernel.with_records, ctas_per_sm=4))
    known = replace(timeline, launch=replace(timeline.launch, kernel=kernel))
    check_note(note(known, "waves"), "room by occupancy")


def test_sms_that_all_end_at_once_have_no_tail(tmp_path: Path) -> None:
    assert not [line for line in notes(with_ctas(tmp_path, (0, 0, 100), (1, 0, 100))) if line.startswith("tail")]


LOST = {"cta": 5, "warp": 1, "records_written": 12, "records_lost": 6}
MORE_LOST = {"cta": 5, "warp": 0, "records_written": 10, "records_lost": 2}
OPEN = {"cta": 7, "warp": 1, "records_written": 8, "open_starts": 1}
STRAY = {"cta": 7, "warp": 0, "records_written": 8, "stray_ends": 2}
DAMAGED = {"cta": 0, "warp": 0, "records_written": 8, "records_damaged": 5}


@pytest.mark.parametrize(
    ("case", "changes"),
    [
        ("lost records", {"records_lost": 8, "incomplete": incomplete_rows(LOST, MORE_LOST)}),
        (
            "unpaired records",
            {
                "open_starts": np.array([1, 0, 0, 0]),
                "stray_ends": np.array([0, 2, 0, 0]),
                "incomplete": incomplete_rows(OPEN, STRAY),
            },
        ),
        ("damaged records", {"records_damaged": 5, "incomplete": incomplete_rows(DAMAGED)}),
        ("CTAs that never ran", {"ctas_never_ran": 6}),
        ("a CTA that never ran", {"ctas_never_ran": 1}),
        ("damaged CTAs", {"ctas_damaged": 7}),
        ("a damaged CTA", {"ctas_damaged": 1}),
    ],
)
def test_what_is_missing_is_told_last(tmp_path: Path, case: str, changes: dict[str, Any]) -> None:
    plain = known_launch(tmp_path)
    before, lines = notes(plain), notes(replace(plain, **changes))
    assert lines[: len(before)] == before
    check_note("\n".join(lines[len(before) :]), case)


def test_of_a_decoded_buffer_whose_rings_were_too_small(tmp_path: Path) -> None:
    warp = [entry for cycles in range(100, 900, 100) for entry in (start(ITER, cycles), end(ITER, cycles + 50))]
    timeline = decode_launch(save_launch(tmp_path, SCOPES, [Cta([warp, warp[:4]])], slots=8))
    assert figures(note(timeline, "lost")) == ["8", "20", "40", "1", "1", "0", "0", "8", "16"]


def test_how_long_ctas_wait_for_memory(tmp_path: Path) -> None:
    rows = [Ran(len(SCOPES), 2_500 - at, cta, sm=10 + cta, start_ns=at) for cta, at in enumerate((1_000, 2_000))]
    timeline = known_launch(tmp_path, [*SCOPES, Scope("spin[0]", "spin", 0)], rows)
    ctas = cta_rows(*[(cta, 10 + cta, 0, 50_000, 50_000) for cta in range(3)])
    check_note(note(replace(timeline, ctas=ctas), "spin[0]"), "a flag")
