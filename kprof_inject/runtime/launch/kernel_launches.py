"""Launches of one kernel of the program in a capture: their numbers, their grids, and the times of some of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from msgspec.structs import replace

from kprof_inject.capture.mode import TRUSTED_PERCENT
from kprof_inject.capture.recording import LaunchFilter
from kprof_inject.capture.resources import MAX_GRIDS, GridTimesRecord, KernelResources, TimingRecord
from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.compiling.recording_build import RecordingBuild
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.launch.timing import EmptyKernel, LaunchTimer, Turn, TurnTimer


class KernelLaunches:
    """Launches of one kernel of the program, which may have several builds with records.

    Counts may be off by one where threads launch it at once, or an exception of a signal handler ends a launch.
    """

    def __init__(self, variant: str, device: Device, choice: LaunchFilter, *, has_turns: bool) -> None:
        """Begin without launches; with ``has_turns``, launches are timed without records and with them in turn."""
        self.variant = variant
        self.launches = 0
        self._device = device
        self._choice = choice
        self._has_turns = has_turns
        self._numbers = itertools.count()
        self._grids: dict[Grid, int] = {}
        self._main_grid: Grid = (0, 0, 0)
        self._turns: TurnTimer | None = None
        self._timers: dict[str, LaunchTimer] = {}
        """Timers of launches without turns, by build."""
        self._recorded: dict[Grid, RecordingBuild] = {}
        """Builds whose launches with this grid have turns."""
        self._is_timed = False

    def count(self, grid: Grid) -> tuple[int, bool]:
        """Count a launch that is about to be made; return its number, and whether it may be kept.

        If each kept launch replaces the one before, only launches with the main grid are kept, and those in graphs: a
        graph may run any number of times. The main grid is the one with most CTAs in all launches so far: if the
        kernel's CTAs take about as long in any grid, these launches take most of its time.
        """
        number = next(self._numbers)
        self.launches = number + 1
        if not self._choice.replaces:
            return number, self._choice.keeps(number)
        self._grids[grid] = self._grids.get(grid, 0) + 1
        if grid != self._main_grid and self._ctas(grid) >= self._ctas(self._main_grid):
            self._main_grid = grid
        return number, grid == self._main_grid or self._device.is_capturing()

    def _ctas(self, grid: Grid) -> int:
        return self._grids.get(grid, 0) * math.prod(grid)

    def turn(self, grid: Grid, clean: EmptyKernel, *, is_kept: bool) -> Turn | None:
        """Return the turn of a launch that is about to be made, if it has one.

        ``clean`` is like the kernel without records. Launches that the user wants by their number have no turn.
        """
        if not self._has_turns or (is_kept and not self._choice.replaces):
            return None
        if self._turns is None:
            self._turns = TurnTimer(self._device, clean)
        return self._turns.turn(grid)

    def has_records(self, turn: Turn | None, *, is_kept: bool) -> bool:
        """Return True if a launch is recorded: its turn decides; without one, kept launches are recorded."""
        if turn is not None:
            return turn.has_records
        return is_kept or not (self._has_turns or self._is_timed)

    def excess(self) -> float | None:
        """Return by which part of its time the kernel takes longer with records, once that is found to be too much."""
        excess = self._turns.excess() if self._turns is not None else None
        return excess if excess is not None and 100 * excess > TRUSTED_PERCENT else None

    def begin_turns_again(self) -> None:
        """Forget the times: the kernel has other records from now on."""
        self._turns = None
        self._recorded.clear()

    def timer(self, build: RecordingBuild, grid: Grid, turn: Turn | None) -> LaunchTimer | None:
        """Return the timer of a launch with records, whose times are saved at the end; None if it is not timed."""
        if self._has_turns:
            if turn is None:
                return None
            if self._turns is turn.timer:
                self._recorded.setdefault(grid, build)
            return turn.timer.with_records(EmptyKernel.like(build.record.known_metadata))
        timer = self._timers.get(build.variant)
        if timer is None:
            timer = LaunchTimer(self._device, EmptyKernel.like(build.record.known_metadata))
            self._timers[build.variant] = timer
        if timer.is_done:
            self._is_timed = True
            return None
        return timer

    def times(self) -> Iterator[tuple[str, TimingRecord]]:
        """Yield each build's variant and the times of its launches. Raises ``RuntimeError`` if the device failed."""
        for variant, timer in self._timers.items():
            times_ns = tuple(timer.times_ns())
            yield variant, TimingRecord(times_ns, timer.not_timed or None, empty_launch_ns=timer.empty_ns())
        turns = self._turns
        if turns is None:
            return
        for build in {build.variant: build for build in self._recorded.values()}.values():
            its_grids = [grid for grid, recorded in self._recorded.items() if recorded is build]
            main_grid = self._main_grid if self._choice.replaces else None
            in_turn = turns.times([grid for grid in its_grids if main_grid in (None, grid)])
            grids = self._grid_times(turns)
            yield build.variant, TimingRecord((), turns.clean.not_timed or None, in_turn=in_turn, grids=grids)

    def _grid_times(self, turns: TurnTimer) -> tuple[GridTimesRecord, ...]:
        """Return the launches by grid, that with most CTAs first; none if all have one grid."""
        if len(self._grids) < 2:
            return ()
        times_ns = turns.clean_by_grid()
        first = sorted(self._grids, key=lambda grid: -self._ctas(grid))[:MAX_GRIDS]
        return tuple(
            GridTimesRecord(grid=grid, launches=self._grids[grid], clean_ns=tuple(times_ns.get(grid, ())))
            for grid in first
        )

    def clean_run(self) -> KernelResources | None:
        """Return the kernel's resources with its times without records, as a dump saves them; None without turns.

        Raises ``RuntimeError`` if the device failed.
        """
        turns, build = self._turns, next(iter(self._recorded.values()), None)
        if turns is None or build is None:
            return None
        return replace(
            build.record.clean,
            times_ns=tuple(turns.clean.times_ns()),
            not_timed=turns.clean.not_timed or None,
            empty_launch_ns=turns.clean.empty_ns(),
            launches=self.launches,
        )
