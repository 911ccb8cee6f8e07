"""What CTAs on one SM take from each other: how often an SM gets an iteration of a loop done with one CTA on it, and
with several.

Both are found in one launch: at its begin and its end SMs have fewer CTAs than they have room for, and all the time
some do where the grid is a little smaller than the device. Those that have one among others with more get less of what
all share, so that the gain by the others is rather told too large. Counted is what is done in a time, and not how long
each iteration takes: CTAs on one SM may get ahead at very different rates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.timeline.ranges import merged
from kprof_inject.timeline.timeline import Timeline

Numbers = NDArray[np.int64]
Times = NDArray[np.float64]

# With more SMs without work, those that have some get more of what all share: the L2, and memory.
_MIN_BUSY = 0.9
# Fewer, or on fewer SMs, are no rate.
_MIN_ITERATIONS = 50
_MIN_SMS = 3

_ITERATIONS = np.dtype([("sm", "i4"), ("start_ns", "i8"), ("end_ns", "i8")])


@dataclass(frozen=True, slots=True)
class Sharing:
    """Of a loop: the time in which an SM got an iteration done, with one CTA on it, and with ``ctas``, the number above
    one that was there the longest. How many iterations of CTAs these were. ``outside_ns`` is the time of a CTA before
    and after its loop, for each iteration."""

    ctas: int
    alone_ns: float
    shared_ns: float
    outside_ns: float
    alone: float
    shared: float

    @property
    def gain(self) -> float:
        """How much more ``ctas`` get done than one, if they hide all that is outside of the loop; below 0 if it is
        less."""
        return (self.alone_ns + self.outside_ns) / self.shared_ns - 1


class SharingSums:
    """Gathers from a launch's blocks of scopes (``SCOPE_COLUMNS``) the iterations of its loops, 20 bytes for each. As
    warps of a CTA do the same, one of each CTA stands for all; and the first iteration of each fills a pipeline."""

    def __init__(self, timeline: Timeline) -> None:
        scopes = timeline.table.scopes if _share_sms(timeline.ctas) else ()
        self._ctas = timeline.ctas
        self._iterations = {
            index: [np.empty(0, _ITERATIONS)] for index, one in enumerate(scopes) if one.kind == ScopeKind.ITERATION
        }
        self._stays = {index: [np.empty(0, _ITERATIONS)] for index in self._iterations}

    def add(self, block: NDArray[np.void]) -> None:
        """A block with all scopes of its CTAs."""
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
        """Of the iterations of a loop, by the index of their scope. None if too little of it was done by CTAs that were
        alone, or by CTAs that were not."""
        if scope not in self._iterations:
            return None
        stays, iterations = np.concatenate(self._stays[scope]), np.concatenate(self._iterations[scope])
        return _sharing(_Loop.of(self._ctas, stays, iterations)) if iterations.size else None


def _share_sms(ctas: NDArray[np.void]) -> bool:
    order = np.lexsort((ctas["init_ns"], ctas["sm"]))
    sm, begins_ns, ends_ns = (ctas[name][order] for name in ("sm", "init_ns", "pre_final_ns"))
    return bool(((sm[1:] == sm[:-1]) & (begins_ns[1:] < ends_ns[:-1])).any())


def _runs(values: NDArray[np.integer]) -> tuple[Numbers, Numbers]:
    """Where a value begins that is not the one before, and how often it stands there."""
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


@dataclass(frozen=True, slots=True)
class _Loop:
    """When CTAs were on their SM (from ``comes`` to ``leaves``) and in a loop (from ``begins`` to ``ends``), and its
    iterations (from ``starts`` to ``stops``). Times begin with 0; on one axis with all SMs, each SM's lie ``far_ns``
    behind those of the one before."""

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
        least = int(min(ctas["init_ns"].min(), stays["start_ns"].min()))
        leaves_ns = np.maximum(ctas["post_final_ns"], ctas["init_ns"])
        far = int(max(leaves_ns.max(), stays["end_ns"].max())) - least + 2

        def placed(times_ns: Numbers, sm: NDArray[np.integer]) -> Numbers:
            found: Numbers = times_ns - least + np.searchsorted(sms, sm) * far
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
        """While nearly all SMs had a CTA in the loop."""
        at, (here, inside) = _levels((self.comes, self.leaves), (self.begins, self.ends))
        when = self._when()
        return _State(self, when, at, np.where(here == inside, inside, 0), when.until(at % self.far_ns))

    def _when(self) -> _When:
        begins, ends = merged(self.begins, self.ends)
        at, (busy_sms,) = _levels((begins % self.far_ns, ends % self.far_ns))
        return _When.of(at, busy_sms >= _MIN_BUSY * self.sms)


def _levels(*spans: tuple[Numbers, Numbers]) -> tuple[Numbers, list[Numbers]]:
    """The times at which spans of any kind begin or end, and how many of each kind there are from then on."""
    changes = [times for kind in spans for times in kind]
    at = np.concatenate(changes)
    order = np.argsort(at, kind="stable")
    kinds = np.repeat(np.arange(len(changes)), [len(times) for times in changes])[order]
    return at[order], [np.cumsum((kinds == 2 * kind) * 1 - (kinds == 2 * kind + 1)) for kind in range(len(spans))]


@dataclass(frozen=True, slots=True)
class _State:
    """How many CTAs each SM had in the loop while it had no others: ``there`` from each of ``at`` on, until which
    nearly all SMs had been busy for ``busy_ns``."""

    loop: _Loop
    when: _When
    at: Numbers
    there: Numbers
    busy_ns: Times

    def time_ns(self) -> Times:
        """For how long it had each number of them."""
        lasted_ns = np.append(np.diff(self.busy_ns), 0.0)
        found: Times = np.bincount(self.there, np.where(self.there > 0, lasted_ns, 0.0)).astype(np.float64)
        return found

    def rate(self, ctas: int) -> tuple[float, float]:
        """How many iterations were done with so many of them, parts of one as parts, and the time for each; none if
        that was on few SMs."""
        starts, stops = self.loop.starts, self.loop.stops
        lasted_ns = np.maximum(stops - starts, 1)
        parts = (self._until(stops, ctas) - self._until(starts, ctas)) / lasted_ns
        done = float(parts.sum())
        if not done or len(np.unique(starts[parts > 0] // self.loop.far_ns)) < _MIN_SMS:
            return 0.0, 0.0
        return done, float(self.time_ns()[ctas]) / done

    def _until(self, at: Numbers, ctas: int) -> Times:
        """For how long all SMs before that of a time, and it until then, have had so many."""
        is_so = self.there == ctas
        lasted_ns = np.where(is_so[:-1], np.diff(self.busy_ns), 0.0)
        before_ns = np.append(0.0, np.cumsum(lasted_ns))
        last = np.maximum(np.searchsorted(self.at, at, "right") - 1, 0)
        since_ns = self.when.until(at % self.loop.far_ns) - self.busy_ns[last]
        found: Times = before_ns[last] + np.where(is_so[last], since_ns, 0.0)
        return found


@dataclass(frozen=True, slots=True)
class _When:
    """When something is so: until each of ``at_ns``, it has been for ``before_ns``."""

    at_ns: Numbers
    before_ns: Times

    @classmethod
    def of(cls, at_ns: Numbers, is_so: NDArray[np.bool_]) -> _When:
        return cls(at_ns, np.append(0.0, np.cumsum(np.where(is_so[:-1], np.diff(at_ns), 0))))

    def until(self, ns: Numbers) -> Times:
        """For how long it has been so until a time."""
        return np.interp(ns, self.at_ns, self.before_ns)
