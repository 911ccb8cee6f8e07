"""What a record costs, from launches whose gaps between records are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from itertools import accumulate, cycle, islice
from pathlib import Path

import pytest
from buffers import Cta, Entry, Scope, buffer_words, end, kernel_json, save_launches, start

from kprof_inject.calibration_process import cost_in, costs_next_to_work
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.record_costs import CostKey, MeasuredCost
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline, decode_launch

NAMES = ["straight_0", "straight_1", "straight_2", "loop_0", "loop_1", "work_0", "work_1", "work_2"]
STRAIGHT, LOOP, WORK = (0, 1, 2), (3, 4), (5, 6, 7)
# Once and twice a work of 60 cycles: from starts to ends, which takes 4 more, and from ends to starts, which takes 6.
WORK_GAPS = (64, 66, 124, 126, 30)
KEY = CostKey.of("H200", "3.6.0", Mode())


def records(scopes: Sequence[int], first: int, gaps: Sequence[int]) -> list[Entry]:
    """A start and an end for each scope, beginning at ``first``, with these gaps between, again and again."""
    times = accumulate([first, *islice(cycle(gaps), 2 * len(scopes) - 1)])
    return [(end if number % 2 else start)(scopes[number // 2], time) for number, time in enumerate(times)]


def warp(
    straight: Sequence[int], rounds: Sequence[Sequence[int]], work: Sequence[Sequence[int]] = (WORK_GAPS,)
) -> list[Entry]:
    """The records of a warp of our kernel; a round of a loop takes two thousand cycles."""
    bodies = [*((LOOP, gaps) for gaps in rounds), *((WORK, gaps) for gaps in work)]
    loops = [records(scopes, 1_000 + 2_000 * number, gaps) for number, (scopes, gaps) in enumerate(bodies, 1)]
    return [*records(STRAIGHT, 1_000, straight), *(entry for loop in loops for entry in loop)]


def decoded(folder: Path, *launches: Sequence[Cta]) -> list[Timeline]:
    words = [buffer_words(ctas, 64) for ctas in launches]
    kernel = kernel_json([Scope(name, "mark") for name in NAMES], words[0], 2)
    return [decode_launch(launch) for launch in save_launches(folder, kernel, words)]


def cost(folder: Path, *launches: Sequence[Cta]) -> MeasuredCost:
    return cost_in(decoded(folder, *launches), KEY)


def test_what_follows_a_start_and_what_follows_an_end_are_told_apart(tmp_path: Path) -> None:
    one = warp([31, 41], [[20, 50, 24]] * 4)
    measured = cost(tmp_path, [Cta([one, one])] * 3)
    # Outside of the loop there are three gaps of 31 and two of 41.
    assert measured == MeasuredCost(*astuple(KEY), 36.0, 22.0, 50.0, 4.0, 6.0, 35.0, 0.0, 2 * 3 * (4 * 3 + 5))


def test_beside_work_it_is_what_one_takes_longer_than_half_of_two(tmp_path: Path) -> None:
    held_up = [(1_000, 66, 124, 126, 30), WORK_GAPS, (64, 900, 124, 126, 700), (64, 66, 800, 126, 30), WORK_GAPS]
    one = warp([30], [[30]], held_up)
    assert costs_next_to_work(decoded(tmp_path, [Cta([one, one])] * 3)) == (4.0, 6.0)


def test_beside_work_that_hides_a_record_whole_it_costs_nothing(tmp_path: Path) -> None:
    one = warp([30], [[30]], [(60, 66, 121, 126, 30)] * 4)
    timelines = decoded(tmp_path, [Cta([one, one])])
    assert costs_next_to_work(timelines) == (-1.0, 6.0)
    measured = cost_in(timelines, KEY)
    assert (measured.after_start_beside_work_cycles, measured.after_end_beside_work_cycles) == (0.0, 6.0)


def test_a_warp_that_was_held_up_now_and_then_makes_no_difference(tmp_path: Path) -> None:
    usual = warp([34], [[30, 32, 30]] * 5)
    held_up = warp([34, 300], [[30, 32, 30], [700, 32, 30], [30, 32, 600], [30, 32, 30], [30, 800, 30]])
    measured = cost(tmp_path, [Cta([usual, held_up]), Cta([usual, usual])], [Cta([usual, usual])] * 2)
    assert (measured.cycles, measured.straight_cycles) == (31.0, 34.0)


def test_the_spread_is_where_half_of_them_lie(tmp_path: Path) -> None:
    rounds = [[10 + number] * 3 for number in (0, 10, 20, 30, 40)]
    measured = cost(tmp_path, [Cta([warp([30], rounds)] * 2)])
    # Of the three places in the loop 20; of the five outside of it nothing.
    assert (measured.cycles, measured.spread_cycles) == (30.0, 20 * 3 / 8)


@pytest.mark.parametrize("ctas", [[Cta([[], []])], [Cta([[start(3, 1_000)], [start(3, 1_000), end(3, 1_034)]])]])
def test_without_all_records_there_is_no_cost(tmp_path: Path, ctas: list[Cta]) -> None:
    with pytest.raises(KprofError, match="records of the calibration are missing"):
        cost(tmp_path, ctas)
