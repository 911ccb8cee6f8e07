"""Scopes and asynchronous work of a launch for the page, block by block, as columns that compress well.

``assets/data.js`` turns them into typed arrays.

A table is its number of rows (u32), followed by its columns. A column is one byte, followed by planes of a byte for
each row, with the lowest bytes of all values first: high bytes, which hardly change, are next to each other and
compress to almost nothing. The byte before them is the number of planes, with the bit 0x80 if values are zigzag coded
(0, -1, 1, -2 ...), as some are negative.

Times are nanoseconds since the start of the launch. The tables, in this order:

* the CTAs: number, SM, begin, time until the end of its work, and from there until its records are copied;
* the incomplete warps: row of the CTA among those, warp, its counters, begin and length of the lost window;
* for each block the tracks in it (row of the CTA, warp, number of scopes), then its scopes; for a kernel with tags,
  the last columns are these, in the order in which each scope has them.

Predictable values are stored as the difference from the prediction: a start from the start before it, an iteration from
the one before it in its scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.flights import InFlight, flight_lanes
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline

_Numbers = NDArray[np.integer]
_RowsOf = Callable[[NDArray[np.int32]], NDArray[np.int64]]

_ZIGZAG = 0x80
# JavaScript's numbers are doubles, which hold integers below this exactly.
_EXACT = 1 << 53
UNKNOWN_TAG = 1 << 40  # the page's value for a tag whose value is unknown, or that a scope does not have


def table_bytes(*columns: _Numbers) -> Iterator[bytes]:
    """Yield a table, whose columns have equally many rows; raise ``KprofError`` for a number beyond ±2 ** 52."""
    rows = len(columns[0])
    yield rows.to_bytes(4, "little")
    for column in columns:
        values = column.astype(np.int64, copy=False)
        is_signed = bool(values.min(initial=0) < 0)
        if is_signed:
            values = (values << 1) ^ (values >> 63)
        largest = int(values.max(initial=0))
        if largest >= _EXACT:
            hint = "write a trace instead: kprof-inject trace"
            raise KprofError(f"a time of {largest} ns does not fit into a page", hint=hint)
        planes = -(-largest.bit_length() // 8)
        yield bytes([planes | _ZIGZAG if is_signed else planes])
        lowest_first = np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(rows, 8)
        for plane in range(planes):
            yield np.ascontiguousarray(lowest_first[:, plane]).tobytes()


def differences(column: _Numbers, first: int = 0) -> NDArray[np.int64]:
    """Return each value minus the one before it, the first one minus ``first``."""
    values = column.astype(np.int64)
    steps = values.copy()
    steps[1:] -= values[:-1]
    steps[:1] -= first
    return steps


def _differences_by_kind(column: _Numbers, kind: _Numbers) -> NDArray[np.int64]:
    # Each value minus the one before it in a row of the same kind; the first of a kind minus 0.
    order = np.argsort(kind, kind="stable")
    sorted_kind, values = kind[order], column[order].astype(np.int64)
    follows = np.flatnonzero(sorted_kind[1:] == sorted_kind[:-1]) + 1
    steps = values.copy()
    steps[follows] -= values[follows - 1]
    result = np.empty_like(steps)
    result[order] = steps
    return result


_COUNTS = ("records_written", "records_lost", "open_starts", "stray_ends", "records_damaged")


class Shown(Struct, frozen=True):
    """The part of a launch that a page shows."""

    ctas: NDArray[np.bool_] | None  # mask of the rows of ``timeline.ctas`` whose scopes are shown; None for all
    scopes: int


def shares(wanted: Sequence[int], most: int) -> list[int]:
    """Divide ``most`` among the launches: what one does not want of an equal share is for the others."""
    left, given = most, [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for done, index in enumerate(order):
        given[index] = min(wanted[index], left // (len(order) - done))
        left -= given[index]
    return given


def picked_ctas(timeline: Timeline) -> list[tuple[str, int]]:
    """Return names and numbers of the CTAs that a timeline offers first: median and longest, first and last."""
    ctas = timeline.ctas
    if not len(ctas):
        return []
    durations = ctas["pre_final_ns"] - ctas["init_ns"]
    by_duration = np.lexsort((ctas["cta"], durations))
    rows = {
        "median": by_duration[(len(ctas) - 1) // 2],
        "longest": by_duration[-1],
        "first": np.lexsort((ctas["cta"], ctas["init_ns"]))[0],
        "last": np.lexsort((ctas["cta"], ctas["pre_final_ns"]))[-1],
    }
    named: dict[int, str] = {}
    for name, row in rows.items():
        number = int(ctas["cta"][row])
        named[number] = f"{named[number]}, {name}" if number in named else name
    return [(name, number) for number, name in named.items()]


def shown_of(timeline: Timeline, blocks: Iterable[NDArray[np.void]], most: int) -> Shown:
    """Choose whole CTAs: those of ``picked_ctas``, and by number as many others as ``most`` scopes leave room for."""
    if timeline.scope_count <= most:
        return Shown(None, timeline.scope_count)
    rows_of = _rows_of_ctas(timeline)
    counts = np.zeros(len(timeline.ctas), dtype=np.int64)
    for block in blocks:
        counts += np.bincount(rows_of(block["cta"]), minlength=len(counts))
    shown = np.isin(timeline.ctas["cta"], [number for _, number in picked_ctas(timeline)])
    order = np.lexsort((timeline.ctas["cta"], ~shown))
    shown[order[np.cumsum(counts[order]) <= most]] = True
    return Shown(shown, int(counts[shown].sum()))


def scope_bytes(
    timeline: Timeline, blocks: Iterable[NDArray[np.void]], shown: NDArray[np.bool_] | None
) -> Iterator[bytes]:
    """Yield the launch's CTAs and, from ``blocks``, the scopes of those ``shown`` (see ``Shown.ctas``)."""
    rows_of = _rows_of_ctas(timeline)
    ctas, warps = timeline.ctas, timeline.incomplete
    init_ns: _Numbers = ctas["init_ns"]
    pre_final_ns: _Numbers = ctas["pre_final_ns"]
    yield from table_bytes(
        differences(ctas["cta"]),
        ctas["sm"],
        differences(init_ns, timeline.first_ns),
        pre_final_ns - init_ns,
        ctas["post_final_ns"] - pre_final_ns,
    )
    lost_start_ns: _Numbers = warps["lost_start_ns"]
    yield from table_bytes(
        rows_of(warps["cta"]) if warps.size else warps["cta"],
        warps["warp"],
        *(warps[count] for count in _COUNTS),
        differences(lost_start_ns, timeline.first_ns),
        warps["lost_end_ns"] - lost_start_ns,
    )
    for block in blocks:
        kept = block if shown is None else block[shown[rows_of(block["cta"])]]
        if kept.size:
            yield from _block(kept, timeline, rows_of)


