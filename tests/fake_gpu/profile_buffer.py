"""What the warps of a launch write into its profile buffer."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from buffers import CLOCK_PERIOD, GARBAGE, PREAMBLE
from numpy.typing import NDArray

from fake_gpu.gpu import Launch

CYCLES_PER_NS = 1.98
SMS = 132

_RECORD = re.compile(r'proton\.record (start|end) "([^"]+)"')
_DELAY = re.compile(r'tt\.elementwise_inline_asm "[^"]* now, (\d+);[^\n]*\n\s*(?:%\S+ = )?([\w.]+)')
_TIMER_WORDS = slice(4, 10)


def records_in(ttgir: Path) -> tuple[tuple[int, bool], ...]:
    """The records of a module in the order of its text, each with its scope id: so a warp writes them if every block
    runs once."""
    found = _RECORD.findall(ttgir.read_text())
    ids: dict[str, int] = {}
    for kind, name in found:
        if kind == "start":
            ids.setdefault(name, len(ids))
    return tuple((ids[name], kind == "end") for kind, name in found)


def delays_in(ttgir: Path) -> tuple[tuple[str, int], ...]:
    """The delays of a module, in cycles, each with the name of the operation behind it."""
    found = _DELAY.findall(ttgir.read_text())
    return tuple((name, int(cycles)) for cycles, name in found)


def is_reordered(ttgir: Path) -> bool:
    """Return whether an edit of ``try`` has permuted the programs of a module; no kernel here uses their number."""
    return "tt.get_num_programs" in ttgir.read_text()


def timed_words(launch: Launch, begun_ns: int, gap_cycles: int) -> NDArray[np.uint32]:
    """One row for each CTA. ``gap_cycles`` lie between two records of a warp."""
    return _in_rows(_words(launch, begun_ns, gap_cycles, _slots(launch, header_words=10)), launch)


def untimed_words(launch: Launch, begun_ns: int, gap_cycles: int) -> NDArray[np.uint32]:
    """The same of Triton 3.5, whose header has no timer readings."""
    words = _words(launch, begun_ns, gap_cycles, _slots(launch, header_words=4))
    return _in_rows(np.delete(words, _TIMER_WORDS, axis=1), launch)


def _slots(launch: Launch, header_words: int) -> int:
    """How many entries each warp's ring has: a power of two, as many as fit."""
    ring_bytes = (launch.cta_bytes - 4 * (header_words + launch.num_warps)) // launch.num_warps
    return 1 << (ring_bytes // 8).bit_length() - 1


def _in_rows(words: NDArray[np.uint32], launch: Launch) -> NDArray[np.uint32]:
    rows = np.zeros((len(words), launch.cta_bytes // 4), dtype=np.uint32)
    used = min(rows.shape[1], words.shape[1])
    rows[:, :used] = words[:, :used]
    return rows


def _words(launch: Launch, begun_ns: int, gap_cycles: int, slots: int) -> NDArray[np.uint32]:
    """Return what ``buffers.buffer_words`` returns, for all CTAs at once: replays launch thousands of times."""
    ctas, records = np.arange(launch.ctas), launch.kernel.records
    init_ns = begun_ns + 32 * ctas
    clocks = _whole(init_ns * CYCLES_PER_NS)[:, None] + gap_cycles * np.arange(len(records))
    pre_final_ns = _whole(clocks[:, -1] / CYCLES_PER_NS)
    rings_at = 10 + launch.num_warps
    words = np.empty((launch.ctas, rings_at + 2 * slots * launch.num_warps), dtype=np.uint32)
    words[:, 0], words[:, 1], words[:, 2] = PREAMBLE, ctas, ctas % SMS
    words[:, 3] = 8 * slots * launch.num_warps
    for at, time in zip((4, 6, 8), (init_ns, pre_final_ns, pre_final_ns + 100), strict=True):
        words[:, at], words[:, at + 1] = time & 0xFFFFFFFF, time >> 32
    words[:, 10:rings_at] = 2 * len(records)
    words[:, rings_at:] = GARBAGE
    rings = words[:, rings_at:].reshape(launch.ctas, launch.num_warps, slots, 2)
    for number in range(max(0, len(records) - slots), len(records)):
        scope_id, is_end = records[number]
        clock = clocks[:, number, None] % CLOCK_PERIOD
        rings[:, :, number % slots, 0] = is_end << 31 | scope_id << 23 | clock >> 32
        rings[:, :, number % slots, 1] = clock & 0xFFFFFFFF
    return words


def _whole(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    return numbers.astype(np.int64)
