"""Bins of durations: all are counted, each in the one that holds it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from kprof_inject.report.html.pictures import Histogram


@pytest.mark.parametrize(
    ("least", "greatest", "median"),
    [(0, 0, 0.0), (7, 7, 7.0), (0, 3, 1.0), (100, 900, 500.0), (0, 10**9, 40.0), (5, 10**15, 6.0), (1, 97, 1.0)],
)
def test_bins_hold_all_from_the_least_to_the_greatest(least: int, greatest: int, median: float) -> None:
    edges = Histogram.holding(least, greatest, median).edges_ns
    assert (edges[0], edges[-1]) == (least, greatest + 1)
    assert (np.diff(edges) > 0).all()
    assert len(edges) <= 99


def test_every_duration_is_counted_in_its_bin() -> None:
    random = np.random.default_rng(3)
    durations = np.concatenate((random.lognormal(6, 0.4, 500), [90_000, 0])).astype(np.int64)
    found = Histogram.holding(0, 90_000, float(np.median(durations)))
    # Block by block.
    found.add(durations[:200])
    found.add(durations[200:])
    expected = [sum(first <= ns < after for ns in durations) for first, after in pairwise(found.edges_ns)]
    assert found.counts.tolist() == expected
    assert found.counts.sum() == len(durations)
    assert found.log
