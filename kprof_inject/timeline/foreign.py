"""Timeline of a launch that another profiler recorded.

Each of its entries is a reading of the device's globaltimer, so no clock is fitted: cycles are the timer's nanoseconds.
Begin and end of a CTA are unknown: it is assumed to last from its first entry to its last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.foreign.entries import PointKind, Points, Recorded, Spans
from kprof_inject.capture.model import Launch
from kprof_inject.errors import KprofError
from kprof_inject.timeline.clock import timer_clock
from kprof_inject.timeline.columns import (
    CTA_COLUMNS,
    INCOMPLETE_COLUMNS,
    NO_LARGEST,
    NO_SMALLEST,
    SCOPE_COLUMNS,
    ScopeFlag,
    largest,
    smallest,
)
from kprof_inject.timeline.nesting import Nesting, crossing, lanes_of_pairs, nest, single_lane, within_children
from kprof_inject.timeline.pairs import Pairs
from kprof_inject.timeline.records import contradicted_records
from kprof_inject.timeline.timeline import Timeline, decode_launch, decode_together

# Approximate number of scopes in a block.
_BLOCK_SCOPES = 1 << 16


def timeline_of(launch: Launch) -> Timeline:
    """Return the timeline of any launch, whichever profiler recorded it.

    Raises ``KprofError`` if its buffer is damaged as a whole.
    """
    return decode_launch(launch) if launch.recorded is None else _of_recorded(launch, launch.recorded)


def timelines_of(launches: Sequence[Launch]) -> Iterator[Timeline | KprofError]:
    """Yield the timelines of several launches, or errors, as ``decode_together`` does."""
    decoded = iter(decode_together([launch for launch in launches if launch.recorded is None]))
    for launch in launches:
        yield next(decoded) if launch.recorded is None else _of_recorded(launch, launch.recorded)


class _PlacedPoints(Struct, frozen=True):
    """Records of a launch, sorted by unit and time.

    Each scope and each instant has a start and an end there. ``unpaired`` has the unit, the scope, and whether it is an
    end, of each unpaired record; ``damaged`` has the unit of each record that contradicts others.
    """

    unit: NDArray[np.int64]
    ns: NDArray[np.int64]
    pairs: Pairs
    unpaired: tuple[NDArray[np.int64], NDArray[np.int16], NDArray[np.bool_]]
    damaged: NDArray[np.int64]


def _placed(recorded: Recorded) -> _PlacedPoints:
    entries = recorded.entries
    if isinstance(entries, Points):
        return _of_points(entries, recorded.scope_of_event)
    return _of_spans(entries, recorded.scope_of_event)


def _of_spans(entries: Spans, scope_of_event: NDArray[np.int16]) -> _PlacedPoints:
    """Sort the ends of spans in time, and within one step of the timer by nesting.

    First come the ends of spans that began before the step, the last-begun first. Then the others begin, in the order
    of their places, and those that also end in the step end at once.
    """
    spans = entries.spans
    spans = spans[np.lexsort((spans["place"], spans["start_ns"], spans["unit"]))]
    count = len(spans)
    rank = np.arange(count)
    takes_time = spans["end_ns"] > spans["start_ns"]
    turn_order = np.concatenate((2 * rank, np.where(takes_time, -rank, 2 * rank + 1)))
    is_later = np.concatenate((np.ones(count, dtype=bool), ~takes_time))
    ns = np.concatenate((spans["start_ns"], spans["end_ns"]))
    unit = np.tile(spans["unit"], 2)
    order = np.lexsort((turn_order, is_later, ns, unit))
    place = np.empty(2 * count, dtype=np.int64)
    place[order] = np.arange(2 * count)
    start_at, end_at = place[:count], place[count:]
    by_start = np.argsort(start_at)
    scope = scope_of_event[spans["event"], spans["is_instant"].astype(np.intp)]
    opened = entries.opened
    alone = np.zeros(0, dtype=np.int64)
    return _PlacedPoints(
        unit[order],
        ns[order],
        Pairs(start_at[by_start], end_at[by_start], scope[by_start], alone, alone),
        (opened["unit"], scope_of_event[opened["event"], 0], np.zeros(len(opened), dtype=bool)),
        alone,
    )


def _of_points(entries: Points, scope_of_event: NDArray[np.int16]) -> _PlacedPoints:
    """Match the starts and ends of each unit.

    A unit writes in the order of time; points that contradict that are damaged. An end belongs to the last open start
    of its event.
    """
    points = entries.points
    wrong = contradicted_records(points["unit"], points["ns"], np.ones(len(points), dtype=bool))
    damaged, points = points["unit"][wrong], points[~wrong]
    is_instant = points["side"] == PointKind.INSTANT
    scope = scope_of_event[points["event"], is_instant.astype(np.intp)]
    copies = np.where(is_instant, 2, 1)
    first = np.cumsum(copies) - copies
    timed = np.flatnonzero(~is_instant)
    starts, ends = _matched(points[timed])
    starts, ends = timed[starts], timed[ends]
    is_alone = ~is_instant
    is_alone[starts] = is_alone[ends] = False
    alone = np.flatnonzero(is_alone)
    instants = np.flatnonzero(is_instant)
    start_at = np.concatenate((first[starts], first[instants]))
    end_at = np.concatenate((first[ends], first[instants] + 1))
    by_start = np.argsort(start_at)
    none = np.zeros(0, dtype=np.int64)
    return _PlacedPoints(
        np.repeat(points["unit"], copies),
        np.repeat(points["ns"], copies),
        Pairs(
            start_at[by_start],
            end_at[by_start],
            np.concatenate((scope[starts], scope[instants]))[by_start],
            none,
            none,
        ),
        (points["unit"][alone], scope[alone], points["side"][alone] == PointKind.END),
        damaged,
    )


def _matched(points: NDArray[np.void]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of starts and of their ends, matched like brackets for each event; the rest are unpaired."""
    order = np.lexsort((points["event"], points["unit"]))
    unit, event, closes = points["unit"][order], points["event"][order], points["side"][order] == PointKind.END
    group = np.append(True, (np.diff(unit) != 0) | (np.diff(event) != 0))[: len(order)]
    number = np.cumsum(group)
    # Groups are so far apart that none reaches the level of the one before.
    far = -2 * (len(order) + 1) * number
    opened = np.cumsum(np.where(closes, -1, 1))
    opened -= np.repeat((opened - np.where(closes, -1, 1))[group], np.diff(np.flatnonzero(group), append=len(order)))
    level = opened + closes
    # An end without an open start goes below the minimum reached before it.
    lowest = np.minimum.accumulate(np.minimum(opened, 0) + far) - far
    before = np.where(group, 0, np.append(0, lowest[:-1])[: len(order)])
    matched = ~(closes & (opened < before))
    by_level = np.lexsort((level[matched], number[matched]))
    number, level, closes, at = (column[matched][by_level] for column in (number, level, closes, order))
    is_pair = (np.diff(number) == 0) & (np.diff(level) == 0) & ~closes[:-1] & closes[1:]
    joined = np.flatnonzero(is_pair)
    return at[joined], at[joined + 1]