def _rows_of_ctas(timeline: Timeline) -> _RowsOf:
    order = np.argsort(timeline.ctas["cta"], kind="stable")
    in_order = timeline.ctas["cta"][order]
    return lambda numbers: order[np.searchsorted(in_order, numbers)]


def _block(scopes: NDArray[np.void], timeline: Timeline, rows_of: _RowsOf) -> Iterator[bytes]:
    cta, warp = scopes["cta"], scopes["warp"]
    first = np.flatnonzero(np.append(True, (cta[1:] != cta[:-1]) | (warp[1:] != warp[:-1])))
    yield from table_bytes(rows_of(cta[first]), warp[first], np.diff(first, append=len(scopes)))

    start_ns: _Numbers = scopes["start_ns"]
    duration_ns: _Numbers = scopes["duration_ns"]
    elapsed_ns = scopes["end_ns"] - start_ns
    kind, tags = scopes["scope"], (scopes["tags"][:, place] for place in range(timeline.table.max_tags))
    yield from table_bytes(
        kind,
        scopes["depth"],
        scopes["flags"],
        _differences_by_kind(scopes["iteration"], kind),
        differences(start_ns, timeline.first_ns),
        elapsed_ns,
        elapsed_ns - duration_ns,
        duration_ns - scopes["self_ns"],
        *(np.where((values > -_EXACT) & (values < _EXACT), values, UNKNOWN_TAG) for values in tags),
    )


def flight_bytes(timeline: Timeline, found: InFlight, shown: NDArray[np.bool_] | None) -> Iterator[bytes]:
    """Yield the drawn groups of asynchronous work of the CTAs ``shown`` (see ``Shown.ctas``), by lane and begin.

    The columns are the row of the CTA, the kind of work (of ``found.kinds``), the lane in the CTA, the warp, the scope
    that issued it and the scope that waited for it; then, in nanoseconds, the difference from the begin before it, how
    long it was certainly in flight, how long it may have been after that, the longest that it can have been in flight,
    and how long its wait blocked; finally its depth and bytes. The drawing of a group ends where the next one in its
    lane begins.
    """
    lanes = flight_lanes(found)
    cta_rows = _rows_of_ctas(timeline)(lanes.groups["cta"])
    kept = slice(None) if shown is None else shown[cta_rows]
    groups, cta_rows, lane = lanes.groups[kept], cta_rows[kept], lanes.lane[kept]
    known_ns, end_ns = lanes.known_ns[kept], lanes.end_ns[kept]
    start_ns: NDArray[np.int64] = groups["start_ns"]
    first = np.flatnonzero(np.diff(cta_rows, prepend=-1))
    in_cta = lane - np.repeat(lane[first], np.diff(first, append=len(lane)))
    yield from table_bytes(
        cta_rows,
        lanes.work[kept],
        in_cta,
        *(groups[name] for name in ("warp", "scope", "wait_scope")),
        differences(start_ns, timeline.first_ns),
        known_ns - start_ns,
        end_ns - known_ns,
        groups["end_ns"] - start_ns,
        *(groups[name] for name in ("blocked_ns", "depth", "bytes")),
    )
