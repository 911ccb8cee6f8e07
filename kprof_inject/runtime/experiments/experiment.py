"""Times a kernel with delays against the same kernel without, launch by launch in turn.

Each timed launch with a delay stands between two without, and is compared with these: what drifts (the clock, above
all) is in all three. All is done at one launch of the program's, on copies of the memory that the kernel begins with
there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Literal

from kprof_inject.capture.experiments import DelaysRecord
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.experiments.interleaving import DelayPairs, are_precise, rounds
from kprof_inject.runtime.experiments.watchdog import Watchdog
from kprof_inject.runtime.launch.profile_allocator import own_scratch
from kprof_inject.runtime.replay.back_to_back import BackToBack, is_same_work
from kprof_inject.runtime.replay.memory_copies import copies_of
from kprof_inject.runtime.replay.relaunch import Relaunch

# The driver takes about a thousand launches before it lets the host wait for the first of them.
_MOST_QUEUED = 400
_CHUNK_NS = 50_000_000

LEAST_WATCH_S = 30.0
_WATCH_MARGIN = 100.0

SLOPE_ERROR = 0.03
"""Half of the interval, of every slope, at which an experiment ends before its time."""

MOST_ROUNDS = 2000
"""Whatever is not known after so many is not known for other reasons."""

_JUDGED_EVERY_S = 0.2

Ended = Literal["precise", "often", "time", "program"]


@dataclass(frozen=True, slots=True)
class ExperimentTimes:
    """What came of an experiment."""

    pairs: Sequence[DelayPairs]
    """Of each build of the plan."""
    sm_clock_hz: Sequence[float]
    launches: int
    seconds: float
    ended: Ended
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Of builds that were left out, by their place in the plan."""


@dataclass(slots=True)
class DelayExperiment:
    """The kernel launched again and again, at one launch of the program's. ``clean`` and ``delayed`` are loaded
    kernels; of ``delayed``, None stands for one that is left out."""

    device: Device
    again: Relaunch
    clean: Any
    delayed: Sequence[Any]
    plan: DelaysRecord
    seed: str
    watchdog: Watchdog
    name: str
    _clean_ns: float = 0.0

    def run(self, seconds: float) -> ExperimentTimes:
        """For at most so long, on copies of the kernel's memory. Raises ``NotReplayable``, and what a launch raises."""
        begun = time.monotonic()
        with (
            self.device.unaffected_by_graphs(),
            copies_of(self.device, self.again.memory, self.again.stream) as memory,
            own_scratch(self.device),
        ):
            self.again = self.again.on(memory)
            timed = BackToBack(self.device, self.again.stream, memory)
            refusals = self._warm_up(timed)
            there = [place for place, one in enumerate(self.delayed) if one is not None and place not in refusals]
            pairs = [DelayPairs() for _ in self.delayed]
            clocks: list[float] = []
            ended = self._take_turns(timed, there, pairs, clocks, begun + seconds)
        return ExperimentTimes(pairs, clocks, timed.launches, time.monotonic() - begun, ended, refusals)

    def _take_turns(
        self, timed: BackToBack, there: Sequence[int], pairs: list[DelayPairs], clocks: list[float], until_s: float
    ) -> Ended:
        builds = [self.plan.builds[place] for place in there]
        shares = [(one.scope, one.delay_cycles, one.whole_share) for one in builds]
        judged_s = time.monotonic()
        for order in islice(rounds(len(there), self.seed), MOST_ROUNDS if there else 0):
            for chunk in self._chunks(timed, [there[number] for number in order]):
                if time.monotonic() > until_s:
                    return "time"
                times = self._times(timed, chunk)
                for number, place in enumerate(chunk):
                    before, ns, behind = times[2 * number : 2 * number + 3]
                    pairs[place].add(ns, before, behind)
                if (hz := self.device.sm_clock_hz(self.again.stream)) is not None:
                    clocks.append(hz)
            # It takes as long as a round of short launches.
            if time.monotonic() > judged_s + _JUDGED_EVERY_S:
                judged_s = time.monotonic()
                if are_precise([pairs[place] for place in there], shares, SLOPE_ERROR):
                    return "precise"
        return "often"

    def _chunks(self, timed: BackToBack, order: Sequence[int]) -> Iterator[Sequence[int]]:
        """As many as are queued at once: each comes with a launch without a delay."""
        by_time = int(_CHUNK_NS / max(2 * self._clean_ns * timed.launches, 1.0))
        size = max(min(by_time, _MOST_QUEUED // (2 * timed.launches)), 1)
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]

    def _times(self, timed: BackToBack, chunk: Sequence[int]) -> list[float]:
        """Clean, the first of the chunk, clean, the second, and so on to a clean one."""
        kernels = [self.clean, *(one for place in chunk for one in (self.delayed[place], self.clean))]
        marks = timed.queued([partial(self.again.launch, kernel) for kernel in kernels])
        expected_s = 1e-9 * len(marks) * timed.launches * self._clean_ns
        self.watchdog.watch(marks[-1][1], max(LEAST_WATCH_S, _WATCH_MARGIN * expected_s), self.name)
        return timed.times_ns(marks)

    def _warm_up(self, timed: BackToBack) -> dict[int, str]:
        """Run each build once, and leave out those that leave other bytes than the kernel without a delay does. A
        kernel that leaves others each time, as by atomics on floats, cannot be told from one that a delay changes."""
        alone = [self._alone(timed, self.clean) for _ in range(3)]
        self._clean_ns = statistics.median(ns for ns, _ in alone)
        is_repeatable = alone[0][1] is not None and len({digest for _, digest in alone}) == 1
        refusals = {}
        for place, kernel in enumerate(self.delayed):
            if kernel is not None:
                _, digest = self._alone(timed, kernel)
                if is_repeatable and digest != alone[0][1]:
                    refusals[place] = "its results differ from those without a delay"
        if is_repeatable and self._may_follow(timed, alone[0][1]):
            timed.follow_each_other(self._clean_ns)
        return refusals

    def _alone(self, timed: BackToBack, kernel: Any) -> tuple[float, tuple[int, ...] | None]:
        """How long a launch takes from the memory that the kernel began with, and what it leaves. The stream is held
        meanwhile: else the host's time for a launch is in it."""
        marks = timed.queued([partial(self.again.launch, kernel)])
        self.watchdog.watch(marks[-1][1], LEAST_WATCH_S + _WATCH_MARGIN * 1e-9 * self._clean_ns, self.name)
        (ns,) = timed.times_ns(marks)
        return ns, timed.memory.digest(self.again.stream)

    def _may_follow(self, timed: BackToBack, left: tuple[int, ...] | None) -> bool:
        """Whether a launch does the same without fresh copies. What waits for memory to change is not tried."""
        relaunch = self.plan.scopes.relaunch
        if relaunch is None or relaunch.waits:
            return False
        timed.restores = False
        try:
            ns, digest = self._alone(timed, self.clean)
        finally:
            timed.restores = True
        return digest == left and is_same_work(ns, self._clean_ns)