class _Rows(Struct, frozen=True):
    """Scopes of the launch (``SCOPE_COLUMNS``), by CTA, unit and start."""

    scopes: NDArray[np.void]

    def __iter__(self) -> Iterator[NDArray[np.void]]:
        """Yield the scopes in blocks of whole CTAs."""
        cta, begin = self.scopes["cta"], 0
        while begin < len(cta):
            last = cta[min(begin + _BLOCK_SCOPES, len(cta)) - 1]
            end = int(np.searchsorted(cta, last, side="right"))
            yield self.scopes[begin:end]
            begin = end

    def with_launch(self, launch: Launch) -> _Rows:
        """Return these blocks, which do not depend on the launch."""
        return self


def _of_recorded(launch: Launch, recorded: Recorded) -> Timeline:
    units, table = recorded.entries.units, launch.kernel.scopes
    placed = _placed(recorded)
    count = len(table.scopes)
    nesting = nest(placed.pairs, len(placed.unit))
    lanes = single_lane(count) if nesting.is_proper else lanes_of_pairs(placed.pairs, placed.unit, count)
    rows = _rows(launch, placed, units, nesting)
    rows["depth"][lanes.places] = lanes.own
    ctas = _ctas(units, rows)
    _, scope, is_end = placed.unpaired
    elsewhere = recorded.entries.lost_elsewhere if isinstance(recorded.entries, Spans) else 0
    return Timeline(
        launch=launch,
        table=table,
        clock=timer_clock(np.unique(ctas["sm"]).astype(np.int64)),
        ctas=ctas,
        incomplete=_incomplete(units, placed, rows, ctas),
        lanes=lanes.first,
        records_written=int(units["written"].sum()) + elsewhere,
        records_lost=int(units["lost"].sum()) + elsewhere,
        open_starts=np.bincount(scope[~is_end], minlength=count),
        stray_ends=np.bincount(scope[is_end], minlength=count),
        records_damaged=int(units["damaged"].sum()) + len(placed.damaged),
        ctas_never_ran=recorded.entries.silent_ctas,
        ctas_damaged=0,
        scope_count=len(rows),
        first_ns=int(ctas["init_ns"].min(initial=NO_SMALLEST)),
        last_ns=int(ctas["pre_final_ns"].max(initial=NO_LARGEST)),
        _blocks=_Rows(rows),
        overlaps=lanes.overlaps,
    )


