"""How often a scope took how long: exact counts in bins with edges at whole nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import INSTANT
from kprof_inject.report.summary import ScopeSummary

_BINS = 96
# Where the longest takes more times the median than this, equal bins would show a single bar and nothing.
_LOG_FROM = 8


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """A bin goes from one of ``edges_ns``, which ascend, to the next, without that. All are equally wide, or, if
    ``grow``, each is wider than the one before by about the same factor."""

    edges_ns: NDArray[np.int64]
    grow: bool

    @classmethod
    def holding(cls, least_ns: int, greatest_ns: int, median_ns: float) -> Bins:
        """Bins for all durations from the least to the greatest."""
        grow = greatest_ns > _LOG_FROM * max(median_ns, 1)
        if grow:
            steps = np.geomspace(max(least_ns, 1), greatest_ns + 1, _BINS + 1)
            edges = np.unique(np.append(least_ns, np.rint(steps).astype(np.int64)))
        else:
            width = -(-(greatest_ns + 1 - least_ns) // _BINS)
            edges = np.arange(least_ns, greatest_ns + 1, width)
        # However the last step was rounded, the last bin ends behind the greatest.
        return cls(np.append(edges[edges <= greatest_ns], greatest_ns + 1), grow)


class Histograms:
    """The durations of each scope of a launch, counted block by block."""

    def __init__(self, scopes: Sequence[ScopeSummary]) -> None:
        self._bins = [_bins_of(scope) for scope in scopes]
        self._counts = [np.zeros(len(bins.edges_ns) - 1 if bins else 0, dtype=np.int64) for bins in self._bins]

    def add(self, scope: int, durations_ns: NDArray[np.int64]) -> None:
        """Durations of one scope of the launch that was summarised. Those of an instant are passed over."""
        bins, counts = self._bins[scope], self._counts[scope]
        if bins:
            bin_of = np.searchsorted(bins.edges_ns, durations_ns, side="right") - 1
            counts += np.bincount(bin_of, minlength=len(counts))

    def of(self, scope: int) -> dict[str, Any] | None:
        """None if no duration is known."""
        bins = self._bins[scope]
        if bins is None:
            return None
        return {"edges_ns": bins.edges_ns.tolist(), "counts": self._counts[scope].tolist(), "log": bins.grow}


def _bins_of(scope: ScopeSummary) -> Bins | None:
    if scope.kind == INSTANT or scope.min_ns is None or scope.max_ns is None or scope.p50_ns is None:
        return None
    return Bins.holding(scope.min_ns, scope.max_ns, scope.p50_ns)
