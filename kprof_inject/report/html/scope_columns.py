"""The scopes and the asynchronous work of a launch for the page, block by block, as columns that compress well.

``assets/codec.js`` reads the columns, and ``assets/data.js`` makes typed arrays of them again
(``assets/flights.js`` those of asynchronous work).

A table is its number of rows (u32) and then its columns. A column is one byte and then some planes of a byte for each
row, the lowest byte of all values first: high bytes that hardly change stand together and take next to no room. The
byte before them says how many planes there are, with the bit 0x80 if values are zigzag coded (0, -1, 1, -2 ...), for
some are negative.

Times are nanoseconds since the start of the launch. The tables, in this order:

* the CTAs: number, SM, begin, time until the end of its work, and from there until its records are copied;
* the incomplete warps: row of the CTA among those, warp, what its counters say, begin and length of the lost window;
* for each block the tracks in it (row of the CTA, warp, number of scopes), then its scopes; of a kernel with tags their
  last columns are these, in the order in which each scope has them.

Whatever can be predicted is stored as the difference from that: a start from the start before it, an iteration from
the one before it of its scope, elapsed cycles from those that the elapsed time takes at the fitted clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.drawing_lanes import flight_lanes
from kprof_inject.analysis.async_work.groups import InFlight
from kprof_inject.errors import KprofError
from kprof_inject.timeline.columns import NO_TAG
from kprof_inject.timeline.timeline import Timeline

_Numbers = NDArray[np.integer]

_ZIGZAG = 0x80
# What a double holds exactly, as JavaScript's numbers are.
_EXACT = 1 << 53


def table_bytes(columns: Sequence[_Numbers]) -> Iterator[bytes]:
    """One table. All columns have the same number of rows. Raises ``KprofError`` for a number beyond ±2 ** 52."""
    rows = len(columns[0])
    yield rows.to_bytes(4, "little")
    for column in columns:
        yield from _column_bytes(column.astype(np.int64, copy=False), rows)


def differences(column: _Numbers, first: int = 0) -> NDArray[np.int64]:
    """Each value less the one before it."""
    values = column.astype(np.int64)
    steps = values.copy()
    steps[1:] -= values[:-1]
    steps[:1] -= first
    return steps


def differences_by_kind(column: _Numbers, kind: _Numbers) -> NDArray[np.int64]:
    """Each value less the one before it in a row of the same ``kind``; the first of a kind less 0."""
    order = np.argsort(kind, kind="stable")
    sorted_kind, values = kind[order], column[order].astype(np.int64)
    follows = np.flatnonzero(sorted_kind[1:] == sorted_kind[:-1]) + 1
    steps = values.copy()
    steps[follows] -= values[follows - 1]
    result = np.empty_like(steps)
    result[order] = steps
    return result


def _column_bytes(values: NDArray[np.int64], rows: int) -> Iterator[bytes]:
    is_signed = bool(values.min(initial=0) < 0)
    if is_signed:
        values = (values << 1) ^ (values >> 63)
    largest = int(values.max(initial=0))
    if largest >= _EXACT:
        raise KprofError(
            f"a time of {largest} ns does not fit into a page", hint="write a trace instead: kprof-inject trace"
        )
    planes = -(-largest.bit_length() // 8)
    yield bytes([planes | _ZIGZAG if is_signed else planes])
    lowest_first = np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(rows, 8)
    for plane in range(planes):
        yield np.ascontiguousarray(lowest_first[:, plane]).tobytes()


_COUNTS = ("records_written", "records_lost", "open_starts", "stray_ends", "records_damaged")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows of one launch."""

    ctas: NDArray[np.bool_] | None
    """Which rows of ``timeline.ctas`` have their scopes in it; None: all do."""
    scopes: int


