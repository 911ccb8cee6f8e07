"""Decode rings into columns of records, block by block, ordered by clock within each warp.

A *group* is one recorded warp of one CTA: number ``row * warps + warp``, where ``row`` indexes the CTAs of the launch's
``RawCtas`` and ``warp`` its ``warps``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import (
    CLOCK_BITS,
    CLOCK_LOW_BITS,
    LAYOUTS,
    WORDS_PER_ENTRY,
    RawCtas,
    clock_values,
    end_flags,
    scope_ids,
)
from kprof_inject.capture.mode import RecordCost
from kprof_inject.capture.model import Launch
from kprof_inject.capture.schema import RECORDS_OF_TAG
from kprof_inject.timeline.columns import NO_SMALLEST, Mask, Numbers, group_begins, smallest
from kprof_inject.timeline.tags import NO_TAGS, TagIds
from kprof_inject.timeline.unwrap import (
    Counter,
    counter_of,
    far_records,
    max_launch_cycles,
    often_overflowing,
    torn_by_cycles,
)


def recorded_warps(launch: Launch) -> tuple[int, ...]:
    """Return the ids of a CTA's recorded warps, ascending."""
    return launch.kernel.mode.recorded_warps(launch.kernel.num_warps)


def read_raw(launch: Launch) -> RawCtas:
    """Read a launch's buffer and split it into its fields; raises ``KprofError`` if it is damaged as a whole."""
    kernel = launch.kernel
    ends, words = launch.ends_and_words()
    return LAYOUTS[kernel.layout].read(words, kernel.num_warps, recorded_warps(launch), launch.sample, ends)


def parted_starts(group: Numbers, scope: NDArray[np.int16], is_end: Mask, cycles: Numbers, usable: Mask) -> Mask:
    """Determine which ``usable`` entries are starts that their end does not follow, in a ring whose stores were moved.

    Proton's pass moves the store of a scope's start to right before the store of its end (``ScheduleBufferStorePass``;
    Triton 3.6's PTX shows the same). So the ring holds whole scopes, each start next to its end, in the order of their
    ends.
    """
    is_followed = (
        (group[1:] == group[:-1]) & (scope[1:] == scope[:-1]) & (cycles[1:] >= cycles[:-1]) & (usable & is_end)[1:]
    )
    parted = usable & ~is_end
    parted[:-1] &= ~is_followed
    return parted


# After this many rounds a warp's contradictions are too many to be single damaged words: all its records are dropped.
_MAX_ROUNDS = 8


def contradicted_records(group: Numbers, cycles: Numbers, usable: Mask) -> Mask:
    """Determine which ``usable`` records are out of order with a neighbour.

    A warp writes its records in the order of its clock. Where two neighbours contradict that, either may be wrong: both
    are left out.
    """
    at = np.flatnonzero(usable)
    wrong = np.zeros(len(group), dtype=bool)
    for round_number in range(_MAX_ROUNDS + 1):
        falls = np.flatnonzero((np.diff(cycles[at]) < 0) & (np.diff(group[at]) == 0))
        if not falls.size:
            break
        if round_number < _MAX_ROUNDS:
            wrong[at[falls]] = wrong[at[falls + 1]] = True
        else:
            wrong[at[np.isin(group[at], group[at[falls]])]] = True
        at = at[~wrong[at]]
    return wrong


_BLOCK_RECORDS = 1 << 16  # number of records decoded at once: their columns together fit a processor's cache


class Records(Struct, frozen=True):
    """The sound records of some CTAs, ordered by ``group`` and time."""

    group: Numbers
    number: Numbers  # position of the record among all that its warp wrote, including lost and damaged ones
    scope: NDArray[np.int16]
    is_end: Mask
    cycles: Numbers
    damaged: Numbers  # group of each entry that was left out because it cannot be a record of this kernel
    first_group: int
    lost: Numbers  # number of records that the ring lost, for each warp of the CTAs
    oldest: Numbers
    """Begin and end, in cycles, of each warp's oldest kept record: shape (2, warp). All lost ones were before."""
    tags: Numbers  # values of the tags of the scope that begins here: shape (record, maximum number of tags of a scope)

    def at(self, rows: Numbers | Mask) -> Records:
        """Return the records of ``rows``, in that order."""
        columns = ("group", "number", "scope", "is_end", "cycles", "tags")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})