def _rows(launch: Launch, placed: _PlacedPoints, units: NDArray[np.void], nesting: Nesting) -> NDArray[np.void]:
    pairs = placed.pairs
    unit = placed.unit[pairs.start_at]
    begins = np.searchsorted(placed.unit, unit)
    rows = np.zeros(len(pairs.scope), dtype=SCOPE_COLUMNS)
    rows["launch"] = launch.index
    for name in ("cta", "sm", "warp"):
        rows[name] = units[name][unit]
    rows["scope"] = pairs.scope
    rows["depth"] = nesting.depth
    rows["iteration"] = -1
    for side, at in (("start", pairs.start_at), ("end", pairs.end_at)):
        rows[f"{side}_record"] = at - begins
        rows[f"{side}_cycles"] = rows[f"{side}_ns"] = placed.ns[at]
    duration_ns = placed.ns[pairs.end_at] - placed.ns[pairs.start_at]
    rows["duration_cycles"] = rows["duration_ns"] = duration_ns
    rows["self_ns"] = duration_ns - within_children(placed.ns, pairs, nesting)
    if not nesting.is_proper:
        rows["flags"][np.concatenate(crossing(pairs.start_at, pairs.end_at))] = ScopeFlag.CROSSES
    return rows


def _ctas(units: NDArray[np.void], rows: NDArray[np.void]) -> NDArray[np.void]:
    """Return the CTAs; one without a complete scope is at the launch's begin, and takes no time."""
    numbers, first = np.unique(units["cta"], return_index=True)
    ctas = np.zeros(len(numbers), dtype=CTA_COLUMNS)
    ctas["cta"], ctas["sm"] = numbers, units["sm"][first]
    row = np.searchsorted(numbers, rows["cta"])
    begins = smallest(row, rows["start_ns"], len(numbers))
    ends = largest(row, rows["end_ns"], len(numbers))
    is_empty = begins == NO_SMALLEST
    begins[is_empty] = ends[is_empty] = rows["start_ns"].min(initial=NO_SMALLEST) if len(rows) else 0
    ctas["init_ns"], ctas["pre_final_ns"], ctas["post_final_ns"] = begins, ends, ends
    return ctas


def _incomplete(
    units: NDArray[np.void], placed: _PlacedPoints, rows: NDArray[np.void], ctas: NDArray[np.void]
) -> NDArray[np.void]:
    """Return the units that lack records.

    Records that found no room were made after the unit's last entry.
    """
    unit, _, is_end = placed.unpaired
    count = len(units)
    lacking = np.zeros(count, dtype=INCOMPLETE_COLUMNS)
    for name in ("cta", "sm", "warp"):
        lacking[name] = units[name]
    lacking["records_written"], lacking["records_lost"] = units["written"], units["lost"]
    lacking["open_starts"] = np.bincount(unit[~is_end], minlength=count)
    lacking["stray_ends"] = np.bincount(unit[is_end], minlength=count)
    lacking["records_damaged"] = units["damaged"] + np.bincount(placed.damaged, minlength=count)
    row = np.searchsorted(ctas["cta"], units["cta"])
    last_ns = largest(placed.unit[placed.pairs.start_at], rows["end_ns"], count)
    lacking["lost_start_ns"] = np.where(last_ns == NO_LARGEST, ctas["init_ns"][row], last_ns)
    lacking["lost_end_ns"] = np.where(units["lost"] > 0, ctas["pre_final_ns"][row], lacking["lost_start_ns"])
    counts = ("records_lost", "open_starts", "stray_ends", "records_damaged")
    return lacking[np.logical_or.reduce([lacking[name] > 0 for name in counts])]
