"""The fit of the clock is a part of a sample's error."""

from __future__ import annotations

import numpy as np
import pytest
from known_clocks import Fitted, run, slowing, steady, waves

from kprof_inject.timeline.columns import SCOPE_COLUMNS
from kprof_inject.timeline.spread import ClockBend

SMS = 132


def functions_of(fitted: Fitted) -> tuple[np.ndarray, float]:
    """The scopes around the function, and how much too long they are in all, as a part."""
    cycles, true_ns = fitted.cycles[fitted.at_function], fitted.true_ns[fitted.at_function]
    found_ns = true_ns + fitted.error_ns[fitted.at_function]
    block = np.zeros(len(cycles) // 2, SCOPE_COLUMNS)
    block["end_cycles"] = cycles[1::2] - cycles[::2]
    block["end_ns"] = np.rint(found_ns[1::2] - found_ns[::2])
    return block, block["end_ns"].sum() / (true_ns[1::2] - true_ns[::2]).sum() - 1


@pytest.mark.parametrize("counter", [steady(1.7e9), slowing])
@pytest.mark.parametrize("ctas", [264, 396, 528, 1056])
def test_few_readings_that_are_delayed_are_an_error(ctas: int, counter: object) -> None:
    fitted = run(waves(ctas, SMS, 5e3), counter, around_ns=(230, 228))  # type: ignore[arg-type]
    block, error = functions_of(fitted)
    bend = ClockBend(fitted.clock)
    for part in np.array_split(block, 3):
        bend.add(part)
    assert error > 0.01
    assert bend.part == pytest.approx(error, rel=0.1)


@pytest.mark.parametrize("counter", [steady(1.7e9), slowing])
@pytest.mark.parametrize("ctas", [132, 264, 1056])
def test_readings_without_delay_are_none(ctas: int, counter: object) -> None:
    fitted = run(waves(ctas, SMS, 5e3), counter)  # type: ignore[arg-type]
    block, error = functions_of(fitted)
    inner = block.copy()
    inner["depth"], inner["end_ns"] = 1, 2 * inner["end_ns"]  # scopes inside do not count
    bend = ClockBend(fitted.clock)
    bend.add(np.concatenate([block, inner]))
    assert bend.part == pytest.approx(0, abs=0.001) and error == pytest.approx(0, abs=0.001)


def test_without_scopes_there_is_no_error() -> None:
    assert ClockBend(run(waves(4, 2, 5e3), steady(1.7e9)).clock).part == 0
