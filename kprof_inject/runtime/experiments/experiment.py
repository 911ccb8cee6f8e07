"""Time a kernel with delays against the same kernel without, alternating from launch to launch.

Each timed launch with a delay is between two launches without, and is compared with them, because drift (of the clock,
above all) affects all three. All launches are made at one launch of the program, on copies of the memory that the
kernel begins with there.
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

# The driver queues about a thousand launches; after that, the host waits for the first one to end.
_MAX_QUEUED = 400
_CHUNK_NS = 50_000_000

MIN_WATCH_S = 30.0
_WATCH_MARGIN = 100.0

SLOPE_ERROR = 0.03
"""An experiment ends early when half the interval of every slope is below this."""

MAX_ROUNDS = 2000
"""More rounds do not help: a slope that is imprecise after these is so for other reasons."""

_JUDGED_EVERY_S = 0.2

Ended = Literal["precise", "often", "time", "program"]


@dataclass(frozen=True, slots=True)
class ExperimentTimes:
    """Result of an experiment."""

    pairs: Sequence[DelayPairs]
    """Times of each build of the plan."""
    sm_clock_hz: Sequence[float]
    launches: int
    seconds: float
    ended: Ended
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Reasons why builds were left out, by their index in the plan."""


@dataclass(slots=True)
class DelayExperiment:
    """Many relaunches of a kernel, at one launch of the program.

    ``clean`` and ``delayed`` are loaded kernels; None in ``delayed`` is a build that is left out.
    """

    device: Device
    relaunch: Relaunch
    clean: Any
    delayed: Sequence[Any]
    plan: DelaysRecord
    seed: str
    watchdog: Watchdog
    name: str
    _clean_ns: float = 0.0

    def run(self, seconds: float) -> ExperimentTimes:
        """Time all builds for at most ``seconds``. Raises ``NotReplayable``, and any error of a launch."""
        begun = time.monotonic()
        with (
            self.device.unaffected_by_graphs(),
            copies_of(self.device, self.relaunch.memory, self.relaunch.stream) as memory,
            own_scratch(self.device),
        ):
            self.relaunch = self.relaunch.on(memory)
            timed = BackToBack(self.device, self.relaunch.stream, memory)
            refusals = self._warm_up(timed)
            loaded = [place for place, kernel in enumerate(self.delayed) if kernel is not None]
            included = [place for place in loaded if place not in refusals]
            pairs = [DelayPairs() for _ in self.delayed]
            clocks: list[float] = []
            ended = self._run_rounds(timed, included, pairs, clocks, begun + seconds)
        return ExperimentTimes(pairs, clocks, timed.launches, time.monotonic() - begun, ended, refusals)

    def _run_rounds(
        self, timed: BackToBack, included: Sequence[int], pairs: list[DelayPairs], clocks: list[float], until_s: float
    ) -> Ended:
        builds = [self.plan.builds[place] for place in included]
        shares = [(build.scope, build.delay_cycles, build.whole_share) for build in builds]
        judged_s = time.monotonic()
        for order in islice(rounds(len(included), self.seed), MAX_ROUNDS if included else 0):
            for chunk in self._chunks(timed, [included[number] for number in order]):
                if time.monotonic() > until_s:
                    return "time"
                times = self._times(timed, chunk)
                for number, place in enumerate(chunk):
                    before, ns, after = times[2 * number : 2 * number + 3]
                    pairs[place].add(ns, before, after)
                if (hz := self.device.sm_clock_hz(self.relaunch.stream)) is not None:
                    clocks.append(hz)
            # Not after each round, because this takes as long as a round of short launches.
            if time.monotonic() > judged_s + _JUDGED_EVERY_S:
                judged_s = time.monotonic()
                if are_precise([pairs[place] for place in included], shares, SLOPE_ERROR):
                    return "precise"
        return "often"

    def _chunks(self, timed: BackToBack, order: Sequence[int]) -> Iterator[Sequence[int]]:
        """Split a round into chunks that are queued at once, together with a clean launch for each build."""
        by_time = int(_CHUNK_NS / max(2 * self._clean_ns * timed.launches, 1.0))
        size = max(min(by_time, _MAX_QUEUED // (2 * timed.launches)), 1)
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]

    def _times(self, timed: BackToBack, chunk: Sequence[int]) -> list[float]:
        """Time clean launches, with one launch of each build of the chunk between them."""
        kernels = [self.clean]
        for place in chunk:
            kernels += [self.delayed[place], self.clean]
        marks = timed.queued([partial(self.relaunch.launch, kernel) for kernel in kernels])
        expected_s = 1e-9 * len(marks) * timed.launches * self._clean_ns
        self.watchdog.watch(marks[-1][1], max(MIN_WATCH_S, _WATCH_MARGIN * expected_s), self.name)
        return timed.times_ns(marks)

    def _warm_up(self, timed: BackToBack) -> dict[int, str]:
        """Run each build once, and return the builds whose results differ from the clean kernel's, with the reason.

        Results that differ from launch to launch, as with atomics on floats, are not compared.
        """
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
        """Return the time of a launch on fresh copies of the memory, and a digest of its results.

        The stream is held meanwhile, or the time would include the host's for a launch.
        """
        marks = timed.queued([partial(self.relaunch.launch, kernel)])
        self.watchdog.watch(marks[-1][1], MIN_WATCH_S + _WATCH_MARGIN * 1e-9 * self._clean_ns, self.name)
        (ns,) = timed.times_ns(marks)
        return ns, timed.memory.digest(self.relaunch.stream)

    def _may_follow(self, timed: BackToBack, expected: tuple[int, ...] | None) -> bool:
        """Return whether launches do the same work without fresh copies. A kernel that polls memory is not tried."""
        record = self.plan.scopes.relaunch
        if record is None or record.waits:
            return False
        timed.restores = False
        try:
            ns, digest = self._alone(timed, self.clean)
        finally:
            timed.restores = True
        return digest == expected and is_same_work(ns, self._clean_ns)
