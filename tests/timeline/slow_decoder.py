"""A decoder that takes one record after the other, to hold the fast one against.

It follows the same rules and shares no code with ``kprof_inject``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import NamedTuple

import numpy as np
from buffers import CLOCK_PERIOD, PREAMBLE
from numpy.typing import NDArray


class WarpLoss(NamedTuple):
    """What a warp lacks: records that its ring overwrote, those without a partner, and entries that are none."""

    lost: int
    open_starts: int
    stray_ends: int
    damaged: int


@dataclass
class SlowDecode:
    """What the words of a buffer say, found record by record.

    ``scopes`` has (CTA, warp, scope, start cycles, end cycles), sorted; the counters have one key for each scope;
    ``incomplete`` has (CTA, warp) of those that lack something.
    """

    scopes: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    open_starts: Counter[int] = field(default_factory=Counter)
    stray_ends: Counter[int] = field(default_factory=Counter)
    incomplete: dict[tuple[int, int], WarpLoss] = field(default_factory=dict)


@dataclass
class _Seen:
    """An entry as it was found; ``scope`` is None if its id is that of none, ``place`` counts those of its ring."""

    scope: int | None
    is_end: bool
    cycles: int
    place: int
    damaged: bool = False


def decode_slowly(
    words: NDArray[np.uint32],
    num_warps: int,
    scope_of_id: Mapping[int, int],
    parents: Sequence[int],
    *,
    stores_moved: bool = False,
) -> SlowDecode:
    """Decode a buffer whose headers are sound, of a launch that does not outlast half the counter's period."""
    rows = [row for row in words.tolist() if row[0] == PREAMBLE]
    rings = {
        (row[1], warp): _ring_entries(row, num_warps, warp, scope_of_id) for row in rows for warp in range(num_warps)
    }
    sms = {row[2] for row in rows}
    of_sms = [[rings[row[1], warp] for row in rows if row[2] == sm for warp in range(num_warps)] for sm in sms]
    if stores_moved or any(map(_spread_over_half, of_sms)):
        for mine in of_sms:
            _unwrap_slowly(mine)
    result = SlowDecode()
    for row in rows:
        _mark_far_slowly([entry for warp in range(num_warps) for entry in rings[row[1], warp]], _times_of(row))
        for warp in range(num_warps):
            ring = rings[row[1], warp]
            _mark_contradicted_slowly([entry for entry in ring if entry.is_end or not stores_moved])
            if stores_moved:
                _mark_parted_slowly(ring)
            lost = max(0, row[10 + warp] // 2 - len(ring))
            sound = [entry for entry in ring if not entry.damaged]
            # Where a start is stored beside its end, the ring may have lost scopes that ran in that one.
            oldest = next((entry.cycles for entry in sound if entry.is_end or not stores_moved), 0)
            if stores_moved:
                sound.sort(key=lambda entry: _time_of_moved(entry, ring))
            late = _amid_inner_slowly(sound, oldest, parents) if lost else []
            loss = _pair_slowly(result, row[1], warp, ring, sound, late, stores_moved)._replace(lost=lost)
            if any(loss):
                result.incomplete[row[1], warp] = loss
    result.scopes.sort()
    return result


def _times_of(row: list[int]) -> tuple[int, int]:
    """When the CTA began and when it was done."""
    return row[5] << 32 | row[4], row[7] << 32 | row[6]


def _ring_entries(row: list[int], num_warps: int, warp: int, scope_of_id: Mapping[int, int]) -> list[_Seen]:
    """The entries of one ring from the oldest to the newest."""
    slots = row[3] // num_warps // 8
    written = row[10 + warp] // 2
    ring_at = 10 + num_warps + warp * slots * 2
    entries: list[_Seen] = []
    for position in range(max(0, written - slots), written):
        at = ring_at + 2 * (position % slots)
        high, low = row[at], row[at + 1]
        scope = scope_of_id.get(high >> 23 & 0xFF)
        entries.append(_Seen(scope, high >> 31 == 1, (high & 0x7FF) << 32 | low, len(entries), scope is None))
    return entries


def _spread_over_half(rings: list[list[_Seen]]) -> bool:
    """Whether an SM's counter has wrapped, or an end of one of its rings is damaged."""
    ends = [ring[place].cycles for ring in rings if ring for place in (0, -1)]
    return bool(ends) and max(ends) - min(ends) > CLOCK_PERIOD // 2


def _unwrap_slowly(rings: list[list[_Seen]]) -> None:
    """In place: all records of an SM are taken the short way round from the newest of one of its rings, that which has
    most of the others' close behind it."""
    ends = sorted(ring[-1].cycles for ring in rings if ring)
    oldest = [ring[0].cycles for ring in rings if ring]
    if not ends:
        return
    round_and_round = ends + [end + CLOCK_PERIOD for end in ends]
    reach = [round_and_round[place + len(ends) // 2] - end for place, end in enumerate(ends)]
    reference = ends[reach.index(min(reach))]
    if any(-CLOCK_PERIOD // 4 < _short_way(end - reference) < -reference for end in ends + oldest):
        reference += CLOCK_PERIOD
    for entry in (entry for ring in rings for entry in ring):
        entry.cycles = reference + _short_way(entry.cycles - reference)


def _short_way(cycles: int) -> int:
    return (cycles + CLOCK_PERIOD // 2) % CLOCK_PERIOD - CLOCK_PERIOD // 2


def _mark_far_slowly(entries: list[_Seen], times: tuple[int, int]) -> None:
    """Entries further from the middle one of their CTA than 5 GHz would count in its time and 4 µs; but those that are
    2^32 too large, just before that overflows, become what they were. No counter was ever below 0."""
    known = sorted(entry.cycles for entry in entries if not entry.damaged)
    most = 5 * (times[1] - times[0] + 4000)
    for entry in entries:
        if not known or abs(entry.cycles - known[len(known) // 2]) <= most:
            continue
        untorn = entry.cycles - 2**32
        if untorn >= 0 and untorn % 2**32 >= 2**32 - 4096 and abs(untorn - known[len(known) // 2]) <= most:
            entry.cycles = untorn
        else:
            entry.damaged = True


def _mark_contradicted_slowly(entries: list[_Seen]) -> None:
    """Neighbours in the order of writing whose clock runs backwards, and then those that are neighbours without them;
    if there is no end to that, all of the warp."""
    for turn in range(9):
        left = [entry for entry in entries if not entry.damaged]
        back = [pair for pair in pairwise(left) if pair[1].cycles < pair[0].cycles]
        for entry in left if back and turn == 8 else [entry for pair in back for entry in pair]:
            entry.damaged = True


def _mark_parted_slowly(ring: list[_Seen]) -> None:
    """Starts whose end is not the next entry."""
    for entry, follower in zip_longest(ring, ring[1:]):
        if not entry.is_end and not (
            follower
            and follower.is_end
            and not follower.damaged
            and follower.scope == entry.scope
            and follower.cycles >= entry.cycles
        ):
            entry.damaged = True


def _amid_inner_slowly(sound: list[_Seen], oldest: int, parents: Sequence[int]) -> list[int]:
    """The places of starts, each its scope's first record, before which a scope in theirs has records, or behind which
    its next record is an end; of those that began no earlier than the ``oldest`` thing in the ring. ``sound`` are in
    the order of time."""
    wrong = []
    for entry in sound:
        first = next(other for other in sound if other.scope == entry.scope)
        if entry is not first or entry.is_end or entry.cycles < oldest:
            continue
        at = sound.index(entry)
        for inner in range(len(parents)):
            around = parents[inner]
            while around not in (-1, entry.scope):
                around = parents[around]
            following = next((other for other in sound[at:] if other.scope == inner), None)
            if around == entry.scope and (
                any(other.scope == inner for other in sound[:at]) or (following and following.is_end)
            ):
                wrong.append(entry.place)
    return wrong


def _pair_slowly(
    result: SlowDecode,
    cta: int,
    warp: int,
    ring: list[_Seen],
    sound: list[_Seen],
    late: list[int],
    stores_moved: bool,
) -> WarpLoss:
    """Add a warp's scopes, and what has no partner. ``sound`` are its records in the order of time, ``late`` the places
    of those that cannot be the starts they seem to be."""
    open_starts, stray_ends = Counter[int](), Counter[int]()
    for scope in sorted({entry.scope for entry in sound if entry.scope is not None}):
        mine = [entry for entry in sound if entry.scope == scope]
        kinds = "".join("e" if entry.is_end else "s" for entry in mine)
        place = 0
        while place < len(mine):
            first, second = mine[place], mine[min(place + 1, len(mine) - 1)]
            between = sum(entry.damaged for entry in ring[first.place : second.place])
            if (
                kinds[place : place + 2] == "se"
                and kinds[max(place - 1, 0) : place] in {"", "e"}
                and kinds[place + 2 : place + 3] in {"", "s"}
                and (stores_moved or between < 2)
                and first.place not in late
            ):
                result.scopes.append((cta, warp, scope, first.cycles, second.cycles))
                place += 2
            else:
                (stray_ends if first.is_end else open_starts)[scope] += 1
                place += 1
    result.open_starts += open_starts
    result.stray_ends += stray_ends
    return WarpLoss(0, open_starts.total(), stray_ends.total(), len(ring) - len(sound))


def _time_of_moved(entry: _Seen, ring: list[_Seen]) -> tuple[int, bool, int]:
    """At one clock value ends come first, and of scopes that begin there the one that was stored last: it is around the
    others. A scope without length ends where it begins."""
    opens = not entry.is_end and ring[entry.place + 1].cycles > entry.cycles
    return entry.cycles, opens, -entry.place if opens else entry.place
