"""How a scope's time differs from warp to warp, CTA to CTA, SM to SM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.statistics.by_scope import ByScope, narrow


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Where one scope ran: the ``ids`` of the warps, CTAs or SMs, how often it did there, and what that took."""

    ids: NDArray[np.int64]
    counts: NDArray[np.int64]
    totals_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean durations of one scope in each of ``groups`` warps, CTAs or SMs: the least and the greatest of them with
    whose it is (the first, if several are alike), the middle one, and their mean. ``imbalance`` is the greatest over
    the mean: 1 if all are alike, and 1 too where no time was taken at all."""

    groups: int
    least_ns: float
    least_id: int
    median_ns: float
    mean_ns: float
    greatest_ns: float
    greatest_id: int
    imbalance: float


@dataclass(frozen=True, slots=True)
class CtaBalance:
    """How the warps of one CTA share a scope's time: the total of its slowest warp over the mean of those that ran the
    scope, in the middle and in the worst of the ``ctas`` in which at least two did."""

    ctas: int
    median_imbalance: float
    greatest_imbalance: float
    greatest_cta: int


def spread_of(groups: Groups) -> Spread | None:
    """None if the scope ran nowhere."""
    if not groups.ids.size:
        return None
    means = groups.totals_ns / groups.counts
    least, greatest = int(means.argmin()), int(means.argmax())
    mean_ns = float(means.mean())
    return Spread(
        len(means),
        float(means[least]),
        int(groups.ids[least]),
        float(np.median(means)),
        mean_ns,
        float(means[greatest]),
        int(groups.ids[greatest]),
        float(means[greatest]) / mean_ns if mean_ns else 1.0,
    )


class GroupSums:
    """What each scope takes in each of a known set of warps or SMs."""

    def __init__(self, scope_count: int, ids: NDArray[np.int64]) -> None:
        """``ids`` are ascending."""
        self._ids = ids
        self._counts = np.zeros((scope_count, len(ids)), dtype=np.int64)
        self._totals_ns = np.zeros((scope_count, len(ids)), dtype=np.int64)

    def add(self, scope: NDArray[np.int16], group: NDArray[np.integer], duration_ns: NDArray[np.int64]) -> None:
        scopes, groups = self._counts.shape
        cell = scope.astype(np.int64) * groups + np.searchsorted(self._ids, group)
        counts = np.bincount(cell, minlength=scopes * groups)
        # Doubles: exact up to 2^53 ns in one block, which are 104 days.
        totals_ns = np.bincount(cell, duration_ns, scopes * groups)
        self._counts += counts.reshape(scopes, groups)
        self._totals_ns += totals_ns.reshape(scopes, groups).astype(np.int64)

    def of(self, scope: int) -> Groups:
        ran = np.flatnonzero(self._counts[scope])
        return Groups(self._ids[ran], self._counts[scope, ran], self._totals_ns[scope, ran])

    def total_ns(self, scopes: Sequence[int], ids: Sequence[int]) -> int:
        """What these scopes take in these warps or SMs, together."""
        rows, columns = np.array(scopes, dtype=np.int64), np.searchsorted(self._ids, ids)
        return int(self._totals_ns[np.ix_(rows, columns)].sum())


class CtaSums:
    """What each scope takes in each CTA: 16 bytes for each pair of them that occurs."""

    def __init__(self, scope_count: int) -> None:
        self._ctas = ByScope(scope_count)
        self._counts = ByScope(scope_count)
        self._totals_ns = ByScope(scope_count)
        self._imbalances = ByScope(scope_count)

    def add(
        self, scope: NDArray[np.int16], cta: NDArray[np.int32], warp: NDArray[np.int16], duration_ns: NDArray[np.int64]
    ) -> None:
        """The scopes of whole CTAs, at least one, ordered by scope, CTA and warp."""
        begins_cta = np.append(True, (scope[1:] != scope[:-1]) | (cta[1:] != cta[:-1]))
        begins_warp = begins_cta | np.append(True, warp[1:] != warp[:-1])
        first, first_of_warp = np.flatnonzero(begins_cta), np.flatnonzero(begins_warp)
        warp_ns = np.add.reduceat(duration_ns, first_of_warp)
        at = np.searchsorted(first_of_warp, first)
        cta_ns = np.add.reduceat(warp_ns, at)
        warps = np.diff(at, append=len(warp_ns))
        imbalance = np.maximum.reduceat(warp_ns, at) * warps / np.maximum(cta_ns, 1)
        imbalance[cta_ns == 0] = 1.0
        imbalance[warps == 1] = np.nan

        owner = scope[first]
        self._ctas.add(owner, cta[first])
        self._counts.add(owner, narrow(np.diff(first, append=len(scope))))
        self._totals_ns.add(owner, narrow(cta_ns))
        self._imbalances.add(owner, imbalance.astype(np.float32))

    def of(self, scope: int) -> tuple[Spread | None, CtaBalance | None]:
        """The spread over the CTAs, and the balance within them."""
        ctas = self._ctas.joined(scope)
        groups = Groups(ctas, self._counts.joined(scope), self._totals_ns.joined(scope))
        return spread_of(groups), _balance_of(ctas, self._imbalances.joined(scope))


def _balance_of(ctas: NDArray[np.int64], imbalances: NDArray[np.float32]) -> CtaBalance | None:
    shared = np.flatnonzero(~np.isnan(imbalances))
    if not shared.size:
        return None
    found = imbalances[shared]
    worst = int(found.argmax())
    return CtaBalance(len(found), float(np.median(found)), float(found[worst]), int(ctas[shared[worst]]))
