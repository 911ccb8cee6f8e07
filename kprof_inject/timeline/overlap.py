"""Overlap of communication with computation in a launch.

Scopes that access a peer's memory transfer; those that wait until a peer changes a flag wait. The rest of the launch's
scopes compute, or do nothing that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from statistics import median

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.timeline.memory_waits import has_all
from kprof_inject.timeline.timeline import Timeline


class Doing(IntEnum):
    """Activity of a scope's warps outside the scopes in it."""

    NOTHING = 0
    """They compute and move next to nothing, or wait for CTAs of their own launch."""
    COMPUTING = 1
    TRANSFERRING = 2
    """They access memory of peers."""
    WAITING = 3
    """They wait until a peer changes a flag."""


class Overlap(Struct, frozen=True):
    """Times in which CTAs of a launch communicate and compute, in ns, each as long as at least one CTA does so.

    The launch communicates as long as a CTA transfers or waits for a peer. Meanwhile ``mean_ctas`` of the ``ctas`` that
    compute at all do so. Without its transfers and waits, and with all else as long, the launch would take
    ``without_ns``.
    """

    transferring_ns: int
    waiting_ns: int
    communicating_ns: int
    computing_ns: int
    both_ns: int
    mean_ctas: float
    ctas: int
    without_ns: int


_WHOLE = tuple(name for name in Overlap.__struct_fields__ if name != "mean_ctas")


def median_overlap(overlaps: Sequence[Overlap]) -> Overlap:
    """Return the median of each figure over launches, of which there is at least one."""
    whole = {name: round(median(getattr(one, name) for one in overlaps)) for name in _WHOLE}
    return Overlap(mean_ctas=median(one.mean_ctas for one in overlaps), **whole)


def overlap_of(timeline: Timeline, doing: Sequence[Doing]) -> Overlap | None:
    """Return the overlap in a launch, whose scopes are ``doing`` something by their index in the scope table.

    None if records are missing, or if the launch does not communicate. One warp of each CTA counts; in a
    warp-specialized kernel, one of each partition.
    """
    if not has_all(timeline):
        return None
    rows = _first_warps(timeline.scopes)
    of_scope = np.array([*doing, Doing.NOTHING], dtype=np.int8)
    parents = np.array([*(scope.parent for scope in timeline.table.scopes), -1])
    own, around = of_scope[rows["scope"]], of_scope[parents[rows["scope"]]]
    changes = own != around
    rows, own, around = rows[changes], own[changes], around[changes]
    is_sent = _communicates(own)
    if not is_sent.any():
        return None

    times = np.concatenate((rows["start_ns"], rows["end_ns"]))
    order = np.argsort(times, kind="stable")
    lasting = np.diff(times[order], append=times[order[-1:]])

    def count(what: Doing) -> NDArray[np.int64]:
        begun = (own == what).astype(np.int64) - (around == what)
        found: NDArray[np.int64] = np.cumsum(np.concatenate((begun, -begun))[order])
        return found

    computing, transferring, waiting = map(count, (Doing.COMPUTING, Doing.TRANSFERRING, Doing.WAITING))
    is_communicating = (transferring > 0) | (waiting > 0)
    communicating_ns = int(lasting[is_communicating].sum())
    computing_ctas = np.unique(rows["cta"][own == Doing.COMPUTING])
    return Overlap(
        transferring_ns=int(lasting[transferring > 0].sum()),
        waiting_ns=int(lasting[waiting > 0].sum()),
        communicating_ns=communicating_ns,
        computing_ns=int(lasting[computing > 0].sum()),
        both_ns=int(lasting[is_communicating & (computing > 0)].sum()),
        mean_ctas=float((lasting * computing)[is_communicating].sum() / max(communicating_ns, 1)),
        ctas=len(computing_ctas),
        without_ns=_without_ns(timeline, rows, is_sent.astype(np.int64) - _communicates(around), computing_ctas),
    )


def _communicates(doing: NDArray[np.int8]) -> NDArray[np.bool_]:
    return np.isin(doing, (Doing.TRANSFERRING, Doing.WAITING))


def _first_warps(rows: NDArray[np.void]) -> NDArray[np.void]:
    """Return the scopes of the first warp that runs them, in each CTA."""
    key = rows["cta"].astype(np.int64) << 16 | rows["scope"]
    order = np.lexsort((rows["warp"], key))
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    first = np.repeat(rows["warp"][order][begins], np.diff(begins, append=len(rows)))
    found: NDArray[np.void] = rows[order[rows["warp"][order] == first]]
    return found


def _without_ns(
    timeline: Timeline, rows: NDArray[np.void], sent: NDArray[np.int64], computing_ctas: NDArray[np.int32]
) -> int:
    """Return when the last SM would be done, if no CTA took the time of rows that ``sent`` counts.

    CTAs that compute nothing do not count. Those of one SM that run at once give their times up together.
    """
    ctas = timeline.ctas[np.isin(timeline.ctas["cta"], computing_ctas)]
    if not ctas.size:
        return 0
    ctas = ctas[np.argsort(ctas["cta"])]
    place = np.searchsorted(ctas["cta"], rows["cta"])
    is_own = (place < len(ctas)) & (ctas["cta"][np.minimum(place, len(ctas) - 1)] == rows["cta"])
    lasting = (rows["end_ns"] - rows["start_ns"]) * sent
    given_up = np.bincount(place[is_own], weights=lasting[is_own], minlength=len(ctas))
    latest = 0.0
    for sm in np.unique(ctas["sm"]):
        at = ctas["sm"] == sm
        own = ctas[at]
        span_ns = int(own["pre_final_ns"].max() - own["init_ns"].min())
        at_once = max(float((own["pre_final_ns"] - own["init_ns"]).sum()) / max(span_ns, 1), 1.0)
        latest = max(latest, float(own["pre_final_ns"].max()) - timeline.first_ns - given_up[at].sum() / at_once)
    return round(latest)
