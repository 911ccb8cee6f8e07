"""Barriers, inferred from warps that leave a scope together.

The compiler inserts barriers that the module does not show, around accesses to shared memory. The records show them:
however far apart the warps of a CTA arrive, they leave together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A smaller delay of the last warp does not explain why the others left when they did.
_APART_NS = 60
_TOGETHER_NS = 40
# Warps that do not wait leave as far apart as they arrived.
_NARROWER = 0.5
_MIN_TOGETHER = 0.9  # part of the executions in which the warps must leave together


@dataclass(frozen=True, slots=True)
class Meeting:
    """The last warp to arrive at a barrier, and its time."""

    last_ns: int
    last_warp: int


def meetings(rows_of: Mapping[int, NDArray[np.void]]) -> dict[int, dict[int, Meeting]]:
    """Return the inferred barrier of each row that has one, by CTA and the row's place among the CTA's rows.

    ``rows_of`` has ``SCOPE_COLUMNS`` by CTA.
    """
    executions: defaultdict[int, list[_Execution]] = defaultdict(list)
    for cta, rows in rows_of.items():
        for scope in np.unique(rows["scope"]).tolist():
            executions[scope] += _executions(rows, cta, scope)
    found: defaultdict[int, dict[int, Meeting]] = defaultdict(dict)
    for of_scope in executions.values():
        spread = [one for one in of_scope if one.came_apart_ns > _APART_NS]
        if spread and sum(one.leave_together for one in spread) >= _MIN_TOGETHER * len(spread):
            for one in of_scope:
                for place in one.places:
                    found[one.cta][place] = Meeting(one.last_ns, one.last_warp)
    return dict(found)


@dataclass(frozen=True, slots=True)
class _Execution:
    """The same execution of a scope by all warps of a CTA. ``places`` are the places of their rows."""

    cta: int
    places: tuple[int, ...]
    last_ns: int
    last_warp: int
    came_apart_ns: int
    left_apart_ns: int
    first_left_ns: int

    @property
    def leave_together(self) -> bool:
        """Whether no warp left before the last arrived, and all left within a short time."""
        return self.first_left_ns >= self.last_ns and self.left_apart_ns <= max(
            _NARROWER * self.came_apart_ns, _TOGETHER_NS
        )


def _executions(rows: NDArray[np.void], cta: int, scope: int) -> Iterator[_Execution]:
    """Yield the executions of a scope in a CTA whose warps all executed it equally often."""
    places = np.flatnonzero(rows["scope"] == scope)
    places = places[np.lexsort((rows["start_record"][places], rows["warp"][places]))]
    warps, counts = np.unique(rows["warp"][places], return_counts=True)
    if len(warps) < 2 or len(set(counts.tolist())) > 1:
        return
    by_warp = places.reshape(len(warps), -1)
    came, left = rows["start_ns"][by_warp], rows["end_ns"][by_warp]
    last = came.argmax(axis=0)
    columns = zip(
        by_warp.T.tolist(),
        came.max(axis=0).tolist(),
        warps[last].tolist(),
        np.ptp(came, axis=0).tolist(),
        np.ptp(left, axis=0).tolist(),
        left.min(axis=0).tolist(),
        strict=True,
    )
    for these, last_ns, last_warp, came_apart_ns, left_apart_ns, first_left_ns in columns:
        yield _Execution(cta, tuple(these), last_ns, last_warp, came_apart_ns, left_apart_ns, first_left_ns)
