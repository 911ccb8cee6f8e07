"""Raw buffers to columns of records, ordered by clock within each warp."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.layouts import RawCtas
from kprof_inject.timeline.groups import largest, smallest

# The entry's first word, high to low: end flag, scope id, clock bits 42 to 32 (Proton's CircularStoreOp lowering).
_SCOPE_SHIFT = 23
_SCOPE_MASK = 0xFF
_CLOCK_HIGH_MASK = 0x7FF
CLOCK_BITS = 43
WORDS_PER_ENTRY = 2


@dataclass(frozen=True, slots=True)
class Records:
    """All records that survive in one launch, ordered by ``row``, ``warp`` and ``cycles``.

    ``row`` indexes the CTAs of the launch's ``RawCtas``; ``cycles`` is the counter of the CTA's SM.
    """

    row: NDArray[np.int64]
    warp: NDArray[np.int64]
    scope_id: NDArray[np.int64]
    is_end: NDArray[np.bool_]
    cycles: NDArray[np.int64]


def lost_records(ctas: RawCtas) -> NDArray[np.int64]:
    """How many records of each CTA's warp the ring lost: shape (CTA, warp)."""
    slots = ctas.entries.shape[2]
    lost: NDArray[np.int64] = np.maximum(ctas.written_words // WORDS_PER_ENTRY - slots, 0)
    return lost


def decode_records(ctas: RawCtas) -> Records:
    """Take every written entry out of the rings."""
    slots = ctas.entries.shape[2]
    kept = np.minimum(ctas.written_words // WORDS_PER_ENTRY, slots)
    row, warp, slot = np.nonzero(np.arange(slots) < kept[:, :, None])
    entries = ctas.entries[row, warp, slot].astype(np.int64)
    cycles: NDArray[np.int64] = (entries[:, 0] & _CLOCK_HIGH_MASK) << 32 | entries[:, 1]
    cycles = _unwrap(cycles, ctas.sm[row])
    # In a full ring the oldest entry stands at count mod size; its age breaks ties of the clock.
    written = ctas.written_words[row, warp] // WORDS_PER_ENTRY
    oldest = np.where(written > slots, written % max(slots, 1), 0)
    age = (slot - oldest) % max(slots, 1)
    order = np.lexsort((age, cycles, warp, row))
    return Records(
        row[order],
        warp[order],
        (entries[order, 0] >> _SCOPE_SHIFT) & _SCOPE_MASK,
        entries[order, 0] >> 31 != 0,
        cycles[order],
    )


def _unwrap(cycles: NDArray[np.int64], sm: NDArray[np.int64]) -> NDArray[np.int64]:
    """Undo one overflow of the counter within the launch, SM by SM: no launch lasts half its period (37 min)."""
    if cycles.size == 0:
        return cycles
    size = int(sm.max()) + 1
    wrapped = largest(sm, cycles, size)[sm] - smallest(sm, cycles, size)[sm] > 1 << (CLOCK_BITS - 1)
    return np.where(wrapped & (cycles < 1 << (CLOCK_BITS - 1)), cycles + (1 << CLOCK_BITS), cycles)
