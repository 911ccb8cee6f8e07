"""Timeline of a launch that another profiler recorded.

Each of its entries is a reading of the device's globaltimer, so no clock is fitted: cycles are the timer's nanoseconds.
Begin and end of a CTA are unknown: it is assumed to last from its first entry to its last.
"""

from __future__ import annotations

import numpy as np

from kprof_inject.capture.foreign import Side
from kprof_inject.capture.model import Launch, Recorded
from kprof_inject.timeline.clock import timer_clock
from kprof_inject.timeline.columns import (
    CTA_COLUMNS,
    INCOMPLETE_COLUMNS,
    NO_LARGEST,
    NO_SMALLEST,
    SCOPE_COLUMNS,
    Numbers,
    Rows,
    ScopeFlag,
    largest,
    smallest,
)
from kprof_inject.timeline.nesting import crossing, lanes_of_pairs, nest, single_lane, within_children
from kprof_inject.timeline.pairs import Pairs
from kprof_inject.timeline.records import contradicted_records
from kprof_inject.timeline.timeline import Timeline

_BLOCK_SCOPES = 1 << 16  # approximate number of scopes in a block


_SPAN_COLUMNS = np.dtype([("unit", "i8"), ("scope", "i2"), ("start_ns", "i8"), ("end_ns", "i8")])


def _spans(entries: Rows) -> tuple[Rows, Rows]:
    """Return whole scopes and instants by unit and start, and the starts and ends without a partner.

    An end belongs to the last open start of its event in its unit.
    """
    is_end, is_instant = entries["side"] == Side.END, entries["side"] == Side.INSTANT
    at = np.flatnonzero(~is_instant)
    at = at[np.lexsort((entries["event"][at], entries["unit"][at]))]
    # A start and its end have the same number of open scopes of their event around them.
    level = np.cumsum(np.where(is_end[at], -1, 1)) + is_end[at]
    order = np.lexsort((level, entries["event"][at], entries["unit"][at]))
    at, level = at[order], level[order]
    follows = (np.diff(level) == 0) & (np.diff(entries["event"][at]) == 0) & (np.diff(entries["unit"][at]) == 0)
    joined = np.flatnonzero(follows & ~is_end[at[:-1]] & is_end[at[1:]])
    end_of = np.where(is_instant, np.arange(len(entries)), -1)
    end_of[at[joined]] = at[joined + 1]
    starts = np.flatnonzero(end_of >= 0)
    spans = np.empty(len(starts), dtype=_SPAN_COLUMNS)
    spans["unit"], spans["scope"] = entries["unit"][starts], entries["scope"][starts]
    spans["start_ns"], spans["end_ns"] = entries["ns"][starts], entries["ns"][end_of[starts]]
    is_alone = end_of < 0
    is_alone[at[joined + 1]] = False
    return spans, entries[is_alone]


def _in_time(scopes: Rows) -> tuple[Pairs, Numbers, Numbers]:
    """Return the scopes' starts and ends as pairs in the order of time, with the unit and time of each.

    Within one step of the timer, the scopes that began before it end first, the last-begun of them at once. Then the
    others begin, and those that also end in the step end at once.
    """
    count = len(scopes)
    rank = np.arange(count)
    takes_time = scopes["end_ns"] > scopes["start_ns"]
    turn_order = np.concatenate((2 * rank, np.where(takes_time, -rank, 2 * rank + 1)))
    is_later = np.concatenate((np.ones(count, dtype=bool), ~takes_time))
    ns, unit = np.concatenate((scopes["start_ns"], scopes["end_ns"])), np.tile(scopes["unit"], 2)
    order = np.lexsort((turn_order, is_later, ns, unit))
    place = np.empty(2 * count, dtype=np.int64)
    place[order] = np.arange(2 * count)
    none = np.zeros(0, dtype=np.int64)
    return Pairs(place[:count], place[count:], scopes["scope"], none, none), unit[order], ns[order]


