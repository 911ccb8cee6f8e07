"""Overlap of communication with computation in a launch.

Scopes that access a peer's memory transfer; those that wait until a peer changes a flag wait. The rest of the launch's
scopes compute, or do nothing that counts. A CTA computes, transfers or waits as long as any of its warps does.
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
    compute at all do so. ``without_ns`` is its time less the time in which, on the SM that would then end last, CTAs
    communicate and none computes; None if no CTA computes.
    """

    transferring_ns: int
    waiting_ns: int
    communicating_ns: int
    computing_ns: int
    both_ns: int
    mean_ctas: float
    ctas: int
    without_ns: int | None


_SUMS = ("transferring_ns", "waiting_ns", "communicating_ns", "computing_ns", "both_ns", "ctas")


def median_overlap(overlaps: Sequence[Overlap]) -> Overlap:
    """Return the median of each figure over launches, of which there is at least one."""
    without_ns = [one.without_ns for one in overlaps if one.without_ns is not None]
    return Overlap(
        mean_ctas=median(one.mean_ctas for one in overlaps),
        without_ns=round(median(without_ns)) if without_ns else None,
        **{name: round(median(getattr(one, name) for one in overlaps)) for name in _SUMS},
    )


def overlap_of(timeline: Timeline, doing: Sequence[Doing]) -> Overlap | None:
    """Return the overlap in a launch, whose scopes are ``doing`` something by their index in the scope table.

    None if records are missing, or if the launch does not communicate. Of a CTA, the first recorded warp counts, of a
    warp-specialized kernel, the first of each partition.
    """
    if not has_all(timeline):
        return None
    states = _cta_states(timeline, np.array([*doing, Doing.NOTHING], dtype=np.int8))
    communicates = states["transfers"] | states["waits"]
    if not communicates.any():
        return None

    order = np.argsort(states["at_ns"], kind="stable")
    lasting = np.diff(states["at_ns"][order], append=states["at_ns"][order[-1:]])

    def ctas_that(does: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many CTAs do something from each time on, in the order of the times."""
        found: NDArray[np.int64] = np.cumsum(_changes(does, states["cta"])[order])
        return found

    computing, transferring = ctas_that(states["computes"]), ctas_that(states["transfers"])
    waiting, communicating = ctas_that(states["waits"]), ctas_that(communicates)
    communicating_ns = int(lasting[communicating > 0].sum())
    return Overlap(
        transferring_ns=int(lasting[transferring > 0].sum()),
        waiting_ns=int(lasting[waiting > 0].sum()),
        communicating_ns=communicating_ns,
        computing_ns=int(lasting[computing > 0].sum()),
        both_ns=int(lasting[(communicating > 0) & (computing > 0)].sum()),
        mean_ctas=float((lasting * computing)[communicating > 0].sum() / max(communicating_ns, 1)),
        ctas=len(np.unique(states["cta"][states["computes"]])),
        without_ns=_without_ns(timeline, states, communicates),
    )


_STATE = np.dtype([("cta", "i4"), ("sm", "i4"), ("at_ns", "i8"), ("computes", "?"), ("transfers", "?"), ("waits", "?")])
"""State of a CTA from a time on."""


def _cta_states(timeline: Timeline, doing: NDArray[np.int8]) -> NDArray[np.void]:
    """Return the states of the CTAs, by CTA and time; in its last one, a CTA does nothing."""
    parts = [_states_in(block[np.isin(block["warp"], _first_warps(timeline))], doing) for block in timeline.blocks()]
    return np.concatenate([np.empty(0, _STATE), *parts])


def _first_warps(timeline: Timeline) -> list[int]:
    """Return the first recorded warp of each partition, or the first one of all."""
    of_partitions = [min(partition.warps) for partition in timeline.partitions if partition.warps]
    return of_partitions or [min(timeline.warps, default=0)]


def _states_in(rows: NDArray[np.void], doing: NDArray[np.int8]) -> NDArray[np.void]:
    """Return the states of a block's CTAs, whose rows are by CTA, warp and start."""
    own = doing[rows["scope"]]
    around = np.append(own, Doing.NOTHING)[_parents(rows)]
    differs = own != around
    rows, own, around = rows[differs], own[differs], around[differs]
    times = np.concatenate((rows["start_ns"], rows["end_ns"]))
    ctas = np.concatenate((rows["cta"], rows["cta"]))
    order = np.lexsort((times, ctas))
    states = np.empty(len(order), _STATE)
    states["cta"], states["at_ns"] = ctas[order], times[order]
    states["sm"] = np.concatenate((rows["sm"], rows["sm"]))[order]
    for name, what in (
        ("computes", Doing.COMPUTING),
        ("transfers", Doing.TRANSFERRING),
        ("waits", Doing.WAITING),
    ):
        begun = (own == what).astype(np.int64) - (around == what)
        # Each CTA's sum ends with 0, so the next one's begins with it.
        states[name] = np.cumsum(np.concatenate((begun, -begun))[order]) > 0
    return states


def _parents(rows: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the row of the scope around each; -1 if the warp has none."""
    found = np.full(len(rows), -1)
    number = np.arange(len(rows))
    key = rows["cta"].astype(np.int64) << 16 | rows["warp"]
    begins = np.searchsorted(key, key)
    for depth in range(1, int(rows["depth"].max(initial=0)) + 1):
        last = np.maximum.accumulate(np.where(rows["depth"] == depth - 1, number, -1))
        at = rows["depth"] == depth
        found[at] = np.where(last[at] >= begins[at], last[at], -1)
    return found


def _changes(does: NDArray[np.bool_], group: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return where the members of consecutive groups begin to do something (1), and where they end (-1)."""
    before = np.append(False, does[:-1]) & np.append(False, group[1:] == group[:-1])
    found: NDArray[np.int64] = does.astype(np.int64) - before
    return found


def _without_ns(timeline: Timeline, states: NDArray[np.void], communicates: NDArray[np.bool_]) -> int | None:
    """Return when the last SM would be done without the time in which its CTAs only communicate."""
    computing_ctas = np.unique(states["cta"][states["computes"]])
    ctas = timeline.ctas[np.isin(timeline.ctas["cta"], computing_ctas)]
    if not ctas.size:
        return None
    order = np.lexsort((states["at_ns"], states["sm"]))
    own = states[order]
    computing = np.cumsum(_changes(states["computes"], states["cta"])[order])
    communicating = np.cumsum(_changes(communicates, states["cta"])[order])
    only = np.flatnonzero((computing == 0) & (communicating > 0))
    following = np.append(own["at_ns"][1:], own["at_ns"][-1:])
    latest = 0
    for sm in np.unique(ctas["sm"]).tolist():
        end_ns = int(ctas["pre_final_ns"][ctas["sm"] == sm].max())
        at = only[own["sm"][only] == sm]
        given_up = np.maximum(np.minimum(following[at], end_ns) - own["at_ns"][at], 0).sum()
        latest = max(latest, end_ns - timeline.first_ns - int(given_up))
    return latest
