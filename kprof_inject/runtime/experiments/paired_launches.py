"""Time variants of a launch in turn, each between two launches of the unchanged kernel, and check their results.

This is the loop of all experiments: the cost of records, causal delays, and whatever else a variant may be. Each
launch of a variant is compared with the launches before and after it, because drift (of the clock, above all) affects
all three.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Literal

from kprof_inject.capture.edits import MIN_PAIRS
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.experiments.back_to_back import BackToBack, is_same_work
from kprof_inject.runtime.experiments.relaunch import (
    Digests,
    LaunchMemory,
    NotReplayable,
    Relaunch,
    Results,
    SameResults,
)
from kprof_inject.runtime.experiments.watchdog import MIN_WATCH_S, WATCH_MARGIN, Watchdog
from kprof_inject.runtime.launch.launcher import own_scratch

_QUANTILE = 1.96


def rounds(count: int, seed: str) -> Iterator[Sequence[int]]:
    """Yield endless rounds, each with all indices below ``count`` in a random order that ``seed`` determines."""
    generator = random.Random(seed)
    while True:
        order = list(range(count))
        generator.shuffle(order)
        yield order


@dataclass(slots=True)
class LaunchPairs:
    """Times of one variant, each with the mean time of the unchanged launches before and after it."""

    ns: list[float] = field(default_factory=list)
    clean_ns: list[float] = field(default_factory=list)

    def add(self, ns: float, before_ns: float, after_ns: float) -> None:
        """Add the times of a launch of the variant, and of the unchanged launches before and after it."""
        self.ns.append(ns)
        self.clean_ns.append((before_ns + after_ns) / 2)

    @property
    def error(self) -> float:
        """Half of the 95 % interval of the median ratio; infinite if there are too few pairs."""
        low, _, high = self.interval
        return (high - low) / 2

    @property
    def interval(self) -> tuple[float, float, float]:
        """The median ratio of the variant's times to the unchanged kernel's, between the ends of its 95 % interval.

        The interval is between two order statistics, which outliers do not move. It is infinite if there are too few
        pairs.
        """
        count = len(self.ns)
        ratios = sorted(ns / clean for ns, clean in zip(self.ns, self.clean_ns, strict=True))
        if count < MIN_PAIRS:
            return -math.inf, statistics.median(ratios) if ratios else math.nan, math.inf
        distance = math.ceil(_QUANTILE * math.sqrt(count) / 2)
        low, high = max(count // 2 - distance, 0), min((count - 1) // 2 + distance, count - 1)
        return ratios[low], statistics.median(ratios), ratios[high]


# The driver queues about a thousand launches; after that, the host waits for the first one to end.
_MAX_QUEUED = 400
_CHUNK_NS = 50_000_000
# Judging takes as long as a round of short launches.
_MORE_ROUNDS = 1.25
_MAX_NOT_HELD = 20

HOST_IS_SLOW = "the host was too slow to queue its launches before the device began them"

Unsettled = Callable[[Sequence[LaunchPairs]], Collection[int]]
"""Function that returns the indices of the variants of which more pairs are needed."""

Ended = Literal["precise", "often", "time"]


@dataclass(frozen=True, slots=True)
class PairedTimes:
    """Result of an experiment.

    ``refusals`` has the reasons why variants were left out, by their index. ``is_repeatable`` is false if the kernel's
    results differ from launch to launch.
    """

    pairs: Sequence[LaunchPairs]
    sm_clock_hz: Sequence[float]
    launches: int
    restored: bool
    seconds: float
    ended: Ended
    refusals: Mapping[int, str] = field(default_factory=dict)
    is_repeatable: bool = True


@dataclass(slots=True)
class PairedLaunches:
    """An experiment with one launch.

    ``clean`` and ``variants`` are loaded kernels; a variant of None is left out. ``waits`` is true for a kernel that
    polls memory, which is not launched without its memory restored. ``name`` is the kernel's, for messages; ``seed``
    determines the order of the variants.
    """

    device: Device
    relaunch: Relaunch
    memory: LaunchMemory
    clean: Any
    variants: Sequence[Any]
    watchdog: Watchdog
    name: str
    seed: str
    waits: bool = False
    results: Results = field(default_factory=SameResults)
    clean_ns: float = 0.0
    """Time of the unchanged kernel, known after the first launches."""
    _not_held: int = 0

    def run(self, until_s: float, max_rounds: int, unsettled: Unsettled, min_rounds: int = 0) -> PairedTimes:
        """Time all variants in at least ``min_rounds`` and at most ``max_rounds`` rounds.

        In between, only those that are ``unsettled`` go on; the end is when none is, or when ``time.monotonic()`` is
        ``until_s``. Raises ``NotReplayable``, and any error of a launch.
        """
        begun = time.monotonic()
        with ExitStack() as effects:
            effects.enter_context(self.device.unaffected_by_graphs())
            effects.enter_context(own_scratch(self.device))
            timed = BackToBack(self.device, self.relaunch.stream, self.memory)
            refusals, is_repeatable = self.warm_up(timed)
            included = [
                place for place, kernel in enumerate(self.variants) if kernel is not None and place not in refusals
            ]
            pairs = [LaunchPairs() for _ in self.variants]
            clocks: list[float] = []
            ended = self._run_rounds(timed, included, pairs, clocks, until_s, max_rounds, unsettled, min_rounds)
        return PairedTimes(
            pairs=pairs,
            sm_clock_hz=clocks,
            launches=timed.launches,
            restored=timed.restores,
            seconds=time.monotonic() - begun,
            ended=ended,
            refusals=refusals,
            is_repeatable=is_repeatable,
        )

    def _run_rounds(
        self,
        timed: BackToBack,
        included: Sequence[int],
        pairs: list[LaunchPairs],
        clocks: list[float],
        until_s: float,
        max_rounds: int,
        unsettled: Unsettled,
        min_rounds: int,
    ) -> Ended:
        going_on, judged_at = set(included), max(min_rounds, MIN_PAIRS)
        wanted = islice(rounds(len(included), self.seed), max_rounds if included else 0)
        for number, order in enumerate(wanted):
            for chunk in self._chunks(timed, [included[index] for index in order if included[index] in going_on]):
                if number >= min_rounds and time.monotonic() > until_s:
                    return "time"
                times = self._times(timed, chunk)
                if not timed.was_held:
                    self._not_held += 1
                    if self._not_held > _MAX_NOT_HELD:
                        raise NotReplayable(HOST_IS_SLOW)
                    continue
                for index, place in enumerate(chunk):
                    before, ns, after = times[2 * index : 2 * index + 3]
                    pairs[place].add(ns, before, after)
                if (hz := self.device.sm_clock_hz(self.relaunch.stream)) is not None:
                    clocks.append(hz)
            if number + 1 >= judged_at:
                judged_at = math.ceil(_MORE_ROUNDS * judged_at)
                going_on &= set(unsettled(pairs))
                if not going_on:
                    return "precise"
        return "often"

    def _chunks(self, timed: BackToBack, order: Sequence[int]) -> Iterator[Sequence[int]]:
        """Split a round into chunks that are queued at once, together with a clean launch for each variant."""
        by_time = int(_CHUNK_NS / max(2 * self.clean_ns * timed.launches, 1.0))
        size = max(min(by_time, _MAX_QUEUED // (2 * timed.launches)), 1)
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]

    def _times(self, timed: BackToBack, chunk: Sequence[int]) -> list[float]:
        """Time clean launches, with one launch of each variant of the chunk between them."""
        kernels = [self.clean]
        for place in chunk:
            kernels += [self.variants[place], self.clean]
        marks = timed.queued([partial(self.relaunch.launch, kernel) for kernel in kernels])
        expected_s = 1e-9 * len(marks) * timed.launches * self.clean_ns
        self.watchdog.watch(marks[-1][1], max(MIN_WATCH_S, WATCH_MARGIN * expected_s), self.name)
        return timed.times_ns(marks)

    def warm_up(self, timed: BackToBack) -> tuple[dict[int, str], bool]:
        """Run each variant once; return those whose results are refused, each with the reason.

        Also return whether the unchanged kernel's are the same from launch to launch, unlike with atomics on floats. If
        a launch does the same work without restored memory, ``timed`` no longer restores it.
        """
        alone = []
        for _ in range(3):
            alone.append(self._alone(timed, self.clean))
            self.results.note(alone[-1][1])
        self.clean_ns = statistics.median(ns for ns, _ in alone)
        is_repeatable = alone[0][1] is not None and len({digest for _, digest in alone}) == 1
        refusals = {}
        for place, kernel in enumerate(self.variants):
            if kernel is not None:
                _, digest = self._alone(timed, kernel)
                if refusal := self.results.refusal_of(place, digest):
                    refusals[place] = refusal
        if is_repeatable and self._may_follow(timed, alone[0][1]):
            timed.follow_each_other(self.clean_ns)
        return refusals, is_repeatable

    def watch_stream(self) -> None:
        """Have the watchdog expect a launch, or several, that were queued just now, to end."""
        mark = self.device.mark(self.relaunch.stream)
        self.watchdog.watch(mark, MIN_WATCH_S + WATCH_MARGIN * 1e-9 * self.clean_ns, self.name)

    def _alone(self, timed: BackToBack, kernel: Any) -> tuple[float, Digests]:
        """Return the time of a launch with its memory restored, and a digest of its results.

        The stream is held meanwhile, or the time would include the host's for a launch.
        """
        marks = timed.queued([partial(self.relaunch.launch, kernel)])
        self.watchdog.watch(marks[-1][1], MIN_WATCH_S + WATCH_MARGIN * 1e-9 * self.clean_ns, self.name)
        (ns,) = timed.times_ns(marks)
        return ns, self.memory.digest(self.relaunch.stream)

    def _may_follow(self, timed: BackToBack, expected: Digests) -> bool:
        """Return whether launches do the same work without restored memory. A kernel that polls is not tried."""
        if self.waits:
            return False
        timed.restores = False
        try:
            ns, digest = self._alone(timed, self.clean)
        finally:
            timed.restores = True
        return digest == expected and is_same_work(ns, self.clean_ns)
