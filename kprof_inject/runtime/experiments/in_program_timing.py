"""Time the program's own launches of a kernel, of which every second one gets a delay.

This is for kernels that cannot be launched again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from kprof_inject.capture.experiments import DelaysRecord
from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.experiments.experiment import (
    MAX_ROUNDS,
    MIN_WATCH_S,
    SLOPE_ERROR,
    Ended,
    ExperimentTimes,
)
from kprof_inject.runtime.experiments.interleaving import DelayPairs, are_precise, rounds
from kprof_inject.runtime.experiments.watchdog import Watchdog
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.process_events import Guarded
from kprof_inject.runtime.replay.back_to_back import MIN_HOLD_NS

GiveUp = Callable[[str], None]
"""Function that ends the experiment, for the reason that is its argument."""


@dataclass(slots=True)
class InProgramTiming:
    """Timing of the program's own launches, of which every second one gets a build with a delay."""

    device: Device
    plan: DelaysRecord
    included: Sequence[int]
    """Indices in the plan of the builds that take part."""
    seed: str
    watchdog: Watchdog
    name: str
    seconds: float
    pairs: list[DelayPairs] = field(init=False)
    clocks: list[float] = field(default_factory=list)
    _order: Iterator[int] = field(init=False)
    _begun_s: float = field(default_factory=time.monotonic)
    _marks: list[tuple[int | None, Event, Event]] = field(default_factory=list)
    _begun: tuple[int | None, Event] | None = None
    _ended: Ended | None = None

    def __post_init__(self) -> None:
        """Begin with the first round."""
        self.pairs = [DelayPairs() for _ in self.plan.builds]
        self._order = self._builds()

    def _builds(self) -> Iterator[int]:
        """Yield the indices of builds in the order in which to launch them."""
        shares = [(build.scope, build.delay_cycles, build.whole_share) for build in self.plan.builds]
        for order in islice(rounds(len(self.included), self.seed), MAX_ROUNDS):
            self._collect()
            self._note_clock()
            pairs = [self.pairs[place] for place in self.included]
            if are_precise(pairs, [shares[place] for place in self.included], SLOPE_ERROR):
                self._ended = "precise"
            yield from (self.included[number] for number in order)
        self._ended = "often"

    def _note_clock(self) -> None:
        stream = self.device.current_stream()
        if not self.device.is_capturing() and (hz := self.device.sm_clock_hz(stream)) is not None:
            self.clocks.append(hz)

    @property
    def is_done(self) -> bool:
        """True once the time is up, or the slopes are precise."""
        if self._ended is None and (not self.included or time.monotonic() > self._begun_s + self.seconds):
            self._ended = "time"
        return self._ended is not None

    def begin(self, stream: int, give_up: GiveUp) -> int | None:
        """Return the index of the build for a launch that is about to be made; None for the kernel without a delay.

        If the device fails, this calls ``give_up``.
        """
        with _giving_up(give_up):
            place = next(self._order, None) if self._marks and self._marks[-1][0] is None else None
            self.device.hold(stream, MIN_HOLD_NS)
            self._begun = place, self.device.timing_mark(stream)
            return place
        return None

    def end(self, stream: int, give_up: GiveUp) -> None:
        """Note that the launch is queued. If the device fails, this calls ``give_up``."""
        begun, self._begun = self._begun, None
        if begun is not None:
            with _giving_up(give_up):
                end = self.device.timing_mark(stream)
                self._marks.append((*begun, end))
                self.watchdog.watch(end, MIN_WATCH_S, self.name)

    def _collect(self) -> None:
        """Make pairs of launches that have ended, and keep the last one without a delay for the next pair."""
        ended = 0
        while ended + 2 < len(self._marks) and self._marks[ended + 2][2].query():
            before, (place, *delayed), after = self._marks[ended : ended + 3]
            if place is not None:
                self.pairs[place].add(_ns(*delayed), _ns(*before[1:]), _ns(*after[1:]))
            ended += 2
        del self._marks[:ended]

    def finish(self) -> ExperimentTimes:
        """Return the times measured so far."""
        self._collect()
        return ExperimentTimes(self.pairs, self.clocks, 1, time.monotonic() - self._begun_s, self._ended or "program")


def _giving_up(give_up: GiveUp) -> Guarded:
    return Guarded(lambda error: give_up(f"that failed: {first_line(error)}"))


def _ns(start: Event, end: Event) -> float:
    return 1e6 * start.elapsed_time(end)
