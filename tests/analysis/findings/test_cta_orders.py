"""Tests of the gain if the CTAs of a launch began in another order."""

from __future__ import annotations

from pathlib import Path

import pytest
from buffers import Scope
from replacing import replace
from timelines import cta_rows, made_timeline

from kprof_inject.analysis.findings.launch_conditions import gains_of_orders
from kprof_inject.capture.edits import COLUMNS, COLUMNS_REVERSED, REVERSED


def gains(folder: Path, grid: tuple[int, int, int], works_ns: list[int]) -> dict[str, float]:
    """Return the gains for CTAs that take so long, and that two SMs with a slot each take in this order."""
    free_ns, rows = [0, 0], []
    for cta, work_ns in enumerate(works_ns):
        sm = free_ns.index(min(free_ns))
        rows.append((cta, sm, free_ns[sm], free_ns[sm] + work_ns, free_ns[sm] + work_ns))
        free_ns[sm] += work_ns
    timeline = made_timeline(folder, [Scope("func")], [], cta_rows(*rows))
    return gains_of_orders(replace(timeline, launch=replace(timeline.launch, grid=grid)), 1)


def test_work_that_grows_along_a_row(tmp_path: Path) -> None:
    """The last CTA of 600 begins after 700, but after 600 if all of the second column come first."""
    found = gains(tmp_path, (2, 3, 1), [100, 600, 100, 600, 100, 600])
    assert found[COLUMNS_REVERSED] == pytest.approx(1 - 1200 / 1300)
    assert found[COLUMNS] == pytest.approx(1 - 1300 / 1300)
    assert found[REVERSED] == pytest.approx(1 - 1300 / 1300)


def test_work_that_grows_along_a_line(tmp_path: Path) -> None:
    found = gains(tmp_path, (4, 1, 1), [100, 100, 100, 300])
    assert found == {REVERSED: pytest.approx(1 - 300 / 400)}


def test_planes_stay_in_their_order(tmp_path: Path) -> None:
    """The last of eight CTAs is long. It comes first of its plane, but after the four of the other plane."""
    found = gains(tmp_path, (2, 2, 2), [*[100] * 7, 1000])
    assert found[COLUMNS_REVERSED] == pytest.approx(1 - 1200 / 1300)
