"""Rates at which an SM completes iterations of a loop with one CTA on it, and with several.

Both rates are found in one launch: at its begin and its end SMs have fewer CTAs than they have room for, and some
always do where the grid is a little smaller than the device. An SM with one CTA among others with more gets less of
what all share, so the gain by the other CTAs is overestimated. The rates count the work done in a time, not the
duration of each iteration, because CTAs on one SM may progress at very different rates.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.timeline.columns import merged_ranges
from kprof_inject.timeline.timeline import Timeline

Numbers = NDArray[np.int64]
Times = NDArray[np.float64]

# With fewer busy SMs, these get more of what all share: the L2, and memory.
_MIN_BUSY = 0.9
# Fewer iterations, or iterations on fewer SMs, do not give a rate.
_MIN_ITERATIONS = 50
_MIN_SMS = 3

_ITERATIONS = np.dtype([("sm", "i4"), ("start_ns", "i8"), ("end_ns", "i8")])


class Sharing(Struct, frozen=True):
    """Rates of a loop with one CTA on an SM, and with several.

    ``alone_ns`` is the time in which an SM completed an iteration with one CTA on it; ``shared_ns`` the time with
    ``ctas``, the number above one that was there the longest. ``alone`` and ``shared`` are the numbers of these
    iterations. ``outside_ns`` is the time of a CTA before and after its loop, per iteration.
    """

    ctas: int
    alone_ns: float
    shared_ns: float
    outside_ns: float
    alone: float
    shared: float

    @property
    def gain(self) -> float:
        """Relative gain of the rate with ``ctas`` over one, if they hide all time outside of the loop."""
        return (self.alone_ns + self.outside_ns) / self.shared_ns - 1


class SharingSums:
    """Accumulator of the iterations of a launch's loops, 20 bytes each, from blocks of scopes (``SCOPE_COLUMNS``).

    Warps of a CTA do the same work, so one warp of each CTA represents all. The first iteration of each CTA fills a
    pipeline, and does not count.
    """

    def __init__(self, timeline: Timeline) -> None:
        """Prepare lists for the iteration scopes of ``timeline``, if CTAs share SMs in it."""
        # Of the CTAs that do not record, it is unknown how many iterations they complete.
        is_known = not timeline.unrecorded.size and _share_sms(timeline.ctas)
        scopes = timeline.table.scopes if is_known else ()
        self._ctas = timeline.ctas
        self._iterations = {
            index: [np.empty(0, _ITERATIONS)] for index, scope in enumerate(scopes) if scope.kind == ScopeKind.ITERATION
        }
        self._stays = {index: [np.empty(0, _ITERATIONS)] for index in self._iterations}

    def add(self, block: NDArray[np.void]) -> None:
        """Add a block that has all scopes of its CTAs."""
        for scope in self._iterations:
            rows = block[block["scope"] == scope]
            if not rows.size:
                continue
            first, counts = _runs(rows["cta"])
            rows = rows[rows["warp"] == np.repeat(rows["warp"][first], counts)]
            first, counts = _runs(rows["cta"])
            stays = np.empty(len(first), _ITERATIONS)
            stays["sm"] = rows["sm"][first]
            stays["start_ns"] = np.minimum.reduceat(rows["end_ns"], first)
            stays["end_ns"] = np.maximum.reduceat(rows["end_ns"], first)
            later = rows[rows["start_ns"] >= np.repeat(stays["start_ns"], counts)]
            self._stays[scope].append(stays)
            self._iterations[scope].append(later[list(_ITERATIONS.names or ())].astype(_ITERATIONS))

    def of(self, scope: int) -> Sharing | None:
        """Return the rates of a loop, by the index of its iterations' scope.

        None if too little of it was done by CTAs that were alone, or by CTAs that were not.
        """
        if scope not in self._iterations:
            return None
        stays, iterations = np.concatenate(self._stays[scope]), np.concatenate(self._iterations[scope])
        return _sharing(_Loop.of(self._ctas, stays, iterations)) if iterations.size else None


def _share_sms(ctas: NDArray[np.void]) -> bool:
    order = np.lexsort((ctas["init_ns"], ctas["sm"]))
    sm, begins_ns, ends_ns = (ctas[name][order] for name in ("sm", "init_ns", "pre_final_ns"))
    return bool(((sm[1:] == sm[:-1]) & (begins_ns[1:] < ends_ns[:-1])).any())


def _runs(values: NDArray[np.integer]) -> tuple[Numbers, Numbers]:
    """Return the index at which each run of equal values begins, and its length."""
    first = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    return first, np.diff(first, append=len(values))


def _sharing(loop: _Loop) -> Sharing | None:
    state = loop.state()
    time_ns = state.time_ns()
    if len(time_ns) < 3:
        return None
    ctas = int(time_ns[2:].argmax()) + 2
    (alone, alone_ns), (shared, shared_ns) = state.rate(1), state.rate(ctas)
    if min(alone, shared) < _MIN_ITERATIONS:
        return None
    return Sharing(ctas, alone_ns, shared_ns, loop.outside_ns, alone, shared)


class _Loop(Struct, frozen=True):
    """When CTAs were on their SM and in a loop, and when the loop's iterations ran.

    CTAs are on their SM from ``comes`` to ``leaves`` and in the loop from ``begins`` to ``ends``; iterations run from
    ``starts`` to ``stops``. Times begin at 0; all SMs are on one axis, each ``far_ns`` after the one before.
    """

    sms: int
    far_ns: int
    comes: Numbers
    leaves: Numbers
    begins: Numbers
    ends: Numbers
    starts: Numbers
    stops: Numbers

    @classmethod
    def of(cls, ctas: NDArray[np.void], stays: NDArray[np.void], iterations: NDArray[np.void]) -> _Loop:
        sms = np.unique(ctas["sm"])
        first_ns = int(min(ctas["init_ns"].min(), stays["start_ns"].min()))
        leaves_ns = np.maximum(ctas["post_final_ns"], ctas["init_ns"])
        far = int(max(leaves_ns.max(), stays["end_ns"].max())) - first_ns + 2

        def placed(times_ns: Numbers, sm: NDArray[np.integer]) -> Numbers:
            found: Numbers = times_ns - first_ns + np.searchsorted(sms, sm) * far
            return found

        return cls(
            len(sms),
            far,
            *(placed(times_ns, ctas["sm"]) for times_ns in (ctas["init_ns"], leaves_ns)),
            *(placed(rows[name], rows["sm"]) for rows in (stays, iterations) for name in ("start_ns", "end_ns")),
        )

    @property
    def outside_ns(self) -> float:
        inside_ns = float((self.ends - self.begins).sum())
        return max(float((self.leaves - self.comes).sum()) - inside_ns, 0.0) / len(self.starts)

    def state(self) -> _State:
        """Return the state of the SMs while nearly all of them had a CTA in the loop."""
        at, (here, inside) = _levels((self.comes, self.leaves), (self.begins, self.ends))
        when = self._busy_time()
        return _State(self, when, at, np.where(here == inside, inside, 0), when.until(at % self.far_ns))

    def _busy_time(self) -> _ActiveTime:
        begins, ends = merged_ranges(self.begins, self.ends)
        at, (busy_sms,) = _levels((begins % self.far_ns, ends % self.far_ns))
        return _ActiveTime.of(at, busy_sms >= _MIN_BUSY * self.sms)


def _levels(*spans: tuple[Numbers, Numbers]) -> tuple[Numbers, list[Numbers]]:
    """Return the times at which spans of any kind begin or end, and how many of each kind are open from then on."""
    changes = [times for kind in spans for times in kind]
    at = np.concatenate(changes)
    order = np.argsort(at, kind="stable")
    kinds = np.repeat(np.arange(len(changes)), [len(times) for times in changes])[order]
    return at[order], [np.cumsum((kinds == 2 * kind) * 1 - (kinds == 2 * kind + 1)) for kind in range(len(spans))]


class _State(Struct, frozen=True):
    """Number of CTAs that each SM had in the loop while it had no others.

    It is ``there`` from each of ``at`` on; until then nearly all SMs had been busy for ``busy_ns``.
    """

    loop: _Loop
    when: _ActiveTime
    at: Numbers
    there: Numbers
    busy_ns: Times

    def time_ns(self) -> Times:
        """Return for how long SMs had each number of CTAs."""
        lasted_ns = np.append(np.diff(self.busy_ns), 0.0)
        found: Times = np.bincount(self.there, np.where(self.there > 0, lasted_ns, 0.0)).astype(np.float64)
        return found

    def rate(self, ctas: int) -> tuple[float, float]:
        """Return how many iterations were completed with this number of CTAs, and the time per iteration.

        Fractions of iterations count. Both are 0 if there were too few SMs.
        """
        starts, stops = self.loop.starts, self.loop.stops
        lasted_ns = np.maximum(stops - starts, 1)
        parts = (self._until(stops, ctas) - self._until(starts, ctas)) / lasted_ns
        done = float(parts.sum())
        if not done or len(np.unique(starts[parts > 0] // self.loop.far_ns)) < _MIN_SMS:
            return 0.0, 0.0
        return done, float(self.time_ns()[ctas]) / done

    def _until(self, at: Numbers, ctas: int) -> Times:
        """Return for how long this number of CTAs had been there until each time, including all SMs before it."""
        has_ctas = self.there == ctas
        lasted_ns = np.where(has_ctas[:-1], np.diff(self.busy_ns), 0.0)
        before_ns = np.append(0.0, np.cumsum(lasted_ns))
        last = np.maximum(np.searchsorted(self.at, at, "right") - 1, 0)
        since_ns = self.when.until(at % self.loop.far_ns) - self.busy_ns[last]
        found: Times = before_ns[last] + np.where(has_ctas[last], since_ns, 0.0)
        return found


class _ActiveTime(Struct, frozen=True):
    """Time for which a condition held: until each of ``at_ns``, it was ``before_ns``."""

    at_ns: Numbers
    before_ns: Times

    @classmethod
    def of(cls, at_ns: Numbers, is_active: NDArray[np.bool_]) -> _ActiveTime:
        return cls(at_ns, np.append(0.0, np.cumsum(np.where(is_active[:-1], np.diff(at_ns), 0))))

    def until(self, ns: Numbers) -> Times:
        """Return for how long the condition had held until each time."""
        return np.interp(ns, self.at_ns, self.before_ns)