def timeline_of_recorded(launch: Launch, recorded: Recorded) -> Timeline:
    """Return the timeline of a launch with these entries."""
    units, entries, count = recorded.units, recorded.entries, len(launch.kernel.scopes.scopes)
    # A unit writes in the order of time.
    wrong = contradicted_records(entries["unit"], entries["ns"], np.ones(len(entries), dtype=bool))
    scopes, alone = _spans(entries[~wrong])
    pairs, unit, ns = _in_time(scopes)
    nesting = nest(pairs, len(unit))
    begins = np.searchsorted(unit, scopes["unit"])
    rows = np.zeros(len(scopes), dtype=SCOPE_COLUMNS)
    for name in ("cta", "sm", "warp"):
        rows[name] = units[name][scopes["unit"]]
    rows["launch"], rows["scope"], rows["depth"], rows["iteration"] = launch.index, pairs.scope, nesting.depth, -1
    for side, at in (("start", pairs.start_at), ("end", pairs.end_at)):
        rows[f"{side}_record"] = at - begins
        rows[f"{side}_cycles"] = rows[f"{side}_ns"] = ns[at]
    rows["duration_cycles"] = rows["duration_ns"] = duration_ns = rows["end_ns"] - rows["start_ns"]
    rows["self_ns"] = duration_ns - within_children(ns, pairs, nesting)
    lanes = single_lane(count)
    if not nesting.is_proper:
        rows["flags"][np.concatenate(crossing(pairs.start_at, pairs.end_at))] = ScopeFlag.CROSSES
        lanes = lanes_of_pairs(pairs, unit, count)
        rows["depth"][lanes.places] = lanes.own
    ctas = _ctas(units, rows)
    incomplete = _incomplete(units, np.bincount(entries["unit"][wrong], minlength=len(units)), alone)
    last_ns = largest(scopes["unit"], rows["end_ns"], len(units))
    begins_ns = ctas["init_ns"][np.searchsorted(ctas["cta"], units["cta"])]
    incomplete["lost_start_ns"] = incomplete["lost_end_ns"] = np.where(last_ns == NO_LARGEST, begins_ns, last_ns)
    is_end = alone["side"] == Side.END
    # Blocks have whole CTAs.
    cuts = np.flatnonzero(np.diff(rows["cta"])) + 1
    return Timeline(
        launch=launch,
        table=launch.kernel.scopes,
        clock=timer_clock(np.unique(ctas["sm"]).astype(np.int64)),
        ctas=ctas,
        incomplete=incomplete[sum(incomplete[name] for name in _LACKED) > 0],
        lanes=lanes.first,
        records_written=int(units["written"].sum()),
        records_lost=0,
        open_starts=np.bincount(alone["scope"][~is_end], minlength=count),
        stray_ends=np.bincount(alone["scope"][is_end], minlength=count),
        records_damaged=int(incomplete["records_damaged"].sum()),
        ctas_never_ran=recorded.silent_ctas,
        ctas_damaged=0,
        scope_count=len(rows),
        first_ns=int(ctas["init_ns"].min(initial=NO_SMALLEST)),
        last_ns=int(ctas["pre_final_ns"].max(initial=NO_LARGEST)),
        _blocks=np.split(rows, cuts[np.flatnonzero(np.diff(cuts // _BLOCK_SCOPES, prepend=0))]),
        overlaps=lanes.overlaps,
    )


def _ctas(units: Rows, rows: Rows) -> Rows:
    """Return the CTAs; one without a complete scope is at the launch's begin, and takes no time."""
    numbers, first = np.unique(units["cta"], return_index=True)
    ctas = np.zeros(len(numbers), dtype=CTA_COLUMNS)
    ctas["cta"], ctas["sm"] = numbers, units["sm"][first]
    row = np.searchsorted(numbers, rows["cta"])
    begins, ends = smallest(row, rows["start_ns"], len(numbers)), largest(row, rows["end_ns"], len(numbers))
    is_empty = begins == NO_SMALLEST
    begins[is_empty] = ends[is_empty] = rows["start_ns"].min(initial=NO_SMALLEST) if len(rows) else 0
    ctas["init_ns"], ctas["pre_final_ns"], ctas["post_final_ns"] = begins, ends, ends
    return ctas


_LACKED = ("open_starts", "stray_ends", "records_damaged")


def _incomplete(units: Rows, damaged: Numbers, alone: Rows) -> Rows:
    """Return for each unit how many records it lacks (``INCOMPLETE_COLUMNS`` without times)."""
    is_end = alone["side"] == Side.END
    lacking = np.zeros(len(units), dtype=INCOMPLETE_COLUMNS)
    for name in ("cta", "sm", "warp"):
        lacking[name] = units[name]
    lacking["records_written"] = units["written"]
    lacking["open_starts"] = np.bincount(alone["unit"][~is_end], minlength=len(units))
    lacking["stray_ends"] = np.bincount(alone["unit"][is_end], minlength=len(units))
    lacking["records_damaged"] = units["damaged"] + damaged
    return lacking