def shares(wanted: Sequence[int], most: int) -> list[int]:
    """How many of ``most`` each gets: as many as it wants if that is no more than an equal share, and of what those
    leave again an equal share."""
    left, given = most, [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for done, index in enumerate(order):
        given[index] = min(wanted[index], left // (len(order) - done))
        left -= given[index]
    return given


def shown_of(timeline: Timeline, most: int) -> Shown:
    """Whole CTAs with at most so many scopes, but at least one: those of the first SMs, so that what an SM did is there
    from the launch's begin to its end."""
    if timeline.scope_count <= most:
        return Shown(None, timeline.scope_count)
    rows = CtaRows(timeline.ctas["cta"])
    counts = np.zeros(len(timeline.ctas), dtype=np.int64)
    for block in timeline.blocks():
        counts += np.bincount(rows.of(block["cta"]), minlength=len(counts))
    order = np.lexsort((timeline.ctas["cta"], timeline.ctas["sm"]))
    fits = np.cumsum(counts[order]) <= most
    fits[np.flatnonzero(counts[order])[:1]] = True
    shown = np.zeros(len(counts), dtype=bool)
    shown[order[fits]] = True
    return Shown(shown, int(counts[shown].sum()))


def scope_bytes(
    timeline: Timeline, blocks: Iterable[NDArray[np.void]], shown: NDArray[np.bool_] | None
) -> Iterator[bytes]:
    """The launch's CTAs, and of all its ``blocks`` the scopes of those CTAs that are ``shown`` (see ``Shown.ctas``)."""
    rows = CtaRows(timeline.ctas["cta"])
    yield from _ctas(timeline)
    yield from _incomplete(timeline, rows)
    for block in blocks:
        kept = block if shown is None else block[shown[rows.of(block["cta"])]]
        if kept.size:
            yield from _block(kept, timeline, rows)


class CtaRows:
    """Where CTAs stand in the table of CTAs."""

    def __init__(self, numbers: NDArray[np.int32]) -> None:
        self._order = np.argsort(numbers, kind="stable")
        self._numbers = numbers[self._order]

    def of(self, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
        return self._order[np.searchsorted(self._numbers, numbers)]


def _ctas(timeline: Timeline) -> Iterator[bytes]:
    ctas = timeline.ctas
    init_ns: _Numbers = ctas["init_ns"]
    pre_final_ns: _Numbers = ctas["pre_final_ns"]
    yield from table_bytes(
        (
            differences(ctas["cta"]),
            ctas["sm"],
            differences(init_ns, timeline.first_ns),
            pre_final_ns - init_ns,
            ctas["post_final_ns"] - pre_final_ns,
        )
    )


def _incomplete(timeline: Timeline, rows: CtaRows) -> Iterator[bytes]:
    warps = timeline.incomplete
    lost_start_ns: _Numbers = warps["lost_start_ns"]
    yield from table_bytes(
        (
            rows.of(warps["cta"]) if warps.size else warps["cta"],
            warps["warp"],
            *(warps[count] for count in _COUNTS),
            differences(lost_start_ns, timeline.first_ns),
            warps["lost_end_ns"] - lost_start_ns,
        )
    )


def _block(scopes: NDArray[np.void], timeline: Timeline, rows: CtaRows) -> Iterator[bytes]:
    cta, warp = scopes["cta"], scopes["warp"]
    fresh = np.append(True, (cta[1:] != cta[:-1]) | (warp[1:] != warp[:-1]))
    first = np.flatnonzero(fresh)
    yield from table_bytes((rows.of(cta[first]), warp[first], np.diff(first, append=len(scopes))))

    start_ns: _Numbers = scopes["start_ns"]
    start_cycles: _Numbers = scopes["start_cycles"]
    duration_ns: _Numbers = scopes["duration_ns"]
    elapsed_ns = scopes["end_ns"] - start_ns
    elapsed_cycles = scopes["end_cycles"] - start_cycles
    # As JavaScript reckons it: both are IEEE doubles.
    expected_cycles = np.floor(elapsed_ns * (timeline.clock.clock_hz / 1e9) + 0.5).astype(np.int64)
    kind = scopes["scope"]
    yield from table_bytes(
        (
            kind,
            scopes["depth"],
            scopes["flags"],
            differences_by_kind(scopes["iteration"], kind),
            differences(start_ns, timeline.first_ns),
            elapsed_ns,
            elapsed_ns - duration_ns,
            duration_ns - scopes["self_ns"],
            elapsed_cycles - expected_cycles,
            *_tags(scopes, timeline.table.max_tags),
        )
    )


UNKNOWN_TAG = 1 << 40
"""What the page has for a tag whose value is unknown, or that a scope does not have; values take 32 bits."""


def _tags(scopes: NDArray[np.void], most: int) -> Iterator[NDArray[np.int64]]:
    for place in range(most):
        values = scopes["tags"][:, place]
        yield np.where(values == NO_TAG, UNKNOWN_TAG, values)


def flight_bytes(timeline: Timeline, found: InFlight, shown: NDArray[np.bool_] | None) -> Iterator[bytes]:
    """Of the CTAs that are ``shown`` (see ``Shown.ctas``), each group of asynchronous work that is drawn, by lane and
    begin: row of the CTA, kind of work (of ``found.kinds``), lane in the CTA, warp, scope that
    asked for it and scope that waited for it; then, in nanoseconds, the difference from the begin before it, how long
    it was under way for sure, how long it may have been after that, how long it was in flight at most, and how long its
    wait blocked; at last its depth and bytes. What is drawn ends where its lane's next begins."""
    lanes = flight_lanes(found)
    cta_rows = CtaRows(timeline.ctas["cta"]).of(lanes.groups["cta"])
    kept = slice(None) if shown is None else shown[cta_rows]
    groups, cta_rows, lane = lanes.groups[kept], cta_rows[kept], lanes.lane[kept]
    known_ns, end_ns = lanes.known_ns[kept], lanes.end_ns[kept]
    start_ns: NDArray[np.int64] = groups["start_ns"]
    first = np.flatnonzero(np.diff(cta_rows, prepend=-1))
    in_cta = lane - np.repeat(lane[first], np.diff(first, append=len(lane)))
    yield from table_bytes(
        (
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
    )
