"""Has the program's own launches of a kernel take turns with delays: every second one is without.

It is for kernels that cannot be launched again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from kprof_inject.capture.experiments import DelaysRecord
from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.experiments.experiment import (
    LEAST_WATCH_S,
    MOST_ROUNDS,
    SLOPE_ERROR,
    Ended,
    ExperimentTimes,
)
from kprof_inject.runtime.experiments.interleaving import DelayPairs, are_precise, rounds
from kprof_inject.runtime.experiments.watchdog import Watchdog
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.process_events import Guarded
from kprof_inject.runtime.replay.back_to_back import LEAST_HOLD_NS

GiveUp = Callable[[str], None]
"""Is told why there is no more to be found out."""


@dataclass(slots=True)
class InProgramTiming:
    """The program's own launches take turns: every second is without a delay."""

    device: Device
    plan: DelaysRecord
    there: Sequence[int]
    """The places of the builds that take part."""
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
        self.pairs = [DelayPairs() for _ in self.plan.builds]
        self._order = self._turns()

    def _turns(self) -> Iterator[int]:
        shares = [(one.scope, one.delay_cycles, one.whole_share) for one in self.plan.builds]
        for order in islice(rounds(len(self.there), self.seed), MOST_ROUNDS):
            self._collect()
            self._note_clock()
            of_those_there = [self.pairs[place] for place in self.there]
            if are_precise(of_those_there, [shares[place] for place in self.there], SLOPE_ERROR):
                self._ended = "precise"
            yield from (self.there[number] for number in order)
        self._ended = "often"

    def _note_clock(self) -> None:
        stream = self.device.current_stream()
        if not self.device.is_capturing() and (hz := self.device.sm_clock_hz(stream)) is not None:
            self.clocks.append(hz)

    @property
    def is_done(self) -> bool:
        if self._ended is None and (not self.there or time.monotonic() > self._begun_s + self.seconds):
            self._ended = "time"
        return self._ended is not None

    def begin(self, stream: int, give_up: GiveUp) -> int | None:
        """A launch of the program's begins: the place of the build that takes its turn, None for the kernel without a
        delay. Where the device fails at it, ``give_up`` is told."""
        with _giving_up(give_up):
            place = next(self._order, None) if self._marks and self._marks[-1][0] is None else None
            self.device.hold(stream, LEAST_HOLD_NS)
            self._begun = place, self.device.timing_mark(stream)
            return place
        return None

    def end(self, stream: int, give_up: GiveUp) -> None:
        """The launch that has begun is queued."""
        begun, self._begun = self._begun, None
        if begun is not None:
            with _giving_up(give_up):
                end = self.device.timing_mark(stream)
                self._marks.append((*begun, end))
                self.watchdog.watch(end, LEAST_WATCH_S, self.name)

    def _collect(self) -> None:
        """Make pairs of what has ended; the last launch without a delay stays, for the next one."""
        ended = 0
        while ended + 2 < len(self._marks) and self._marks[ended + 2][2].query():
            before, (place, *delayed), behind = self._marks[ended : ended + 3]
            if place is not None:
                self.pairs[place].add(_ns(*delayed), _ns(*before[1:]), _ns(*behind[1:]))
            ended += 2
        del self._marks[:ended]

    def finish(self) -> ExperimentTimes:
        self._collect()
        return ExperimentTimes(self.pairs, self.clocks, 1, time.monotonic() - self._begun_s, self._ended or "program")


def _giving_up(give_up: GiveUp) -> Guarded:
    return Guarded(lambda error: give_up(f"that failed: {first_line(error)}"))


def _ns(start: Event, end: Event) -> float:
    return 1e6 * start.elapsed_time(end)
