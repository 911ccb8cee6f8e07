"""How much of what the warps wrote is missing or of no use, and of which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Shortfall:
    """``records`` of ``warps`` warps in ``ctas`` CTAs; most, ``worst_records``, of one that wrote ``worst_written``."""

    records: int
    warps: int
    ctas: int
    worst_cta: int
    worst_warp: int
    worst_records: int
    worst_written: int


def shortfall_of(incomplete: NDArray[np.void], column: str) -> Shortfall | None:
    """Of one count of ``INCOMPLETE_COLUMNS``; None if no warp has any."""
    mine = incomplete[incomplete[column] > 0]
    if not mine.size:
        return None
    worst = mine[int(mine[column].argmax())]
    return Shortfall(
        int(mine[column].sum()),
        len(mine),
        len(np.unique(mine["cta"])),
        int(worst["cta"]),
        int(worst["warp"]),
        int(worst[column]),
        int(worst["records_written"]),
    )
