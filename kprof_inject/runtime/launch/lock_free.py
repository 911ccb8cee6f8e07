"""Values that launches share between threads without a lock.

A launch must not take a lock. A signal handler may launch in the middle of another launch, and would wait for a lock
that its own thread holds. Ctrl-C, or an exception of a handler, may end a launch between any two bytecodes, and a
forked child lacks its parent's threads: either would leave a lock held forever.

Instead, each change is one call of a built-in type that runs no Python code, so that other threads and handlers run
before it or after it.
"""

from __future__ import annotations

import operator
import sys

from kprof_inject.capture.schema import Grid

_MAX_COUNT = sys.maxsize  # no process reaches it: at one count per nanosecond, it takes 292 years


class AtomicCounter:
    """Counter that loses no increment, where ``+= 1`` would: it reads, adds and writes in three steps."""

    def __init__(self) -> None:
        """Begin at 0."""
        # An iterator over a range advances in one step, and its length hint is the count of numbers left.
        self._numbers = iter(range(_MAX_COUNT))

    def add(self) -> int:
        """Increment, and return the value before it."""
        return next(self._numbers)

    @property
    def value(self) -> int:
        """The present value."""
        return _MAX_COUNT - operator.length_hint(self._numbers)


class AtomicCounts:
    """Counters by name."""

    def __init__(self) -> None:
        """Begin with all counters at 0."""
        self._counters: dict[str, AtomicCounter] = {}

    def add(self, name: str) -> int:
        """Increment a counter, and return its value before."""
        # If another thread made the counter meanwhile, ``setdefault`` returns that one.
        return (self._counters.get(name) or self._counters.setdefault(name, AtomicCounter())).add()

    def add_many(self, name: str, number: int) -> None:
        """Increment a counter ``number`` times."""
        for _ in range(number):
            self.add(name)

    def counts(self) -> dict[str, int]:
        """Return the values of all counters."""
        return {name: counter.value for name, counter in self._counters.copy().items()}


class GridCounts:
    """Launches of one kernel, counted by grid.

    The main grid is the one with most CTAs in all launches so far. Only launches with it are kept as the last one, and
    saved: if the kernel's CTAs take about as long in any grid, these launches take most of its time.
    """

    def __init__(self) -> None:
        """Begin without launches."""
        self._counters: dict[Grid, AtomicCounter] = {}
        self._main: tuple[int, Grid] = (0, (0, 0, 0))
        """The main grid after its CTAs in all launches."""

    def add(self, grid: Grid) -> tuple[int, bool]:
        """Count a launch; return its number among those with its grid, and whether that is the main one."""
        number = (self._counters.get(grid) or self._counters.setdefault(grid, AtomicCounter())).add()
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
