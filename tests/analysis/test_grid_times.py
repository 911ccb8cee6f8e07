"""The time of a kernel that the program launches with several grids."""

from __future__ import annotations

from pathlib import Path

import pytest

from kprof_inject.analysis.program import time_of_grids_ns
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.resources import GridTimesRecord, KernelResources
from kprof_inject.capture.schema import Grid
from kprof_inject.capture.scopes import ScopeTable

UNKNOWN = KernelResources()


def kernel(*grids: tuple[int, int, tuple[float, ...]], clean: KernelResources = UNKNOWN) -> Kernel:
    """Return a kernel; each grid has its CTAs, its launches, and the times of some of these."""
    return Kernel(
        variant="k-0",
        name="k",
        layout="timed",
        scope_ids={},
        scopes=ScopeTable(),
        mode=Mode(),
        metadata={"num_warps": 4, "profile_scratch_size": 128},
        folder=Path(),
        clean=clean,
        grids=tuple(
            GridTimesRecord(grid=Grid((ctas, 1, 1)), launches=launches, clean_ns=times_ns)
            for ctas, launches, times_ns in grids
        ),
    )


def test_each_grid_has_its_own_time_without_launching() -> None:
    known = kernel(
        (4096, 12, (82_000.0, 84_000.0, 83_000.0)), (8, 48, (5_700.0,)), clean=KernelResources(empty_launch_ns=3_000.0)
    )
    assert time_of_grids_ns(known) == 12 * 80_000.0 + 48 * 2_700.0


@pytest.mark.parametrize(("ctas", "estimate_ns"), [(200, 2_000.0), (50, 1_000.0), (1, 50.0), (9, 50.0), (12, 60.0)])
def test_a_grid_that_was_not_timed_is_estimated_from_the_nearest(ctas: int, estimate_ns: float) -> None:
    known = kernel((100, 1, (1_000.0,)), (10, 1, (50.0,)), (ctas, 3, ()))
    assert time_of_grids_ns(known) == pytest.approx(1_050.0 + 3 * estimate_ns)


def test_without_times_by_grid_the_main_one_has_the_replays() -> None:
    known = kernel((64, 5, ()), (32, 2, ()), clean=KernelResources(replayed_ns=(900.0, 1_000.0, 1_100.0)))
    assert time_of_grids_ns(known) == 7 * 1_000.0
    assert time_of_grids_ns(kernel((64, 5, ()), (32, 2, ()))) is None
