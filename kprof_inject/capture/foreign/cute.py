"""Buffers of transformer_nuggets' profiler for CuTe DSL: one slice for each unit, with entries of whole scopes.

Facts: drisspg/transformer_nuggets, transformer_nuggets/cute/profiler/README.md and ops.py at
13679ae51a924c5474c2539a17fd5e76865bb71b (slices; the count of its atomic mode, which goes on when the slice is full;
static and token mode, which choose their slots themselves), host.py in the same folder at
348c663c1bd88f9a40285dc84054e48eeb9123d6 (what an empty slot is; the compact form: an anchor of 64 bits, then entries of
8 bits of tag, 24 bits of duration, 32 bits of ``%globaltimer``). All times are nanoseconds of that timer. In earlier
versions the buffer was one slice for all blocks. A scope that never ended may be there with its start alone: it looks
like one that took no time.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.foreign.entries import (
    OPEN_COLUMNS,
    SPAN_COLUMNS,
    UNIT_COLUMNS,
    UNKNOWN_SM,
    Spans,
    of_one_launch,
)
from kprof_inject.errors import KprofError
from kprof_inject.quantities import counted

_ENTRY_WORDS = 4
_TAGS = 256
# Larger than the number of a block's threads or of lanes that a user invents.
_MAX_LANES = 1 << 15
_MAX_CTA_NS = 1 << 62
_MAX_SCOPES = 1 << 40
_GIVE_UNITS = "give its number of units (--buffer-units, or units in its description), and save the whole buffer"


def read_cute(words: NDArray[np.uint64], units: int, names: int) -> Spans:
    """Read entries of start, duration, tag and lane (``tid``), in any of the profiler's modes.

    Raises ``KprofError`` if the buffer cannot be divided into ``units`` slices.
    """
    slices = _slices(words.view(np.int64), units, _ENTRY_WORDS)
    room = (slices.shape[1] - 1) // _ENTRY_WORDS
    entries = slices[:, 1:].reshape(-1, _ENTRY_WORDS)
    start_ns, duration_ns, tag, lane = entries.T
    unit = np.arange(len(entries)) // room
    used = (start_ns != 0) | (duration_ns != 0)
    sound = used & (start_ns > 0) & (start_ns < _MAX_CTA_NS) & (duration_ns >= 0) & (duration_ns < _MAX_CTA_NS)
    sound &= (tag >= 0) & (tag < max(names, _TAGS)) & (lane >= 0) & (lane < 1 << 31)
    timed = np.flatnonzero(sound)
    sound[timed] = of_one_launch(start_ns[timed]) & of_one_launch(start_ns[timed] + duration_ns[timed])
    found = _FoundEvents(unit, start_ns, duration_ns, tag, lane, used, sound)
    # Only the atomic mode counts; the others leave 0, or the number that fitted. Impossible counts are damaged.
    counts = np.where(np.abs(slices[:, 0]) < _MAX_SCOPES, slices[:, 0], 0)
    return _spans(found, lost=np.maximum(counts - room, 0))


def read_cute_compact(words: NDArray[np.uint64], units: int, names: int) -> Spans:
    """Read entries of a single word; each unit has one lane.

    Raises ``KprofError`` if the buffer cannot be divided into ``units`` slices.
    """
    slices = _slices(words.view(np.int64), units, 1)
    _require_no_anchor_inside(slices)
    anchors = slices[:, 0]
    is_anchor = anchors > 0
    is_anchor[is_anchor] = of_one_launch(anchors[is_anchor])
    entries = np.ascontiguousarray(slices[:, 1:]).view(np.uint64).reshape(-1)
    unit = np.arange(len(entries)) // (slices.shape[1] - 1)
    low = (entries & np.uint64(0xFFFFFFFF)).astype(np.int64)
    anchor = anchors[unit]
    # A value below the anchor's lower half was read after that half had overflowed.
    start_ns = (anchor & ~0xFFFFFFFF) + low + np.where(low < anchor & 0xFFFFFFFF, 1 << 32, 0)
    duration_ns = (entries >> np.uint64(32) & np.uint64(0xFFFFFF)).astype(np.int64)
    tag = (entries >> np.uint64(56)).astype(np.int64)
    used = entries != 0
    found = _FoundEvents(unit, start_ns, duration_ns, tag, np.zeros_like(unit), used, used & is_anchor[unit])
    return _spans(found, lost=np.zeros(len(slices), dtype=np.int64))


def _slices(words: NDArray[np.int64], units: int, entry_words: int) -> NDArray[np.int64]:
    """Divide the buffer into slices of a first word and whole entries: shape (unit, word)."""
    size, rest = divmod(len(words), units)
    if rest or size <= entry_words or (size - 1) % entry_words:
        raise KprofError(
            f"a buffer of {counted(len(words), 'word')} cannot have {counted(units, 'unit')}: each takes 1 word, and "
            f"{counted(entry_words, 'word')} for each scope",
            hint=_GIVE_UNITS,
        )
    return words.reshape(units, size)


def _require_no_anchor_inside(slices: NDArray[np.int64]) -> None:
    """Raise ``KprofError`` if an entry has the upper half of its unit's anchor.

    As an entry, it would be a scope whose tag and duration depend on the date alone. It is the anchor of another unit.
    """
    upper = slices >> 32
    inside = np.flatnonzero(((upper[:, 1:] == upper[:, :1]) & (upper[:, :1] > 0)).any(axis=0))
    if inside.size:
        raise KprofError(
            f"word {inside[0] + 1} begins another unit: the buffer has more than {counted(len(slices), 'unit')}",
            hint=_GIVE_UNITS,
        )


class _FoundEvents(Struct, frozen=True):
    """Slots of all slices; ``unit`` is the slice. ``used`` slots were written, ``sound`` ones are valid."""

    unit: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    tag: NDArray[np.int64]
    lane: NDArray[np.int64]
    used: NDArray[np.bool_]
    sound: NDArray[np.bool_]


def _spans(found: _FoundEvents, lost: NDArray[np.int64]) -> Spans:
    used = np.flatnonzero(found.used)
    sound = found.sound[used]
    cta, lane = _places(found.unit[used], np.where(sound, found.lane[used], 0), sound, len(lost))
    keys, unit = np.unique(cta * _MAX_LANES + lane, return_inverse=True)
    units = np.zeros(len(keys), dtype=UNIT_COLUMNS)
    units["cta"], units["warp"] = np.divmod(keys, _MAX_LANES)
    units["sm"] = UNKNOWN_SM
    units["damaged"] = np.bincount(unit[~sound], minlength=len(keys))
    units["lost"] = lost_here = _lost_of_units(unit, found.unit[used], lost, len(keys))
    units["written"] = np.bincount(unit, minlength=len(keys)) + lost_here

    kept = used[sound]
    spans = np.zeros(len(kept), dtype=SPAN_COLUMNS)
    spans["unit"], spans["event"] = unit[sound], found.tag[kept]
    spans["start_ns"] = found.start_ns[kept]
    spans["end_ns"] = found.start_ns[kept] + found.duration_ns[kept]
    # Slots may be filled in any order. Of scopes that begin together, the longest is taken for the outermost.
    spans["place"] = -found.duration_ns[kept]
    silent = len(lost) - len(np.unique(found.unit[used])) if len(lost) > 1 else 0
    elsewhere = int(lost.sum() - units["lost"].sum())
    return Spans(units, spans, np.zeros(0, dtype=OPEN_COLUMNS), silent, elsewhere)


def _lost_of_units(
    unit: NDArray[np.int64], slice_of: NDArray[np.int64], lost: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return the number of entries that each unit lost.

    If several units share a slice, its count does not show whose entries found no room.
    """
    slices = np.zeros(count, dtype=np.int64)
    slices[unit] = slice_of
    alone = np.bincount(slices, minlength=len(lost)) == 1
    return np.where(alone[slices], lost[slices], 0)


def _places(
    unit: NDArray[np.int64], lane: NDArray[np.int64], sound: NDArray[np.bool_], units: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the CTA and the lane of each entry.

    In a single slice, the lane is what the kernel's author numbered: blocks, as in the profiler's own example. In
    several slices, lanes are numbered anew in each if no two units share one.
    """
    if units == 1:
        return lane, np.zeros_like(lane)
    pairs = np.unique(np.stack([unit[sound], lane[sound]], axis=1), axis=0)
    if len(np.unique(pairs[:, 1])) < len(pairs) and (not len(pairs) or pairs[:, 1].max() < _MAX_LANES):
        return unit, lane
    begins = np.searchsorted(pairs[:, 0], pairs[:, 0])
    keys = pairs[:, 0] << 32 | pairs[:, 1]
    rank = np.arange(len(pairs)) - begins
    at = np.searchsorted(keys, unit << 32 | lane)
    known = np.zeros(len(unit), dtype=np.int64)
    known[sound] = rank[at[sound]]
    return unit, known
