"""The main grid of a kernel that the program launches with several.

It is the one with most CTAs in all its launches so far. Only launches with it are kept as the last one, and saved: if
the kernel's CTAs take about as long in any grid, these launches take most of its time.
"""

from __future__ import annotations

from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.launch.lock_free import AtomicCounter


class GridCounts:
    """Launches of one kernel, counted by grid."""

    def __init__(self) -> None:
        """Begin without launches."""
        self._counters: dict[Grid, AtomicCounter] = {}
        self._main: tuple[int, Grid] = (0, (0, 0, 0))
        """The main grid after its CTAs in all launches."""

    def add(self, grid: Grid) -> tuple[int, bool]:
        """Count a launch; return its number among those with its grid, and whether that is the main one."""
        counter = self._counters.get(grid)
        if counter is None:
            counter = self._counters.setdefault(grid, AtomicCounter())
        number = counter.add()
        ctas = (number + 1) * grid[0] * grid[1] * grid[2]
        max_ctas, main_grid = self._main
        if ctas >= max_ctas:
            self._main = (ctas, grid)
        return number, ctas >= max_ctas or grid == main_grid

    @property
    def main(self) -> Grid:
        """The main grid."""
        return self._main[1]

    def counts(self) -> dict[Grid, int]:
        """Return the number of launches of each grid."""
        return {grid: counter.value for grid, counter in self._counters.copy().items()}
