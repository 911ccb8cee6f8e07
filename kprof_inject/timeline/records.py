"""Raw buffers to columns of records, ordered by clock within each warp."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.layouts import RawCtas
from kprof_inject.timeline.unwrap import unwrap_often, unwrap_once

# The entry's first word, high to low: end flag, scope id, clock bits 42 to 32 (Proton's CircularStoreOp lowering).
_SCOPE_SHIFT = 23
_SCOPE_MASK = 0xFF
_CLOCK_HIGH_MASK = 0x7FF
CLOCK_BITS = 43
WORDS_PER_ENTRY = 2


@dataclass(frozen=True, slots=True)
class Records:
    """All records that survive in one launch, ordered by ``row``, ``warp`` and ``cycles``.

    ``row`` indexes the CTAs of the launch's ``RawCtas`` and ``warp`` its ``warps``; ``cycles`` is the counter of the
    CTA's SM.
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


def decode_records(ctas: RawCtas, clock_bits: int = 64, clock_hz: float = 0.0) -> Records:
    """Take every written entry out of the rings.

    ``clock_bits`` is how the records were made (see ``Mode``), ``clock_hz`` the SM's nominal clock, 0 if unknown."""
    slots = ctas.entries.shape[2]
    kept = np.minimum(ctas.written_words // WORDS_PER_ENTRY, slots)
    row, warp, age = np.nonzero(np.arange(slots) < kept[:, :, None])
    # In a full ring the oldest entry stands at count mod size.
    written = ctas.written_words[row, warp] // WORDS_PER_ENTRY
    slot = (age + np.where(written > slots, written, 0)) % max(slots, 1)
    entries = ctas.entries[row, warp, slot].astype(np.int64)
    cycles = entries[:, 1]
    if clock_bits == 32:
        cycles = unwrap_often(cycles, row, warp, ctas.sm, ctas.pre_final_ns, 32, clock_hz)
    else:
        cycles = unwrap_once((entries[:, 0] & _CLOCK_HIGH_MASK) << 32 | cycles, ctas.sm[row], CLOCK_BITS)
    # Stores may have been moved, so that the clock says what came first; the order of writing breaks its ties.
    order = np.lexsort((age, cycles, warp, row))
    return Records(
        row[order],
        warp[order],
        (entries[order, 0] >> _SCOPE_SHIFT) & _SCOPE_MASK,
        entries[order, 0] >> 31 != 0,
        cycles[order],
    )
