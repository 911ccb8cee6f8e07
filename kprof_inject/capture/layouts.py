"""Where things stand in Proton's buffer: one class for each layout.

Sources: Proton's ``CircularLayoutParser`` and ``InitializeOp``/``FinalizeOp`` lowering in triton
(third_party/proton), checked on an H200 with Triton 3.6.0, and the stores in the PTX of every version's kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kprof_inject.errors import KprofError

PREAMBLE = 0xDEADBEEF
# No device numbers its SMs or CUs higher: what does is no SM.
_MOST_SMS = 1 << 16


@dataclass(frozen=True, slots=True)
class RawCtas:
    """The CTAs that ran, one row each, and what their warps wrote.

    ``warps`` are the ids of the warps that recorded, ascending; "warp" in a shape means one of these, in this order.
    ``written_words`` (CTA, warp) is never clamped. ``entries`` (CTA, warp, slot, 2) is the ring of each warp, two
    words an entry; slots that were never written hold anything. ``never_ran`` counts the rows without a preamble,
    ``damaged`` those whose header contradicts itself; neither has a row here. Where the CTAs were not ``timed``, no
    timer was read, and the times are 0.
    """

    warps: NDArray[np.int64]
    cta: NDArray[np.int64]
    sm: NDArray[np.int64]
    init_ns: NDArray[np.int64]
    pre_final_ns: NDArray[np.int64]
    post_final_ns: NDArray[np.int64]
    written_words: NDArray[np.int64]
    entries: NDArray[np.uint32]
    never_ran: int
    damaged: int
    timed: bool


class Layout(Protocol):
    """How one kind of Triton lays the buffer out."""

    def read(self, words: NDArray[np.uint32], num_warps: int, recorded: Sequence[int]) -> RawCtas:
        """``words`` has one row for each CTA of the grid. Of its ``num_warps`` warps those in ``recorded``, ascending,
        have a ring."""
        ...


class _HeaderLayout:
    """A header of four words and perhaps timer readings, then counts, then the rings."""

    _TIMES_AT = 4
    _COUNTS_AT: int

    def read(self, words: NDArray[np.uint32], num_warps: int, recorded: Sequence[int]) -> RawCtas:
        rings_at = self._COUNTS_AT + num_warps
        if words.shape[1] < rings_at:
            raise KprofError(
                f"a buffer of {words.shape[1] * 4} bytes per CTA has no room for {num_warps} warps",
                hint="the kernel's metadata and its buffer do not belong together; capture again",
            )
        ran = words[:, 0] == PREAMBLE
        warps = np.array(recorded, dtype=np.int64)
        ring_words = (words[:, 3] // 4 // len(warps)).astype(np.int64)
        usual = int(np.median(ring_words[ran])) if ran.any() else 0
        fits = usual > 0 and usual % 2 == 0 and rings_at + usual * len(warps) <= words.shape[1]
        sound = ran & (ring_words == usual) & (words[:, 2] < _MOST_SMS) & fits
        rows = words[sound]
        times = self._times(rows)
        rings = rows[:, rings_at : rings_at + usual * len(warps)]
        return RawCtas(
            warps,
            rows[:, 1].astype(np.int64),
            rows[:, 2].astype(np.int64),
            times[:, 0],
            times[:, 1],
            times[:, 2],
            rows[:, self._COUNTS_AT + warps].astype(np.int64),
            rings.reshape(len(rows), len(warps), usual // 2 if sound.any() else 0, 2),
            int((~ran).sum()),
            int((ran & ~sound).sum()),
            self._COUNTS_AT > self._TIMES_AT,
        )

    def _times(self, rows: NDArray[np.uint32]) -> NDArray[np.int64]:
        raise NotImplementedError


class TimedLayout(_HeaderLayout):
    """Triton 3.6 and later: three timer readings."""

    _COUNTS_AT = 10

    def _times(self, rows: NDArray[np.uint32]) -> NDArray[np.int64]:
        return np.ascontiguousarray(rows[:, self._TIMES_AT : self._COUNTS_AT]).view("<u8").astype(np.int64)


class UntimedLayout(_HeaderLayout):
    """Triton 3.5: no timer readings."""

    _COUNTS_AT = 4

    def _times(self, rows: NDArray[np.uint32]) -> NDArray[np.int64]:
        return np.zeros((len(rows), 3), dtype=np.int64)


LAYOUTS: dict[str, Layout] = {"timed": TimedLayout(), "untimed": UntimedLayout()}


def layout_named(name: str) -> Layout:
    """Raises ``KprofError`` for a name that no class here has."""
    if name not in LAYOUTS:
        raise KprofError(
            f"the capture's buffer layout {name!r} is unknown",
            hint=f"this version reads {', '.join(sorted(LAYOUTS))}; update kprof-inject",
        )
    return LAYOUTS[name]
