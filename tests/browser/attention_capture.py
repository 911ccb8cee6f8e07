"""Captures of an attention kernel of any size, made without a GPU. No two iterations take the same time, as on a real
one: what repeats compresses well, and a page of it would say nothing about sizes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from buffers import Scope, kernel_json, save_launches
from numpy.typing import NDArray

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
_FUNC, _LOOP, _ITER, _LOAD, _STORE = 0, 1, 2, 3, 7
_PHASES = 4
_WARPS, _ITERATIONS, _SMS, _PER_SM = 4, 48, 132, 2
_CLOCK_GHZ = 1.755
_BEGIN_NS = 1_764_000_000_000_000_000
_HEADER_WORDS = 10 + _WARPS
SCOPES_OF_A_CTA = _WARPS * (3 + _ITERATIONS * (1 + _PHASES))
CTAS_AT_ONCE = _SMS * _PER_SM


def save_attention(folder: Path, scopes: int) -> Launch:
    """One launch with so many scopes, rounded up to whole CTAs."""
    words = _words(-(-scopes // SCOPES_OF_A_CTA))
    return save_launches(folder, kernel_json(SCOPES, words, _WARPS, name="attention"), [words])[0]


def _words(ctas: int) -> NDArray[np.uint32]:
    """Proton's buffer: a row for each CTA, with a ring for each warp that keeps all."""
    noise = np.random.default_rng(7)
    scope, is_end, cycles = _records(noise, ctas)
    slots = 1 << (cycles.shape[-1] - 1).bit_length()
    used = _HEADER_WORDS + 2 * slots * _WARPS
    words = np.zeros((ctas, -(-used // 32) * 32), dtype="<u4")
    number = np.arange(ctas)
    lasting = cycles.max(axis=(1, 2)) + 200
    # A slot of an SM runs one CTA after the other.
    begin = np.zeros(ctas, dtype=np.int64)
    for first in range(CTAS_AT_ONCE, ctas, CTAS_AT_ONCE):
        now = slice(first, min(first + CTAS_AT_ONCE, ctas))
        before = slice(first - CTAS_AT_ONCE, now.stop - CTAS_AT_ONCE)
        begin[now] = begin[before] + lasting[before] + 900
    sm = number % _SMS
    words[:, 0] = 0xDEADBEEF
    words[:, 1] = number
    words[:, 2] = sm
    words[:, 3] = slots * 8 * _WARPS
    times = np.stack((begin, begin + lasting, begin + lasting + 700), axis=1) / _CLOCK_GHZ
    words[:, 4:10] = (times.astype(np.uint64) // 32 * 32 + _BEGIN_NS).view("<u4")
    words[:, 10:_HEADER_WORDS] = 2 * cycles.shape[-1]
    high = (is_end << 31 | scope << 23).astype("<u4")
    clock = cycles + (begin + sm * 100_000)[:, None, None]
    for warp in range(_WARPS):
        ring = words[:, _HEADER_WORDS + 2 * slots * warp :]
        ring[:, 0 : 2 * cycles.shape[-1] : 2] = high
        ring[:, 1 : 2 * cycles.shape[-1] : 2] = clock[:, warp]
    return words


def _records(noise: np.random.Generator, ctas: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Which scope each record of a warp is of and whether it ends it, and for each CTA and warp the cycles since the
    CTA's begin."""
    iteration = [(_ITER, 0)]
    for phase in range(_PHASES):
        iteration += [(_LOAD + phase, 0), (_LOAD + phase, 1)]
    iteration.append((_ITER, 1))
    records = [(_FUNC, 0), (_LOOP, 0), *iteration * _ITERATIONS, (_LOOP, 1), (_STORE, 0), (_STORE, 1), (_FUNC, 1)]
    scope, is_end = np.array(records, dtype=np.int64).T
    # How long each record comes after the one before it.
    steps_of_iteration = [60, 25, 310, 22, 420, 24, 510, 21, 390, 35]
    usual = np.array([80, 700, *steps_of_iteration * _ITERATIONS, 60, 120, 900, 70])
    shape = (ctas, _WARPS, len(records))
    steps = usual * noise.gamma(25.0, 1 / 25.0, shape) + 16
    return scope, is_end, np.cumsum(steps.astype(np.int64), axis=-1)
