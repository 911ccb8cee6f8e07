"""What a Proton buffer's payload tells of how it was recorded, which its header does not say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.layouts import LAYOUTS, RawCtas
from kprof_inject.capture.schema import LayoutName
from kprof_inject.errors import KprofError

# An entry's first word, high to low: end flag, scope id, event flag (Triton 3.9), nothing, clock bits 42 to 32.
_SCOPE_SHIFT = 23
_SCOPE_IDS = 256
_NOTHING_MASK = 0x3FF800
_CLOCK_HIGH_MASK = 0x7FF
_CLOCK_LOW_BITS = 32
_WORDS_PER_ENTRY = 2

# A clock that goes back further than this did not: its 32 bits have overflowed.
_HALF_PERIOD = 1 << (_CLOCK_LOW_BITS - 1)
# Where the compiler moved stores, it did so for all warps that come by, and a start stands right before its end
# (Proton's ``ScheduleBufferStorePass``). What is so, or is not, in fewer than one of so many cases is damage.
_ONE_OF = 16
_BLOCK_ENTRIES = 1 << 20

_UNTIMED = "untimed"


@dataclass(frozen=True, slots=True)
class Recording:
    """``layout`` is the name of the payload's layout, ``ring_bytes`` what each recorded warp's ring takes (0 if no CTA
    ran). ``clock_bits`` is as in ``Mode``, ``stores_moved`` its ``sched_stores``; ``scope_ids`` are those that entries
    bear, ascending."""

    layout: LayoutName
    ring_bytes: int
    clock_bits: int
    stores_moved: bool
    scope_ids: tuple[int, ...]


def recording_of(words: NDArray[np.uint32], num_warps: int, recorded: Sequence[int]) -> Recording:
    """Look at all of a payload, one row for each CTA. Raises ``KprofError`` if a row has no room for the warps."""
    readings: list[_Reading] = []
    for name, layout in LAYOUTS.items():
        # A row may have room for the counts of one layout and not for those of another.
        with suppress(KprofError):
            readings.append(_Reading(name, layout.read(words, num_warps, recorded)))
    if not readings:
        raise KprofError(f"rows of {words.shape[1] * 4} bytes have no room for {num_warps} warps")
    return _recording(max(readings, key=_credibility))


class _Reading(NamedTuple):
    layout: LayoutName
    ctas: RawCtas


def _credibility(reading: _Reading) -> tuple[int, bool]:
    """What is read as another layout than it has makes little sense: its times are counts, or its counts are times."""
    ctas = reading.ctas
    return ctas.written_words.size - ctas.miscounted, ctas.timed or reading.layout == _UNTIMED


def _recording(reading: _Reading) -> Recording:
    ctas = reading.ctas
    seen = np.zeros(_SCOPE_IDS, dtype=np.int64)
    long_clocks = rings = turned = starts = parted = 0
    for first, cycles, followed in _blocks(ctas):
        sound = first[(cycles >= 0) & (first & _NOTHING_MASK == 0)]
        seen += np.bincount(sound >> _SCOPE_SHIFT & (_SCOPE_IDS - 1), minlength=_SCOPE_IDS)
        long_clocks += int(np.count_nonzero(sound & _CLOCK_HIGH_MASK))
        back = cycles[..., :-1] - cycles[..., 1:]
        rings += int(np.count_nonzero(followed.any(axis=-1)))
        turned += int(np.count_nonzero((followed & (back > 0) & (back < _HALF_PERIOD)).any(axis=-1)))
        tag = first >> _SCOPE_SHIFT
        is_start = followed & (tag[..., :-1] < _SCOPE_IDS)
        starts += int(np.count_nonzero(is_start))
        parted += int(np.count_nonzero(is_start & (tag[..., 1:] - tag[..., :-1] != _SCOPE_IDS)))
    return Recording(
        reading.layout,
        ctas.entries.shape[2] * _WORDS_PER_ENTRY * ctas.entries.itemsize,
        # Of a counter that has 43 bits, hardly any reading fits in 32.
        _CLOCK_LOW_BITS if 2 * long_clocks < seen.sum() else 64,
        turned * _ONE_OF > rings and parted * _ONE_OF <= starts,
        tuple(np.flatnonzero(seen).tolist()),
    )


def _blocks(ctas: RawCtas) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """Of a bounded number of CTAs at a time the entries (CTA, warp, slot): their first words; their clocks, -1 where
    nothing was written; and for each slot but the last whether the next one was written after it."""
    rows, warps, slots, _ = ctas.entries.shape
    slot = np.arange(slots)
    step = max(1, _BLOCK_ENTRIES // max(1, warps * slots))
    for begin in range(0, rows, step):
        part = slice(begin, begin + step)
        written = ctas.written_words[part, :, None] // _WORDS_PER_ENTRY
        used = slot < written
        first = ctas.entries[part, :, :, 0].astype(np.int64)
        clocks = (first & _CLOCK_HIGH_MASK) << _CLOCK_LOW_BITS | ctas.entries[part, :, :, 1]
        followed = used[..., 1:] & (slot[:-1] != (written - 1) % slots)
        yield first, np.where(used, clocks, -1), followed
