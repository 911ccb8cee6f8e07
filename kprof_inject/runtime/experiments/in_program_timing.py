"""Time launches of the program itself, of which every second one gets a delay: for kernels that cannot be repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kprof_inject.capture.experiments import DelaysRecord
from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.experiments.back_to_back import MIN_HOLD_NS
from kprof_inject.runtime.experiments.delays import MAX_ROUNDS, SLOPE_ERROR, are_precise, shares_of
from kprof_inject.runtime.experiments.paired_launches import Ended, LaunchPairs, PairedTimes, rounds
from kprof_inject.runtime.experiments.watchdog import MIN_WATCH_S, Watchdog
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.process_events import Guarded, is_of_signal_handler
from kprof_inject.workspace import DumpedKernel


@dataclass(slots=True)
class InProgramTiming:
    """Timing of the program's own launches, of which every second one gets a build with a delay.

    ``builds`` are loaded kernels; None is a build that is left out. If the device or a launch fails, ``give_up`` is
    called with the reason.
    """

    device: Device
    plan: DelaysRecord
    dumped: DumpedKernel
    builds: Sequence[Any]
    watchdog: Watchdog
    seconds: float
    give_up: Callable[[str], None]
    pairs: list[LaunchPairs] = field(init=False)
    clocks: list[float] = field(default_factory=list)
    _order: Iterator[int] = field(init=False)
    _begun_s: float = field(default_factory=time.monotonic)
    _marks: list[tuple[int | None, Event, Event]] = field(default_factory=list)
    _begun: tuple[int | None, Event] | None = None
    _ended: Ended | None = None

    def __post_init__(self) -> None:
        """Begin with the first round."""
        self.pairs = [LaunchPairs() for _ in self.builds]
        self._order = self._launch_order()

    def _launch_order(self) -> Iterator[int]:
        """Yield the indices of the builds that take part, in the order in which to launch them."""
        included = [place for place, build in enumerate(self.builds) if build is not None]
        shares = shares_of(self.plan, included)
        for order in islice(rounds(len(included), self.dumped.variant), MAX_ROUNDS):
            self._collect()
            stream = self.device.current_stream()
            if not self.device.is_capturing() and (hz := self.device.sm_clock_hz(stream)) is not None:
                self.clocks.append(hz)
            if are_precise([self.pairs[place] for place in included], shares, SLOPE_ERROR):
                self._ended = "precise"
            yield from (included[number] for number in order)
        self._ended = "often"

    @property
    def is_done(self) -> bool:
        """True once the time is up, or the slopes are precise."""
        if self._ended is None and (not any(self.builds) or time.monotonic() > self._begun_s + self.seconds):
            self._ended = "time"
        return self._ended is not None

    def launch(self, stream: int, launch: Callable[[Any], Any]) -> Any:
        """Call ``launch`` with a build, or with None for the kernel without a delay, and time it.

        If the launch of a build fails, the kernel without a delay is launched.
        """
        place = self._begin(stream)
        if place is None:
            result = launch(None)
        else:
            try:
                result = launch(self.builds[place])
            except Exception as error:
                if is_of_signal_handler(error):
                    raise
                self.give_up(f"its launch fails with a delay: {first_line(error)}")
                return launch(None)
        self._end(stream)
        return result

    def _begin(self, stream: int) -> int | None:
        """Return the index of the build for a launch that is about to be made; None for the kernel without a delay."""
        with self._giving_up():
            place = next(self._order, None) if self._marks and self._marks[-1][0] is None else None
            self.device.hold(stream, MIN_HOLD_NS)
            self._begun = place, self.device.timing_mark(stream)
            return place
        return None

    def _end(self, stream: int) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            with self._giving_up():
                end = self.device.timing_mark(stream)
                self._marks.append((*begun, end))
                self.watchdog.watch(end, MIN_WATCH_S, self.dumped.name)

    def _giving_up(self) -> Guarded:
        return Guarded(lambda error: self.give_up(f"the experiment failed: {first_line(error)}"))

    def _collect(self) -> None:
        """Make pairs of launches that have ended, and keep the last one without a delay for the next pair."""
        ended = 0
        while ended + 2 < len(self._marks) and self._marks[ended + 2][2].query():
            before, (place, *delayed), after = self._marks[ended : ended + 3]
            if place is not None:
                self.pairs[place].add(_ns(*delayed), _ns(*before[1:]), _ns(*after[1:]))
            ended += 2
        del self._marks[:ended]

    def finish(self) -> PairedTimes:
        """Return the times measured so far."""
        self._collect()
        seconds = time.monotonic() - self._begun_s
        return PairedTimes(self.pairs, self.clocks, 1, True, seconds, self._ended or "program")


def _ns(start: Event, end: Event) -> float:
    return 1e6 * start.elapsed_time(end)
