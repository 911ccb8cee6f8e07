"""Waits of CTAs for memory to change, and the CTA that all others wait for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from barrier_launches import SCOPES, SPIN, Visits, launch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replacing import replace
from timelines import Ran, cta_rows, incomplete_rows, made_timeline, scope_rows

from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.memory_waits import Barrier, MemoryWait, MemoryWaitSums
from kprof_inject.timeline.timeline import Timeline


def waits_of(timeline: Timeline) -> tuple[MemoryWait, ...]:
    sums = MemoryWaitSums(timeline)
    for block in timeline.blocks():
        sums.add(block)
    return sums.waits()


def test_the_cta_that_is_late_is_named_and_how_late(tmp_path: Path) -> None:
    """Three rounds of four CTAs, 1 µs apart from each other; in two of them CTA 2 comes 5 µs later."""
    visits: Visits = [[], [], [], []]
    for number, last in enumerate((2, 1, 2)):
        begin = 100_000 * (number + 1)
        arrivals = [begin + 1_000 * cta + 5_000 * (cta == last) for cta in range(4)]
        for cta in range(4):
            visits[cta].append((arrivals[cta], max(arrivals) + 200 + cta))
    (wait,) = waits_of(launch(tmp_path, visits))
    assert wait.barrier == Barrier(
        rounds=3, cta=2, sm=7, last_in=2, after_median_ns=5_000.0, after_next_ns=4_000.0, spread_ns=7_000.0
    )
    totals = [sum(leaves - arrives for arrives, leaves in rounds) + 3 * 5 for rounds in visits]
    assert (wait.index, wait.ctas) == (SPIN, 4)
    assert (wait.min_ns, wait.median_ns, wait.max_ns) == (min(totals), np.median(totals), max(totals))


BARRIER: Visits = [[(1_000, 9_000)], [(3_000, 9_100)], [(8_900, 9_050)]]


def test_who_leaves_before_the_last_arrives_waits_for_something_else(tmp_path: Path) -> None:
    assert waits_of(launch(tmp_path / "a", BARRIER))[0].barrier
    early = [BARRIER[0], [(3_000, 7_000)], BARRIER[2]]
    (wait,) = waits_of(launch(tmp_path / "b", early))
    assert wait.barrier is None
    assert (wait.min_ns, wait.max_ns) == (155, 8_005)


def test_who_goes_on_waiting_after_the_last_arrival_waits_for_something_else(tmp_path: Path) -> None:
    """Another GPU may be what they wait for."""
    (wait,) = waits_of(launch(tmp_path, [[(1_000, 29_000)], [(3_000, 29_100)], [(8_900, 29_050)]]))
    assert wait.barrier is None


@pytest.mark.parametrize("visits", [[*BARRIER, []], [*BARRIER[:2], BARRIER[2] * 2], BARRIER[:1]])
def test_all_ctas_wait_as_often_in_a_barrier(tmp_path: Path, visits: Visits) -> None:
    (wait,) = waits_of(launch(tmp_path, visits))
    assert wait.barrier is None


def test_of_ctas_or_records_that_lack_nobody_knows_which_was_last(tmp_path: Path) -> None:
    whole = launch(tmp_path, BARRIER)
    others = cta_rows((3, 1, 0, 1_000_000, 1_000_000))
    for part in (
        replace(whole, unrecorded=others),
        replace(whole, ctas_damaged=1),
        replace(whole, incomplete=incomplete_rows({"cta": 1, "records_lost": 2})),
        replace(whole, clock=replace(whole.clock, source=ClockSource.NOMINAL)),
        replace(whole, ctas=whole.ctas[:2], _ctas_that_ran=whole.ctas),
    ):
        (wait,) = waits_of(part)
        assert wait.barrier is None and wait.ctas == 3


def test_without_a_scope_that_waits_there_is_nothing(tmp_path: Path) -> None:
    ctas = cta_rows((0, 0, 0, 1_000, 1_000))
    assert waits_of(made_timeline(tmp_path, SCOPES, [scope_rows([Ran(0, 5)])], ctas)) == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.integers(2, 5).flatmap(
        lambda rounds: st.lists(
            st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 2_000)), min_size=rounds, max_size=rounds),
            min_size=2,
            max_size=5,
        )
    )
)
def test_the_last_is_found_as_by_hand(tmp_path_factory: pytest.TempPathFactory, drawn: Visits) -> None:
    visits = [
        [(10_000 * number + at, 10_000 * number + at + length) for number, (at, length) in enumerate(rounds)]
        for rounds in drawn
    ]
    (wait,) = waits_of(launch(tmp_path_factory.mktemp("launch"), visits))
    last = [max(range(len(visits)), key=lambda cta: visits[cta][number]) for number in range(len(visits[0]))]
    is_barrier = all(
        -1_000 <= min(rounds[number][1] for rounds in visits) - visits[last[number]][number][0] <= 2_000
        for number in range(len(last))
    )
    assert (wait.barrier is not None) == is_barrier
    if wait.barrier is not None:
        arrivals = [[rounds[number][0] for rounds in visits] for number in range(len(last))]
        assert wait.barrier.spread_ns == np.median([max(times) - min(times) for times in arrivals])
        mine = [number for number, times in enumerate(arrivals) if times[wait.barrier.cta] == max(times)]
        assert len(mine) >= wait.barrier.last_in
