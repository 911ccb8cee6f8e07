"""Notes on a kernel that the program launches with several grids."""

from __future__ import annotations

from pathlib import Path

from known_launch import known_launch
from replacing import replace

from kprof_inject.capture.resources import GridTimesRecord
from kprof_inject.report.notes import grid_notes


def test_the_part_of_the_kernel_that_a_launch_stands_for(tmp_path: Path) -> None:
    launch = known_launch(tmp_path).launch
    assert list(grid_notes(launch)) == []
    ctas = launch.grid[0] * launch.grid[1] * launch.grid[2]
    mine = GridTimesRecord(grid=launch.grid, launches=12)
    other = GridTimesRecord(grid=(ctas, 2, 1), launches=2)
    (note,) = grid_notes(replace(launch, kernel=replace(launch.kernel, grids=(mine, other))))
    assert note == "grids: 2 in 14 launches of the kernel; 12 have this one, with 75.0 % of all their CTAs"
    unknown = replace(launch.kernel, grids=(other, replace(other, grid=(ctas, 3, 1))))
    assert list(grid_notes(replace(launch, kernel=unknown))) == []