class RecordDecoder(Struct, frozen=True):
    """Decoder of the records in a launch's rings."""

    ctas: RawCtas
    scope_of_id: NDArray[np.int16]  # scope of each id, or -1; several ids may map to one scope
    counter: Counter | None
    max_cycles: int  # maximum distance of two records of a CTA
    stores_moved: bool  # rings are written as ``parted_starts`` describes
    clock_bits: int
    """With more than 32 bits, a record reads each half separately, and its value may be torn (``torn_by_cycles``)."""
    tags: TagIds = NO_TAGS

    def blocks(self) -> Iterator[slice]:
        """Yield the rows of the launch in parts of a bounded number of records (at least one CTA)."""
        rows, warps, _, _ = self.ctas.entries.shape
        max_records = max(1, self._kept(slice(None)).max(initial=0) * warps)
        step = max(1, _BLOCK_RECORDS // int(max_records))
        for begin in range(0, rows, step):
            yield slice(begin, min(begin + step, rows))

    def decode(self, rows: slice) -> Records:
        """Decode the records of the CTAs in ``rows``."""
        kept = self._kept(rows).reshape(-1)
        entries = self._entries(rows, kept)
        first_group = rows.start * self.ctas.entries.shape[1]
        group = np.repeat(np.arange(first_group, first_group + len(kept)), kept)
        lost = np.maximum(self.ctas.written_words[rows].reshape(-1) // WORDS_PER_ENTRY - kept, 0)
        number = np.arange(len(group)) + np.repeat(lost - (np.cumsum(kept) - kept), kept)
        scope, is_end = self.scope_of_id[scope_ids(entries)], end_flags(entries)
        records = Records(
            group=group,
            number=number,
            scope=scope,
            is_end=is_end,
            cycles=clock_values(entries),
            damaged=group[:0],
            first_group=first_group,
            lost=lost,
            oldest=np.empty((2, 0), dtype=np.int64),
            tags=self.tags.values(entries, group, scope, is_end),
        )
        if self.tags.max_tags:
            records = records.at(~self.tags.entries_of(entries))
        if self.counter is not None:
            records = replace(records, cycles=self.counter.unwrap(records.cycles, records.group))
        row = records.group // self.ctas.entries.shape[1] - rows.start
        distance = far_records(row, records.cycles, records.scope >= 0, self.max_cycles)
        far = distance != 0
        if self.clock_bits != CLOCK_LOW_BITS and far.any():
            torn = torn_by_cycles(records.cycles, distance, self.max_cycles)
            records, far = replace(records, cycles=records.cycles - torn), far & (torn == 0)
        damaged = (records.scope < 0) | far
        if self.stores_moved:
            # Ends are stored in the order of the clock even if stores were moved.
            damaged |= contradicted_records(records.group, records.cycles, ~damaged & records.is_end)
            damaged |= parted_starts(records.group, records.scope, records.is_end, records.cycles, ~damaged)
        else:
            damaged |= contradicted_records(records.group, records.cycles, ~damaged)
        if damaged.any():
            records = replace(records.at(~damaged), damaged=records.group[damaged])
        oldest = np.full((2, len(lost)), NO_SMALLEST)
        begin = np.flatnonzero(np.append(True, records.group[1:] != records.group[:-1])[: len(records.group)])
        # If its store was moved, a start was stored with its end, which counts.
        end = begin + (~records.is_end[begin] & self.stores_moved)
        oldest[:, records.group[begin] - first_group] = records.cycles[begin], records.cycles[end]
        records = replace(records, oldest=oldest)
        return _by_clock(records) if self.stores_moved else records

    def _kept(self, rows: slice) -> Numbers:
        slots = self.ctas.entries.shape[2]
        return np.minimum(self.ctas.written_words[rows] // WORDS_PER_ENTRY, slots)

    def _entries(self, rows: slice, kept: Numbers) -> NDArray[np.uint64]:
        """Return all written entries, from each warp's oldest to its newest; the first word is the lower half."""
        used = int(kept.max(initial=0))
        rings = np.ascontiguousarray(self.ctas.entries[rows, :, :used]).view(np.uint64).reshape(-1)
        written = self.ctas.written_words[rows].reshape(-1) // WORDS_PER_ENTRY
        # The oldest entry of a full ring is at count mod size.
        oldest = np.where(written > used, written, 0) % max(used, 1)
        if (kept == used).all() and not oldest.any():
            return rings
        begins = np.cumsum(kept) - kept
        slot = np.arange(int(kept.sum())) + np.repeat(oldest - begins, kept)
        if oldest.any():
            slot[slot >= used] -= used
        in_order: NDArray[np.uint64] = rings[slot + np.repeat(np.arange(len(kept)) * used, kept)]
        return in_order


def _by_clock(records: Records) -> Records:
    """Sort by clock; the places of damaged entries are then unknown, so these are numbered with the lost ones."""
    place = np.arange(len(records.group))
    # Of two scopes that begin at one clock value, the outer one was stored last. A scope that also ends there goes
    # between the scopes that end and those that begin there.
    is_open = ~records.is_end
    is_open[:-1] &= np.diff(records.cycles) != 0
    order = np.lexsort((np.where(is_open, 2 * len(place) - place, place), records.cycles, records.group))
    warp = records.group - records.first_group
    first = records.lost + np.bincount(records.damaged - records.first_group, minlength=len(records.lost))
    rank = place - group_begins(np.diff(warp, prepend=-1) != 0)
    return replace(records.at(order), number=first[warp] + rank)


def record_decoder(
    ctas: RawCtas,
    scope_of_id: NDArray[np.int16],
    *,
    clock_bits: int = 64,
    clock_hz: float | None = None,
    stores_moved: bool = False,
    tags: TagIds = NO_TAGS,
) -> RecordDecoder:
    """Create the decoder of a launch's records; ``clock_bits`` and ``stores_moved`` are those of its ``Mode``."""
    bits = CLOCK_LOW_BITS if clock_bits == CLOCK_LOW_BITS else CLOCK_BITS
    oldest, newest = _ring_ends(ctas, tags)
    max_cycles = max_launch_cycles(ctas)
    if max_cycles < 1 << (bits - 1):
        counter = counter_of(oldest, newest, ctas.sm, bits, stores_moved=stores_moved)
        return RecordDecoder(ctas, scope_of_id, counter, max_cycles, stores_moved, clock_bits, tags)
    often = often_overflowing(newest, ctas, bits, clock_hz)
    decoder = RecordDecoder(ctas, scope_of_id, often, max_cycles, stores_moved, clock_bits, tags)
    # Each SM is raised by the fewest periods that make its lowest value 0 or more.
    size, warps = int(ctas.sm.max(initial=0)) + 1, ctas.entries.shape[1]
    lowest = np.full(size, NO_SMALLEST)
    for rows in decoder.blocks():
        records = decoder.decode(rows)
        lowest = np.minimum(lowest, smallest(ctas.sm[records.group // warps], records.cycles, size))
    lowest[lowest == NO_SMALLEST] = 0
    raised = np.repeat(lowest[ctas.sm], warps) // often.period * often.period
    return replace(decoder, counter=replace(often, newest=often.newest - raised))


def _ring_ends(ctas: RawCtas, tags: TagIds) -> tuple[Numbers, Numbers]:
    """Return the clock values of each warp's oldest and newest entry: shape (CTA, warp), -1 where there is none.

    A tag's entry has no clock; the next entry towards the other end of the ring then counts.
    """
    slots = ctas.entries.shape[2]
    written = ctas.written_words // WORDS_PER_ENTRY
    row, warp = np.nonzero(written * slots)
    count = written[row, warp]
    ends = np.full((2, *written.shape), -1)
    for end, slot, inwards in zip(ends, (np.where(count > slots, count, 0), count - 1), (1, -1), strict=True):
        entries = _entries_at(ctas, row, warp, slot)
        for steps in range(1, min(tags.max_tags * RECORDS_OF_TAG, slots - 1) + 1):
            further = _entries_at(ctas, row, warp, slot + inwards * steps)
            entries = np.where(tags.entries_of(entries) & (count > steps), further, entries)
        end[row, warp] = clock_values(entries)
    return ends[0], ends[1]


def _entries_at(ctas: RawCtas, row: Numbers, warp: Numbers, slot: Numbers) -> NDArray[np.uint64]:
    slots = max(ctas.entries.shape[2], 1)
    return np.ascontiguousarray(ctas.entries[row, warp, slot % slots]).view("<u8").reshape(-1)


def without_records(records: Records, ns: Numbers, record_cost: RecordCost) -> tuple[Numbers, Numbers]:
    """Return the cycles and nanoseconds from the first record to each, less ``record_cost`` for each in between.

    What a record costs depends on the neighbouring instructions. So each distance between two records of a warp is
    shortened by the middle of what one may cost, but never below 0, and may be off by ``RecordCost.error_cycles``.

    A duration is the sum of the distances in it, so the scopes inside one never add up to more than it.
    """
    cycles = np.diff(records.cycles)
    # The distance between two warps counts as 0; each warp's distances continue from the end of the previous warp's.
    within = np.diff(records.group) == 0
    cost = np.where(records.is_end[:-1], record_cost.after_end_cycles, record_cost.after_start_cycles)
    # A damaged entry in between may have been a start or an end.
    cost = cost + record_cost.cycles * (np.diff(records.number) - 1)
    left = np.where(within, np.maximum(cycles - cost, 0.0), 0.0)
    share = left / np.maximum(cycles, 1)
    net_cycles, net_ns = (
        np.rint(np.append(0.0, np.cumsum(distances))).astype(np.int64) for distances in (left, np.diff(ns) * share)
    )
    return net_cycles, net_ns
