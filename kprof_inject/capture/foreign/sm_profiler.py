"""sm-profiler's buffer: counters, then a table of fixed room for the scopes of each group of each block.

Facts: leepoly/sm-profiler, python/sm_profiler/profiler.py at 26cb6b86849e74109b39aa9ab8d9ed695a5b719f (sizes, header,
how it exports), python/sm_profiler/triton_ops.py at 369118d90d8f53f7ba42cd2c4dd7da4b88384ab8 (what a kernel stores: an
end of 0 until the scope ends; a counter that goes on when the room is used up), cuda/sm_profiler.h at
2114904baa4387d7ba999f4cd029acada901f8ca (the same for CUDA; 32 events; times are ``%globaltimer``, in nanoseconds).

In words of 64 bits: two words of header (blocks in the upper half, groups in the lower; room for scopes in the upper
half), the counters of 32 bits, 32 words of 32 bits for each group with its open scopes, and the scopes. Each part
begins at a whole word.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.foreign.entries import (
    OPEN_COLUMNS,
    SPAN_COLUMNS,
    UNIT_COLUMNS,
    Spans,
    of_one_launch,
    sm_of_blocks,
)
from kprof_inject.errors import KprofError
from kprof_inject.quantities import counted

_HEADER_WORDS = 2
_EVENTS = 32
_ENTRY = np.dtype(
    [
        ("id", "<u4"),
        ("event", "<u4"),
        ("block", "<u4"),
        ("group", "<u4"),
        ("sm", "<u4"),
        ("type", "<u4"),
        ("start_ns", "<u8"),
        ("end_ns", "<u8"),
    ]
)
_RANGE, _INSTANT = 0, 1
_MAX_GROUPS = 1024
_MAX_SMS = 1 << 16
_END_OF_TIME_NS = 1 << 62
_HINT = "save it whole: numpy.save(PATH, profiler.get_buffer().cpu().numpy())"


def read_sm_profiler(words: NDArray[np.uint64], units: int, names: int) -> Spans:
    """Read one entry for each scope; the oldest are kept, because scopes are lost once the group's room is used up.

    Raises ``KprofError`` if the header is invalid or the buffer truncated.
    """
    blocks, groups, room = _header(words)
    count = blocks * groups
    begin = _HEADER_WORDS + _whole_words(4 * count) + _whole_words(4 * _EVENTS * count)
    end = begin + _ENTRY.itemsize // 8 * count * room
    if len(words) < end:
        raise KprofError(
            f"the buffer is truncated: it has {counted(len(words), 'word')} of the {end} that {blocks} blocks of "
            f"{groups} groups take with room for {room} scopes",
            hint=_HINT,
        )
    written = words[_HEADER_WORDS:begin].view("<u4")[:count].astype(np.int64)
    kept = np.minimum(written, room)
    group = np.repeat(np.arange(count), kept)
    slot = np.arange(len(group)) - np.repeat(np.cumsum(kept) - kept, kept)
    entries = words[begin:end].view(_ENTRY)[group * room + slot]
    sound = _sound(entries, group, groups)
    return _spans(entries, group, slot, sound, written, kept, groups)


def _header(words: NDArray[np.uint64]) -> tuple[int, int, int]:
    if len(words) < _HEADER_WORDS:
        raise KprofError(f"the buffer is truncated: it has {counted(len(words), 'word')}, and no header", hint=_HINT)
    blocks, groups, room = int(words[0]) >> 32, int(words[0]) & 0xFFFFFFFF, int(words[1]) >> 32
    if not (blocks and 0 < groups <= _MAX_GROUPS and room):
        raise KprofError(
            f"the header is invalid: {blocks} blocks of {groups} groups, with room for {room} scopes",
            hint=f"is it an sm-profiler buffer? {_HINT}",
        )
    return blocks, groups, room


def _whole_words(size_bytes: int) -> int:
    return -(-size_bytes // 8)


def _sound(entries: NDArray[np.void], group: NDArray[np.int64], groups: int) -> NDArray[np.bool_]:
    """Return which entries their group can have written."""
    start, end = entries["start_ns"], entries["end_ns"]
    sound: NDArray[np.bool_] = (entries["block"] == group // groups) & (entries["group"] == group % groups)
    sound &= (entries["event"] < _EVENTS) & (entries["sm"] < _MAX_SMS) & (entries["type"] <= _INSTANT)
    sound &= (start > 0) & (start < _END_OF_TIME_NS) & (end < _END_OF_TIME_NS)
    sound &= (end == 0) | ((end >= start) & (entries["type"] == _RANGE))
    for column in ("start_ns", "end_ns"):
        timed = np.flatnonzero(sound & (entries[column] > 0))
        sound[timed] = of_one_launch(entries[column][timed].astype(np.int64))
    return sound


def _spans(
    entries: NDArray[np.void],
    group: NDArray[np.int64],
    slot: NDArray[np.int64],
    sound: NDArray[np.bool_],
    written: NDArray[np.int64],
    kept: NDArray[np.int64],
    groups: int,
) -> Spans:
    ran = np.flatnonzero(written)
    units = np.zeros(len(ran), dtype=UNIT_COLUMNS)
    units["cta"], units["warp"] = np.divmod(ran, groups)
    units["written"], units["lost"] = written[ran], (written - kept)[ran]
    unit_of_group = np.zeros(len(written), dtype=np.int64)
    unit_of_group[ran] = np.arange(len(ran))
    unit = unit_of_group[group]
    units["damaged"] = np.bincount(unit[~sound], minlength=len(ran))
    sm_of_block = sm_of_blocks(len(written) // groups, group[sound] // groups, entries["sm"][sound].astype(np.int64))
    units["sm"] = sm_of_block[units["cta"]]

    is_instant = entries["type"] == _INSTANT
    is_open = sound & ~is_instant & (entries["end_ns"] == 0)
    whole = np.flatnonzero(sound & ~is_open)
    spans = np.zeros(len(whole), dtype=SPAN_COLUMNS)
    spans["unit"], spans["event"], spans["place"] = unit[whole], entries["event"][whole], slot[whole]
    spans["is_instant"] = is_instant[whole]
    spans["start_ns"] = entries["start_ns"][whole]
    spans["end_ns"] = np.where(is_instant, entries["start_ns"], entries["end_ns"])[whole]
    opened = np.zeros(int(is_open.sum()), dtype=OPEN_COLUMNS)
    opened["unit"], opened["event"] = unit[is_open], entries["event"][is_open]
    silent = len(written) // groups - len(np.unique(units["cta"]))
    return Spans(units, spans, opened, silent)
