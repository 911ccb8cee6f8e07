"""What a sample's figures leave open because of the clock's fit."""

from __future__ import annotations

import numpy as np
import pytest
from known_clocks import run, steady, waves

from kprof_inject.timeline.columns import SCOPE_COLUMNS
from kprof_inject.timeline.sampling import ClockBend

RATE_HZ = 1.7e9


@pytest.mark.parametrize("steeper", [0.0, 0.08, -0.03])
def test_a_curve_that_is_steeper_inside_of_ctas_is_an_error(steeper: float) -> None:
    bend = ClockBend(run(waves(400, 20, 5e3), steady(RATE_HZ)).clock)
    for _ in range(2):
        block = np.zeros(3, SCOPE_COLUMNS)
        block["end_cycles"] = 10_000_000
        block["end_ns"] = round(10_000_000 / RATE_HZ * 1e9 * (1 + steeper))
        block["depth"] = [0, 0, 1]
        block["end_ns"][2] *= 2  # only the outermost scopes count
        bend.add(block)
    assert bend.part == pytest.approx(abs(steeper), abs=0.002)


def test_without_scopes_there_is_no_error() -> None:
    assert ClockBend(run(waves(4, 2, 5e3), steady(RATE_HZ)).clock).part == 0
