"""What the warps of a launch write into its profile buffer."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from buffers import Cta, Entry, buffer_words
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


def timed_words(launch: Launch, begun_ns: int, gap_cycles: int) -> NDArray[np.uint32]:
    """One row for each CTA. ``gap_cycles`` lie between two records of a warp."""
    slots = _slots(launch, header_words=10)
    return _in_rows(
        buffer_words([_cta(launch, cta, begun_ns, gap_cycles) for cta in range(launch.ctas)], slots), launch
    )


def untimed_words(launch: Launch, begun_ns: int, gap_cycles: int) -> NDArray[np.uint32]:
    """The same of Triton 3.5, whose header has no timer readings."""
    slots = _slots(launch, header_words=4)
    words = buffer_words([_cta(launch, cta, begun_ns, gap_cycles) for cta in range(launch.ctas)], slots)
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


def _cta(launch: Launch, cta: int, begun_ns: int, gap_cycles: int) -> Cta:
    init_ns = begun_ns + 32 * cta
    times = [_cycles(init_ns) + gap_cycles * number for number in range(len(launch.kernel.records))]
    entries = [
        Entry(scope_id, is_end, cycles) for (scope_id, is_end), cycles in zip(launch.kernel.records, times, strict=True)
    ]
    pre_final_ns = int(times[-1] / CYCLES_PER_NS)
    return Cta([entries] * launch.num_warps, cta % SMS, init_ns, pre_final_ns, pre_final_ns + 100)


def _cycles(time_ns: int) -> int:
    return int(time_ns * CYCLES_PER_NS)
