"""Each scope by itself: how its durations are spread, where it ran, and how its iterations go."""

from __future__ import annotations

from typing import Any

import numpy as np

from kprof_inject.printable import printable
from kprof_inject.report.html.sections.histograms import Histograms
from kprof_inject.report.html.sections.iteration_bands import IterationBands
from kprof_inject.report.summary import LaunchSummary, ScopeSummary
from kprof_inject.timeline.statistics.spread import Groups
from kprof_inject.timeline.timeline import Timeline

# No device has as many SMs; a damaged header may name any.
_MOST_GROUPS = 512


def scope_pictures(timeline: Timeline, summary: LaunchSummary) -> list[dict[str, Any]]:
    """One object for each scope of the table, in its order. Reads the launch once more."""
    histograms, bands = Histograms(summary.scopes), IterationBands(summary.scopes)
    for block in timeline.blocks():
        order = np.argsort(block["scope"], kind="stable")
        scope, durations_ns, iterations = (block[name][order] for name in ("scope", "duration_ns", "iteration"))
        present, begins = np.unique(scope, return_index=True)
        for index, begin, end in zip(present.tolist(), begins, np.append(begins[1:], len(scope)), strict=True):
            histograms.add(index, durations_ns[begin:end])
            bands.add(index, iterations[begin:end], durations_ns[begin:end])
    return [
        {
            **_facts(scope),
            "histogram": histograms.of(index),
            "iterations": bands.of(index),
            "warps": _means(scope.warps),
            "sms": _means(scope.sms),
        }
        for index, scope in enumerate(summary.scopes)
    ]


def _facts(scope: ScopeSummary) -> dict[str, Any]:
    return {
        "name": printable(scope.scope),
        "kind": scope.kind,
        "depth": scope.depth,
        "source": printable(scope.source),
        "count": scope.count,
        "share": scope.share,
        "total_ns": scope.total_ns,
        "self_ns": scope.self_ns,
        "mean_ns": scope.mean_ns,
        "min_ns": scope.min_ns,
        "p50_ns": scope.p50_ns,
        "p90_ns": scope.p90_ns,
        "p99_ns": scope.p99_ns,
        "max_ns": scope.max_ns,
        "mean_cycles": scope.mean_cycles,
        "without_partner": scope.without_partner,
        "cut": scope.cut,
        "crossing": scope.crossing,
    }


def _means(groups: Groups) -> dict[str, Any]:
    """What the scope took on the average in each warp or SM."""
    means_ns = groups.totals_ns / np.maximum(groups.counts, 1)
    part = slice(_MOST_GROUPS)
    return {
        "ids": groups.ids[part].tolist(),
        "counts": groups.counts[part].tolist(),
        "means_ns": np.round(means_ns[part], 1).tolist(),
        "left_out": max(len(groups.ids) - _MOST_GROUPS, 0),
    }
