"""The likeliest walks, against the normal equations written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kprof_inject.timeline.curves import likeliest_walks
from kprof_inject.timeline.rate import Residuals


def readings(heights_ns: NDArray[Any], times_ns: NDArray[Any], error_ns: float = 9.0) -> Residuals:
    """Of one counter; early ones and late ones are trusted alike."""
    count = len(heights_ns)
    return Residuals(
        np.zeros(count, dtype=np.int32),
        times_ns.astype(np.int64),
        times_ns,
        heights_ns,
        np.full(count, error_ns),
        np.zeros(count, dtype=np.int8),
        np.ones(count, dtype=bool),
    )


def written_out(residuals: Residuals, linked: NDArray[np.bool_], walk_ns2_per_ns: float) -> NDArray[np.float64]:
    matrix = np.diag(1 / residuals.error_ns**2)
    for at in np.flatnonzero(linked):
        stiffness = 1 / ((residuals.line_ns[at] - residuals.line_ns[at - 1]) * walk_ns2_per_ns)
        matrix[at - 1 : at + 1, at - 1 : at + 1] += stiffness * np.array([[1, -1], [-1, 1]])
    return np.asarray(np.linalg.solve(matrix, residuals.height_ns / residuals.error_ns**2))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 17, 100])
def test_readings_that_nobody_doubts(count: int) -> None:
    random = np.random.default_rng(count)
    times_ns = np.cumsum(random.integers(1, 3000, count)).astype(np.float64)
    residuals = readings(random.normal(0, 5, count), times_ns)
    linked = np.arange(count) > 0
    linked[count // 2] = False
    heights_ns, trusted = likeliest_walks(residuals, linked, 0.05)
    assert heights_ns == pytest.approx(written_out(residuals, linked, 0.05), abs=1e-9)
    assert trusted.tolist() == [1.0] * count


def test_a_reading_far_off_hardly_counts() -> None:
    times_ns = np.arange(1, 101) * 1000.0
    heights_ns = np.zeros(100)
    heights_ns[40] = 10_000
    found, trusted = likeliest_walks(readings(heights_ns, times_ns), np.arange(100) > 0, 3.6)
    assert np.abs(found).max() <= 20
    assert trusted[40] <= 1e-3
    assert np.delete(trusted, 40).min() == 1.0


def test_readings_that_are_not_believed_are_passed_by() -> None:
    times_ns = np.arange(1, 11) * 1000.0
    residuals = readings(np.arange(10) * 10.0, times_ns)
    residuals.height_ns[5] = -1e12
    residuals.plausible[5] = False
    found, trusted = likeliest_walks(residuals, np.arange(10) > 0, 3.6)
    assert found[5] == pytest.approx(50, abs=5)
    assert trusted[5] == 0.0
