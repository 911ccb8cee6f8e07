"""Captures of an attention kernel of any size, made without a GPU. No two iterations take the same time, as on a real
one: what repeats compresses well, and a page of it would say nothing about sizes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from buffers import Cta, Entry, Scope, buffer_words, kernel_json, save_launches

from kprof_inject.capture.model import Launch

SOURCE = "/src/attention.py"
SCOPES = [
    Scope("attention", "func", -1, (SOURCE, 20)),
    Scope("loop[0]", "loop", 0, (SOURCE, 41)),
    Scope("iter[0]", "iter", 1, (SOURCE, 41)),
    Scope("load k, v", "marker", 2, (SOURCE, 43)),
    Scope("qk", "marker", 2, (SOURCE, 46)),
    Scope("softmax", "marker", 2, (SOURCE, 49)),
    Scope("pv", "marker", 2, (SOURCE, 55)),
    Scope("store", "marker", 0, (SOURCE, 60)),
]
_FUNC, _LOOP, _ITER, _LOAD, _QK, _SOFTMAX, _PV, _STORE = range(len(SCOPES))
_WARPS, _ITERATIONS, _SMS, _PER_SM = 4, 48, 132, 2
_CLOCK_GHZ = 1.755
_BEGIN_NS = 1_764_000_000_000_000_000
_PHASES = [(phase, is_end) for phase in (_LOAD, _QK, _SOFTMAX, _PV) for is_end in (False, True)]
_ITERATION = [(_ITER, False), *_PHASES, (_ITER, True)]
_TAIL = [(_LOOP, True), (_STORE, False), (_STORE, True), (_FUNC, True)]
_RECORDS = [(_FUNC, False), (_LOOP, False), *_ITERATION * _ITERATIONS, *_TAIL]
# How many cycles each record comes after the one before it.
_USUAL = np.array([80, 700, *[60, 25, 310, 22, 420, 24, 510, 21, 390, 35] * _ITERATIONS, 60, 120, 900, 70])
_SCOPES_OF_A_CTA = _WARPS * len(_RECORDS) // 2


def save_attention(folder: Path, scopes: int) -> Launch:
    """One launch with so many scopes, rounded up to whole CTAs. A slot of an SM runs one CTA after the other."""
    noise = np.random.default_rng(7)
    free = [0] * _SMS * _PER_SM
    ctas = []
    for number in range(-(-scopes // _SCOPES_OF_A_CTA)):
        sm, slot = number % _SMS, number % len(free)
        steps = _USUAL * noise.gamma(25.0, 1 / 25.0, (_WARPS, len(_RECORDS))) + 16
        cycles = np.cumsum(steps.astype(np.int64), axis=-1)
        begin, lasting = free[slot], int(cycles.max()) + 200
        free[slot] += lasting + 900
        at_cycles = (cycles + begin + sm * 100_000).tolist()
        warps = [[Entry(*record, at) for record, at in zip(_RECORDS, row, strict=True)] for row in at_cycles]
        times = (int((begin + after) / _CLOCK_GHZ) // 32 * 32 + _BEGIN_NS for after in (0, lasting, lasting + 700))
        ctas.append(Cta(warps, sm, *times))
    words = buffer_words(ctas, 512)
    return save_launches(folder, kernel_json(SCOPES, words, _WARPS, name="attention"), [words])[0]
