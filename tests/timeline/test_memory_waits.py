"""Waits of CTAs for memory to change."""

from __future__ import annotations

from pathlib import Path

from barrier_launches import SCOPES, SPIN, Visits, launch
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.timeline.scope_statistics import MemoryWait, MemoryWaitSums
from kprof_inject.timeline.timeline import Timeline


def waits_of(timeline: Timeline) -> tuple[MemoryWait, ...]:
    sums = MemoryWaitSums(timeline)
    for block in timeline.blocks():
        sums.add(block)
    return sums.waits()


def test_a_ctas_wait_is_the_mean_of_its_warps(tmp_path: Path) -> None:
    """One warp of each CTA arrives 10 ns before the other."""
    visits: Visits = [[(1_000, 9_000)], [(3_000, 7_000), (8_000, 9_100)], [(8_900, 9_050)]]
    (wait,) = waits_of(launch(tmp_path, visits))
    assert wait == MemoryWait(index=SPIN, ctas=3, median_ns=5_110.0, min_ns=155.0, max_ns=8_005.0)


def test_without_a_scope_that_waits_there_is_nothing(tmp_path: Path) -> None:
    ctas = cta_rows((0, 0, 0, 1_000, 1_000))
    assert waits_of(made_timeline(tmp_path, SCOPES, [scope_rows([Ran(0, 5)])], ctas)) == ()
