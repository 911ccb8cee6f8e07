"""Spreads over warps, CTAs and SMs, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kprof_inject.timeline.spread import CtaBalance, CtaSums, GroupSpread, SpreadGroups, narrow, spread_of


def groups(*rows: tuple[int, int, int]) -> SpreadGroups:
    """Id, count and total of each."""
    ids, counts, totals_ns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return SpreadGroups(ids, counts, totals_ns)


def cta_sums(*rows: tuple[int, int, int, int], scopes: int = 1) -> CtaSums:
    """Scope, CTA, warp and duration of each scope that ran."""
    sums = CtaSums(scopes)
    scope, cta, warp, duration_ns = np.array(rows, dtype=np.int64).T
    sums.add(scope.astype(np.int16), cta.astype(np.int32), warp.astype(np.int16), duration_ns)
    return sums


def test_a_spread_names_the_slowest_and_the_fastest() -> None:
    found = spread_of(groups((0, 2, 200), (1, 1, 90), (2, 4, 440), (3, 10, 1800)))
    assert found == GroupSpread(4, 90.0, 1, 105.0, 120.0, 180.0, 3, 1.5)


def test_of_equals_the_first_is_named() -> None:
    found = spread_of(groups((4, 1, 10), (5, 1, 10)))
    assert found == GroupSpread(2, 10.0, 4, 10.0, 10.0, 10.0, 4, 1.0)


def test_where_no_time_was_taken_all_are_alike() -> None:
    found = spread_of(groups((0, 3, 0), (1, 2, 0)))
    assert found is not None
    assert (found.greatest_ns, found.imbalance) == (0.0, 1.0)


def test_the_warps_of_a_cta_are_compared_by_their_totals() -> None:
    # In CTA 5 the warps take 40, 20 and 0; in CTA 6 as much each; in CTA 7 there is but one.
    sums = cta_sums(
        *[(0, 5, 0, 15), (0, 5, 0, 25), (0, 5, 1, 20), (0, 5, 2, 0)],
        *[(0, 6, 0, 30), (0, 6, 1, 30), (0, 7, 2, 500)],
    )
    assert sums.of(0)[1] == CtaBalance(2, 1.5, 2.0, 5)


def test_another_slow_warp_in_each_cta_is_seen_within_the_ctas_alone() -> None:
    rows = [(0, cta, warp, 90 if warp == cta else 30) for cta in range(4) for warp in range(4)]
    spread, balance = cta_sums(*rows).of(0)
    assert spread is not None
    assert spread.imbalance == 1.0
    assert balance == CtaBalance(4, 2.0, 2.0, 0)


def test_warps_that_took_no_time_are_in_balance() -> None:
    assert cta_sums((0, 5, 0, 0), (0, 5, 1, 0)).of(0)[1] == CtaBalance(1, 1.0, 1.0, 5)


@pytest.mark.parametrize("long_ns", [2**31, 2**40])
def test_long_totals_are_not_cut(long_ns: int) -> None:
    assert narrow(np.array([long_ns])).itemsize == 8
    spread, _ = cta_sums((0, 5, 0, long_ns), (0, 6, 0, 1)).of(0)
    assert spread is not None
    assert spread.greatest_ns == long_ns
