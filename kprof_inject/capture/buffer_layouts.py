"""Layouts of Proton's buffer, bit by bit.

A buffer that was not cleared holds the previous content of its memory, perhaps the rows of an earlier launch. So a row
counts only if a CTA of the launch can have written it, judged by its own fields and by the other rows.

Sources: Proton's ``CircularLayoutParser`` and ``InitializeOp``/``FinalizeOp`` lowering in triton (third_party/proton),
checked on an H200 with Triton 3.6.0, and the stores in the PTX of every version's kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.cta_samples import HASH_FACTOR, HASH_SHIFT, SM_BITS, CtaSample
from kprof_inject.capture.schema import SCOPE_IDS, LayoutName
from kprof_inject.errors import KprofError
from kprof_inject.quantities import counted

# An entry is two words. The first, high to low: end flag, scope id, event flag (Triton 3.9), unused, clock bits 42 to
# 32. The second: clock bits 31 to 0 (Proton's CircularStoreOp lowering).
WORDS_PER_ENTRY = 2
ENTRY_BYTES = 4 * WORDS_PER_ENTRY
END_SHIFT = 31
SCOPE_SHIFT = 23
EVENT_SHIFT = 22
UNUSED_MASK = 0x3FF800
CLOCK_HIGH_MASK = 0x7FF
CLOCK_LOW_BITS = 32
CLOCK_BITS = 43  # bits that an entry keeps of a counter of 64 bits

# A row begins with a header: preamble, the CTA's number, its SM, and the bytes of its rings. The timer's readings of 64
# bits follow, if there are any, and a count for each warp.
HEADER_WORDS = 4
TIMES_WORDS = 6
PREAMBLE = 0xDEADBEEF

END = np.dtype("<u8")
"""What a CTA that does not record leaves, if only a sample of the CTAs records: the lowest bits of the timer when its
first warp ended, and its SM (``SM_BITS``). It is zero for CTAs that record, and for those that never ran."""
NO_ENDS = np.empty(0, dtype=END)


def ends_and_rows(
    words: NDArray[np.uint32], sample: CtaSample, row_bytes: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """Split a launch's buffer: ends of all CTAs (``END``), none if all record, and a row for each CTA that records."""
    ends_words = sample.ends_bytes // words.itemsize
    # The last CTA's end comes first.
    ends = words[:ends_words].view(END)[::-1][: sample.ctas if ends_words else 0]
    return ends, words[ends_words:].reshape(-1, row_bytes // words.itemsize)


def rows_of(sample: CtaSample, ctas: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of each CTA, or -1 if the sample does not have it."""
    cluster, rank = np.divmod(ctas, sample.cluster_ctas)
    block = cluster >> sample.shift
    hashed = (block * HASH_FACTOR & 0xFFFFFFFF) >> HASH_SHIFT
    records = (hashed ^ cluster) & ((1 << sample.shift) - 1) == 0
    return np.where(records & (ctas < sample.ctas), block * sample.cluster_ctas + rank, -1)


def scope_ids(entries: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the scope ids of entries whose first word is the lower half."""
    return entries >> np.uint64(SCOPE_SHIFT) & np.uint64(SCOPE_IDS - 1)


def end_flags(entries: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which entries are ends."""
    return (entries >> np.uint64(END_SHIFT) & np.uint64(1)).astype(bool)


def clock_values(entries: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the clock values of entries."""
    low = entries >> np.uint64(CLOCK_LOW_BITS)
    high = (entries & np.uint64(CLOCK_HIGH_MASK)) << np.uint64(CLOCK_LOW_BITS)
    return (high | low).view(np.int64)


def stored_values(entries: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the values of a tag's entries: 32 bits with a sign, in place of the lower half of the clock."""
    return (entries >> np.uint64(CLOCK_LOW_BITS)).astype(np.uint32).view(np.int32).astype(np.int64)


_MAX_CTA_NS = 1 << 41  # no CTA outlasts half the period of 43 bits of cycles, and the timer counts no slower than an SM
_MAX_PAUSE_NS = 60_000_000_000  # longest pause without a running CTA within a launch
_END_OF_TIME_NS = 1 << 62  # The year 2116. The difference of two such times fits 64 bits.
_MAX_WORDS = (1 << 31) - 1  # the kernel's count of words is signed
# Counts up to this are possible in any time; more records than nanoseconds are not, because no warp writes one in less.
_RECORDS_AT_ONCE = 1 << 20


def _fit(sizes: NDArray[np.uint32], rings: int, room_words: int) -> NDArray[np.bool_]:
    """Determine which sizes in bytes are ``rings`` rings of whole records that have room in ``room_words``."""
    ring_words = sizes // 4 // rings
    fits: NDArray[np.bool_] = (
        (ring_words % WORDS_PER_ENTRY == 0) & (ring_words > 0) & (ring_words <= room_words // rings)
    )
    return fits


def _possible_times(begin: NDArray[np.uint64], end: NDArray[np.uint64]) -> NDArray[np.bool_]:
    return (begin <= end) & (end < _END_OF_TIME_NS) & (end - begin <= _MAX_CTA_NS)


def _sound_times(times: NDArray[np.uint64], rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Determine which ``rows`` have possible times (row, 3), near those of most other rows."""
    begin, end = times[:, 0], times[:, 1]
    at = np.flatnonzero(rows & _possible_times(begin, end))
    sound = np.zeros_like(rows)
    if at.size:
        order = at[np.argsort(begin[at], kind="stable")]
        last_end = np.maximum.accumulate(end[order]).astype(np.int64)
        pauses_ns = begin[order[1:]].astype(np.int64) - last_end[:-1]
        part = np.append(0, np.cumsum(pauses_ns > _MAX_PAUSE_NS))
        sound[order[part == np.argmax(np.bincount(part))]] = True
    return sound


def _impossible_counts(
    written_words: NDArray[np.int64], durations_ns: NDArray[np.int64] | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Determine which counts (..., row, warp) are not whole records, and which are too high for the CTA's time."""
    max_words: NDArray[np.int64] | int = _MAX_WORDS
    if durations_ns is not None:
        max_words = np.minimum(np.maximum(durations_ns, _RECORDS_AT_ONCE) * WORDS_PER_ENTRY, _MAX_WORDS)[..., None]
    return written_words % WORDS_PER_ENTRY != 0, written_words > max_words


_TIMER_BITS = 64 - SM_BITS
_SM_MASK = np.uint64((1 << SM_BITS) - 1)


def _left_ends(
    ends: NDArray[np.uint64], is_left: NDArray[np.bool_], first_ns: NDArray[np.int64], last_ns: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Determine which of the CTAs that left an end can be of the launch, and when they ended, in ns.

    The CTAs with records begin from ``first_ns`` to ``last_ns``.
    """
    # The timer's highest bits are those of the nearest time to the CTAs with records.
    half = 1 << (_TIMER_BITS - 1)
    lowest = (ends >> np.uint64(SM_BITS)).view(np.int64)
    end_ns = last_ns + (lowest - last_ns + half) % (2 * half) - half
    return is_left & (end_ns > first_ns - _MAX_PAUSE_NS) & (end_ns < last_ns + _MAX_CTA_NS), end_ns


def _others(
    ends: NDArray[np.uint64], is_left: NDArray[np.bool_], recorded: NDArray[np.int64]
) -> tuple[NDArray[np.int64], float]:
    """Return ``RawCtas.others``, and the error of their mean begin.

    ``recorded`` has number, SM, begin and end of CTAs with records: shape (4, CTA).
    """
    recorded = recorded[:, recorded[2] > 0]
    if not is_left.any() or not recorded.size:  # nothing to read, or no timer
        return np.empty((4, 0), dtype=np.int64), 0.0
    sound, end_ns = _left_ends(ends, is_left, recorded[2].min(), recorded[2].max())
    at = np.flatnonzero(sound)
    sm = (ends[at] & _SM_MASK).astype(np.int64)
    begin_ns, error_ns = estimated_begins(recorded, np.stack((at, sm, end_ns[at])))
    return np.stack((at, sm, begin_ns, end_ns[at])), error_ns


_MAX_SLOTS = 32
"""CTAs that an SM holds at most (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""


_UNUSUAL = 0.02  # share of gaps on either side that are limited: another order of CTAs may have made them


def estimated_begins(recorded: NDArray[np.int64], others: NDArray[np.int64]) -> tuple[NDArray[np.int64], float]:
    """Estimate when the other CTAs of a launch began, and the standard error of their mean, in ns.

    An SM begins its CTAs in the order of their program ids, and each one that does not fit at once when an earlier one
    has ended. How many fit, and how long the SM takes to begin one, is known from the CTAs that record. That is the
    mean time, as the median of a skewed one would make all others too long or too short (by 10 % in simulations). No
    other CTA is taken to begin before the first of those, unless it ended before.

    ``recorded`` has the number, SM, begin and end of at least one CTA, ``others`` the number, SM and end of all others.
    """
    known = recorded.shape[1]
    cta, sm, end_ns = np.concatenate((recorded[[0, 1, 3]], others), axis=1)
    begin_ns = np.concatenate((recorded[2], np.zeros(others.shape[1], np.int64)))
    order = np.lexsort((cta, sm))
    ends_ns = end_ns[np.lexsort((end_ns, sm))]
    begun_ns = begin_ns[order]
    at = np.flatnonzero(begun_ns > 0)
    place = np.arange(len(order))
    number = place - np.searchsorted(sm[order], sm[order], side="left")
    first_ns = _first_begins(number, begun_ns)

    def begins(slots: int, rows: NDArray[np.int64], gap_ns: int = 0) -> NDArray[np.int64]:
        # The n-th CTA of an SM begins when the (n - slots)-th of its CTAs has ended.
        return np.where(number[rows] >= slots, ends_ns[np.maximum(rows - slots, 0)] + gap_ns, first_ns[rows])

    fits: list[tuple[float, int, int, float]] = []
    for slots in range(1, min(int(number.max()) + 1, _MAX_SLOTS) + 1):
        late_ns = (begun_ns[at] - begins(slots, at))[number[at] >= slots]
        gap_ns, error_ns = 0, 0.0
        if late_ns.size:
            usual_ns = np.clip(late_ns, *np.quantile(late_ns, (_UNUSUAL, 1 - _UNUSUAL)))
            gap_ns = int(usual_ns.mean())
            # What the limits leave out may have been right, and a single gap does not show how much gaps differ.
            spread_ns = usual_ns.std(ddof=1) if late_ns.size > 1 else late_ns[0]
            error_ns = float(np.hypot(spread_ns / np.sqrt(late_ns.size), late_ns.mean() - usual_ns.mean()))
        fits.append((float(np.abs(begins(slots, at, gap_ns) - begun_ns[at]).mean()), slots, gap_ns, error_ns))
    _, slots, gap_ns, error_ns = min(fits)
    found_ns = np.empty_like(begin_ns)
    found_ns[order] = begins(slots, place, gap_ns)
    return np.minimum(np.maximum(found_ns, recorded[2].min()), end_ns)[known:], error_ns


def _first_begins(number: NDArray[np.int64], begin_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the median of the known begins of the n-th CTAs of all SMs, for each CTA; else the first of all begins."""
    known = begin_ns > 0
    order = np.lexsort((begin_ns[known], number[known]))
    numbers, values_ns = number[known][order], begin_ns[known][order]
    distinct, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    medians_ns = np.full(int(number.max()) + 1, int(values_ns.min()))
    medians_ns[distinct] = values_ns[first + counts // 2]
    return medians_ns[number]


def _first_of_each(ids: NDArray[np.int64], rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Keep one row for each id (below the number of rows): the one at the index of its id, else the first."""
    at = np.flatnonzero(rows)
    holder = np.full(len(rows), -1)
    # The last assignment to a repeated index wins, so the first row does.
    holder[ids[at[::-1]]] = at[::-1]
    home = at[ids[at] == at]
    holder[home] = home
    first = np.zeros_like(rows)
    first[holder[holder >= 0]] = True
    return first


_MAX_SMS = 1 << 16  # no device numbers its SMs or CUs higher, so a higher number is damaged


class LaunchHeaders(Struct, frozen=True):
    """A launch's figures from the headers of its CTAs, without its records."""

    duration_ns: int  # time from the first CTA's begin to the last one's end of work; 0 if none ran
    records_lost: int
    ctas_damaged: int


class RawCtas(Struct, frozen=True):
    """CTAs that ran, one row each, and what their warps wrote."""

    warps: NDArray[np.int64]
    """Ids of the warps that recorded, ascending; "warp" in a shape means one of these, in this order."""
    cta: NDArray[np.int64]
    sm: NDArray[np.int64]
    init_ns: NDArray[np.int64]
    pre_final_ns: NDArray[np.int64]
    post_final_ns: NDArray[np.int64]
    written_words: NDArray[np.int64]
    """Words written by each warp (CTA, warp), not limited to the ring; with an impossible count, it wrapped once."""
    entries: NDArray[np.uint32]
    """Ring of each warp: shape (CTA, warp, slot, 2), often a view of the buffer. Unwritten slots are arbitrary."""
    never_ran: int  # number of CTAs of the grid that wrote nothing
    damaged: int  # number of rows that contradict themselves or others, which are left out
    timed: bool  # true if a timer was read and its times are plausible; otherwise the times are 0
    miscounted: int = 0  # number of warps with an impossible count: too high, or not of whole records
    others: NDArray[np.int64] = np.empty((4, 0), dtype=np.int64)
    """CTAs that ran outside of the sample that records: number, SM, estimated begin, and end in ns; shape (4, CTA)."""
    begin_error_ns: float = 0.0  # standard error of the mean of these begins

    @property
    def records_lost(self) -> NDArray[np.int64]:
        """Number of records that each CTA's warp lost: shape (CTA, warp)."""
        lost: NDArray[np.int64] = np.maximum(self.written_words // WORDS_PER_ENTRY - self.entries.shape[2], 0)
        return lost

    @property
    def headers(self) -> LaunchHeaders | None:
        """The launch's figures; None if no timer was read."""
        if not self.timed:
            return None
        begins_ns = np.concatenate((self.init_ns, self.others[2]))
        ends_ns = np.concatenate((self.pre_final_ns, self.others[3]))
        duration_ns = int(ends_ns.max() - begins_ns.min()) if ends_ns.size else 0
        return LaunchHeaders(duration_ns, int(self.records_lost.sum()), self.damaged)


class Layout(Struct, frozen=True):
    """Layout of a row: a header of four words, three timer readings if it ``has_times``, counts, and the rings."""

    has_times: bool

    def header_words(self, num_warps: int) -> int:
        """Return the number of words before a row's rings."""
        return HEADER_WORDS + TIMES_WORDS * self.has_times + num_warps

    def read(
        self,
        words: NDArray[np.uint32],
        num_warps: int,
        recorded: Sequence[int],
        sample: CtaSample | None = None,
        ends: NDArray[np.uint64] = NO_ENDS,
    ) -> RawCtas:
        """Read the rows that CTAs of the launch can have written.

        ``words`` has one row for each CTA of the ``sample``, by default of the grid. Of its ``num_warps`` warps those
        in ``recorded``, ascending, have a ring. ``ends`` (``END``) are those of all CTAs of the grid.
        """
        sample = sample or CtaSample(ctas=len(words), cluster_ctas=1, shift=0)
        counts_at = HEADER_WORDS + TIMES_WORDS * self.has_times
        rings_at = self.header_words(num_warps)
        if not recorded or words.shape[1] < rings_at:
            raise KprofError(
                f"a buffer of {words.shape[1] * 4} bytes per CTA has no room for {counted(num_warps, 'warp')}",
                hint="the kernel's metadata and its buffer do not match; capture again",
            )
        warps = np.array(recorded, dtype=np.int64)
        ran = words[:, 0] == PREAMBLE
        row_of_cta = rows_of(sample, words[:, 1].astype(np.int64))
        sound = ran & (row_of_cta >= 0) & (words[:, 2] < _MAX_SMS)
        sizes, counts = np.unique(words[sound, 3], return_counts=True)
        fits = _fit(sizes, len(warps), words.shape[1] - rings_at)
        size = int(sizes[fits][np.argmax(counts[fits])]) if fits.any() else 0  # the most frequent of those that fit
        sound &= (words[:, 3] == size) & (size > 0)
        # The begin, the end and the end of copying of each row: shape (row, 3).
        times = np.ascontiguousarray(words[:, HEADER_WORDS:counts_at]).view("<u8") if self.has_times else None
        in_time = sound if times is None else _sound_times(times, sound)
        # If no row has plausible times, the timer is at fault, not the rows.
        timed = times is not None and bool(in_time.any() or not sound.any())
        sound = _first_of_each(row_of_cta, in_time if timed else sound)

        # Copied only if others are between the sound rows.
        at = np.flatnonzero(sound)
        is_range = at.size and at[-1] - at[0] + 1 == at.size
        rows = words[at[0] : at[-1] + 1] if is_range else words[sound]
        ring_words = size // 4 // len(warps) if len(rows) else 0
        own_times = np.zeros((len(rows), 3), dtype=np.int64)
        if times is not None and timed:
            own_times = times[sound].astype(np.int64)
        init_ns, pre_final_ns, post_final_ns = own_times.T
        is_copying = (post_final_ns >= pre_final_ns) & (post_final_ns - pre_final_ns <= _MAX_CTA_NS)
        cta, sm = rows[:, 1].astype(np.int64), rows[:, 2].astype(np.int64)
        # The end of a CTA with a row is that of an earlier launch.
        left_end = (ends > 0) & (rows_of(sample, np.arange(len(ends))) < 0)
        others, begin_error_ns = _others(ends, left_end, np.stack((cta, sm, init_ns, post_final_ns)))
        written = rows[:, counts_at + warps].astype(np.int64)
        odd, too_high = _impossible_counts(written, pre_final_ns - init_ns if timed else None)
        if too_high.any():
            written = np.where(too_high, ring_words + written % ring_words, written)
        return RawCtas(
            warps=warps,
            cta=cta,
            sm=sm,
            init_ns=init_ns,
            pre_final_ns=pre_final_ns,
            # An impossible time of copying is replaced by the end of the work.
            post_final_ns=np.where(is_copying, post_final_ns, pre_final_ns),
            written_words=written,
            entries=rows[:, rings_at : rings_at + ring_words * len(warps)].reshape(
                len(rows), len(warps), ring_words // 2, 2
            ),
            never_ran=sample.ctas - int(ran.sum()) - int(left_end.sum()),
            damaged=int((ran & ~sound).sum()) + int(left_end.sum()) - others.shape[1],
            timed=timed,
            miscounted=int((odd | too_high).sum()),
            others=others,
            begin_error_ns=begin_error_ns,
        )

    def sound_headers(
        self,
        heads: NDArray[np.uint32],
        ring_words: int,
        recorded: Sequence[int],
        sample: CtaSample | None,
        ends: NDArray[np.uint64],
    ) -> list[LaunchHeaders | None]:
        """Return ``RawCtas.headers`` of several launches of one form at once, None for those that need ``read``.

        ``heads`` (launch, row, word) has the ``header_words`` of each row, which ``ring_words`` follow; ``ends`` is
        (launch, CTA). The other arguments are those of ``read``.
        """
        if not self.has_times or not recorded or ring_words <= 0:
            return [None] * len(heads)
        sample = sample or CtaSample(ctas=heads.shape[1], cluster_ctas=1, shift=0)
        counts_at = HEADER_WORDS + TIMES_WORDS
        ran = heads[..., 0] == PREAMBLE
        row_of_cta = rows_of(sample, heads[..., 1].astype(np.int64))
        size = np.where(ran, heads[..., 3], 0).max(axis=1)
        begin, end, _ = np.moveaxis(np.ascontiguousarray(heads[..., HEADER_WORDS:counts_at]).view("<u8"), 2, 0)
        is_sound = (row_of_cta >= 0) & (heads[..., 2] < _MAX_SMS) & (heads[..., 3] == size[:, None])
        is_sound &= _possible_times(begin, end)
        begin, end = begin.view(np.int64), end.view(np.int64)
        written = heads[..., counts_at + np.array(recorded)].astype(np.int64)
        is_sound &= ~_impossible_counts(written, end - begin)[1].any(axis=2)

        # Rows that did not run get numbers of their own.
        numbers = np.sort(np.where(ran, row_of_cta, np.arange(-heads.shape[1], 0)))
        first_ns, first_end_ns = (np.where(ran, ns, _END_OF_TIME_NS).min(axis=1) for ns in (begin, end))
        last_ns, last_end_ns = (np.where(ran, ns, 0).max(axis=1) for ns in (begin, end))
        are_sound = ran.any(axis=1) & (is_sound | ~ran).all(axis=1) & (np.diff(numbers) > 0).all(axis=1)
        are_sound &= _fit(size, len(recorded), ring_words)
        are_sound &= (first_ns > 0) & (last_ns - first_end_ns <= _MAX_PAUSE_NS)

        slots = size.astype(np.int64) // ENTRY_BYTES // len(recorded)
        lost = np.maximum(written // WORDS_PER_ENTRY - slots[:, None, None], 0).sum(axis=2)
        damaged = np.zeros(len(heads), dtype=np.int64)
        if ends.size:
            is_left = (ends > 0) & (rows_of(sample, np.arange(ends.shape[1])) < 0)
            found, end_ns = _left_ends(ends, is_left, first_ns[:, None], last_ns[:, None])
            damaged = is_left.sum(axis=1) - found.sum(axis=1)
            first_ns = np.minimum(first_ns, np.where(found, end_ns, _END_OF_TIME_NS).min(axis=1))
            last_end_ns = np.maximum(last_end_ns, np.where(found, end_ns, 0).max(axis=1))
        lost = np.where(ran, lost, 0).sum(axis=1)
        figures = np.stack((last_end_ns - first_ns, lost, damaged), axis=1).tolist()
        return [LaunchHeaders(*one) if sound else None for one, sound in zip(figures, are_sound, strict=True)]


LAYOUTS: dict[LayoutName, Layout] = {"timed": Layout(has_times=True), "untimed": Layout(has_times=False)}
"""The layouts of Triton 3.6 and later, and of Triton 3.5."""
