"""In how many cycles of the SMs a scope ran."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kprof_inject.timeline.columns import SCOPE_COLUMNS
from kprof_inject.timeline.scope_statistics import SmCycles


def rows(*ran: tuple[int, int, int, int]) -> NDArray[np.void]:
    """Scope, SM, first and last cycle of each."""
    columns = np.zeros(len(ran), dtype=SCOPE_COLUMNS)
    for name, values in zip(("scope", "sm", "start_cycles", "end_cycles"), zip(*ran, strict=True), strict=True):
        columns[name] = values
    return columns


def cycles_of(*blocks: NDArray[np.void], scopes: int = 2) -> list[int]:
    counted = SmCycles(scopes)
    for block in blocks:
        counted.add(block)
    found: list[int] = counted.cycles().tolist()
    return found


def test_of_many_sms_and_scopes_each_has_its_own() -> None:
    spans = [(scope, sm, 7 * scope, 7 * scope + 1 + scope) for scope in range(100) for sm in range(160)]
    assert cycles_of(rows(*spans), scopes=100) == [160 * (1 + scope) for scope in range(100)]


def test_of_nothing_there_is_none() -> None:
    assert cycles_of() == [0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_any_spans_count_as_one_by_one(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    count = 300
    begins = drawn.integers(0, 2_000, count)
    spans = list(zip(drawn.integers(0, 3, count), drawn.integers(0, 4, count), begins, begins, strict=True))
    spans = [(scope, sm, begin, begin + int(drawn.integers(0, 60))) for scope, sm, begin, _ in spans]
    expected = [
        len({(sm, cycle) for mine, sm, begin, end in spans if mine == scope for cycle in range(begin, end)})
        for scope in range(3)
    ]
    assert cycles_of(rows(*spans[:100]), rows(*spans[100:]), scopes=3) == expected
