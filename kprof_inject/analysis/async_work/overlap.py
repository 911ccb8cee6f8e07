"""What goes on at once on an SM: of the time in which one thing is under way, how much another is, too.

A scope is under way while any warp is in it; what asks for asynchronous work, until that is done.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.groups import InFlight
from kprof_inject.timeline.ranges import Ends, merged
from kprof_inject.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Together:
    """Of the time on all SMs in which A was under way, B was for a part between ``least`` and ``most``: no record says
    when asynchronous work completes. ``first_ns`` is A's time if all of it completed as late as it can have, ``edges``
    how often A or B begins or ends, ``executions`` how often A ran, or was asked for."""

    least: float
    most: float
    first_ns: int
    edges: int
    executions: int


def together(
    timeline: Timeline, found: InFlight | None, first: Collection[int], second: Collection[int]
) -> Together | None:
    """Of scopes A, ``first``, and B, ``second``, by index. None if either took no time."""
    a, b = _spans_of(timeline, found, first), _spans_of(timeline, found, second)
    first_ns = _length_ns(a.latest)
    if not first_ns or not _length_ns(b.latest):
        return None
    sure_ns, possible_ns = _common_ns(a.known, b.known), _common_ns(a.latest, b.latest)
    # What of A was not beside B: at most, and at least.
    alone_ns = first_ns - _common_ns(a.latest, b.known)
    surely_alone_ns = _length_ns(a.known) - _common_ns(a.known, b.latest)
    return Together(
        sure_ns / max(sure_ns + alone_ns, 1),
        possible_ns / max(possible_ns + surely_alone_ns, 1),
        first_ns,
        2 * (len(a.latest[0]) + len(b.latest[0])),
        a.executions,
    )


_Ranges = tuple[Ends, Ends]
"""Begins and ends on one axis, on which each SM has a part of its own: in order, and apart."""


@dataclass(frozen=True, slots=True)
class _Spans:
    """When something was under way for sure, and at the latest."""

    known: _Ranges
    latest: _Ranges
    executions: int


def _spans_of(timeline: Timeline, found: InFlight | None, scopes: Collection[int]) -> _Spans:
    flying = found.groups[np.isin(found.groups["scope"], list(scopes))] if found else None
    asking = set() if flying is None else {*np.unique(flying["scope"]).tolist()}
    running = np.array([scope for scope in scopes if scope not in asking], dtype=np.int64)
    ran = [block[np.isin(block["scope"], running)] for block in timeline.blocks()]
    known = [_columns(rows, rows["end_ns"]) for rows in ran]
    latest = list(known)
    if flying is not None:
        # A warp may begin to wait while another one still asks.
        known.append(_columns(flying, np.minimum(flying["known_ns"], flying["end_ns"])))
        latest.append(_columns(flying, flying["end_ns"]))
    executions = sum(len(part) for part in latest)
    return _Spans(_ranges(known), _ranges(latest), executions)


def _columns(rows: NDArray[np.void], ends_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """SM, begin and end of each row."""
    begins_ns: NDArray[np.int64] = rows["start_ns"]
    return np.stack([rows["sm"].astype(np.int64), begins_ns, np.maximum(ends_ns, begins_ns)], axis=1)


# Hours: no launch reaches from one SM's part of the axis into the next one's.
_APART_NS = 1 << 45


def _ranges(parts: list[NDArray[np.int64]]) -> _Ranges:
    rows = np.concatenate([np.empty((0, 3), np.int64), *parts])
    place = rows[:, 0] * _APART_NS
    return merged(rows[:, 1] + place, rows[:, 2] + place)


def _length_ns(ranges: _Ranges) -> int:
    return int((ranges[1] - ranges[0]).sum())


def _common_ns(a: _Ranges, b: _Ranges) -> int:
    """What both are long together, less what either is."""
    either = merged(np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]]))
    return _length_ns(a) + _length_ns(b) - _length_ns(either)
