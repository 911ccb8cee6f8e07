"""Bins of durations: all are counted, each in the one that holds it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from buffers import Scope
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.summary import summarise
from kprof_inject.report.html.pictures import Bins, Histograms


@pytest.mark.parametrize(
    ("least", "greatest", "median"),
    [(0, 0, 0.0), (7, 7, 7.0), (0, 3, 1.0), (100, 900, 500.0), (0, 10**9, 40.0), (5, 10**15, 6.0), (1, 97, 1.0)],
)
def test_bins_hold_all_from_the_least_to_the_greatest(least: int, greatest: int, median: float) -> None:
    edges = Bins.holding(least, greatest, median).edges_ns
    assert (edges[0], edges[-1]) == (least, greatest + 1)
    assert (np.diff(edges) > 0).all()
    assert len(edges) <= 99


def test_every_duration_is_counted_in_its_bin(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    durations = np.concatenate((random.lognormal(6, 0.4, 500), [90_000, 0])).astype(np.int64)
    rows = scope_rows([Ran(0, int(ns)) for ns in durations])
    summary = summarise(made_timeline(tmp_path, [Scope("load", "op")], [rows], cta_rows((0, 0, 0, 100, 100))))
    histograms = Histograms(summary.scopes)
    # Block by block.
    histograms.add(0, durations[:200])
    histograms.add(0, durations[200:])
    found = histograms.of(0)
    assert found is not None
    edges = found.edges_ns
    expected = [sum(first <= ns < after for ns in durations) for first, after in pairwise(edges)]
    assert found.counts == expected
    assert sum(found.counts) == len(durations)
    assert found.log
