"""Time variants of a launch in turn, each between two launches of the unchanged kernel, and check their results.

This is the loop of all experiments: the cost of records, causal delays, and whatever else a variant may be. Each
launch of a variant is compared with the launches before and after it, because drift (of the clock, above all) affects
all three.

A kernel that waits for others may wait forever when a delay slows it down, and only the end of its process stops it:
the watchdog ends a process whose kernel does not return.
"""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Literal

from kprof_inject.capture.edits import MIN_PAIRS
from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.faults import say
from kprof_inject.runtime.launch.launcher import own_scratch
from kprof_inject.runtime.launch.timing import SAMPLES, EmptyKernel
from kprof_inject.runtime.worker.loaded_launch import Digests, LoadedLaunch, NotReplayable

_LOOKS_PER_S = 4.0


class Watchdog:
    """Thread that waits for events, and kills the process if one does not happen in time."""

    def __init__(self) -> None:
        self._watched: list[tuple[Event, float, str]] = []
        self._thread: threading.Thread | None = None

    def watch(self, event: Event, seconds: float, what: str) -> None:
        """Expect ``event`` to happen within ``seconds``; ``what`` is the kernel that it follows."""
        self._watched.append((event, time.monotonic() + seconds, what))
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="kprof-watchdog", daemon=True)
            self._thread.start()

    def _look(self) -> None:
        while True:
            if self._watched:
                # Looking at the first is enough: most events are of one stream, where they happen in order.
                event, until_s, what = self._watched[0]
                try:
                    has_happened = event.query()
                except Exception:  # noqa: BLE001 (the error of a failed device, on which the kernel has ended)
                    has_happened = True
                if has_happened:
                    self._watched.pop(0)
                    continue
                if time.monotonic() > until_s:
                    say(f"{what} did not return, so kprof-inject killed its process")
                    os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(1 / _LOOKS_PER_S)


MIN_WATCH_S = 30.0
WATCH_MARGIN = 100.0  # A kernel has this many times as long as it is expected to take, and at least ``MIN_WATCH_S``


# The time of a single launch includes some microseconds of work that the device does between two events. Launches timed
# together share this overhead.
_MIN_BATCH_NS = 200_000
_MAX_IN_BATCH = 20

# The host may take this much longer to queue the same number of launches than it took before.
_HOST_MARGIN = 2.0
MIN_HOLD_NS = 50_000
_MAX_HOLD_NS = 20_000_000
_TRIES = 4

# Maximum ratio of two times for the same work: a launch that finds its work done takes less time than one that does it.
_SAME_WORK = 1.5

Marks = tuple[Event, Event]  # events before and after the timed launches


@dataclass(slots=True)
class BackToBack:
    """Timer of launches on a stream, in which ``launches`` of each kind follow each other without a pause.

    With ``restores``, ``refresh`` restores the kernel's memory before each kind. ``before`` is called after that; what
    it queues is not timed.
    """

    device: Device
    stream: int
    refresh: Callable[[], None]
    launches: int = 1
    restores: bool = True
    before: Callable[[], None] = lambda: None
    was_held: bool = True
    """False if the device began with the last batch before all of it was queued: its times may then be the host's."""
    _queue_ns: int = 0

    def queued(self, launches: Sequence[Callable[[], None]]) -> list[Marks]:
        """Queue launches of each kind between two events, one kind after another.

        The stream is held until the host has queued them all. If that takes too long, they are queued again, at most
        ``_TRIES`` times in total.
        """
        for _ in range(_TRIES):
            begun_ns = time.monotonic_ns()
            hold_ns = min(max(int(_HOST_MARGIN * self._queue_ns), MIN_HOLD_NS), _MAX_HOLD_NS)
            self.device.hold(self.stream, hold_ns)
            marks = []
            for launch in launches:
                if self.restores:
                    self.refresh()
                self.before()
                start = self.device.timing_mark(self.stream)
                for _ in range(self.launches):
                    launch()
                marks.append((start, self.device.timing_mark(self.stream)))
            self.was_held = not marks[0][0].query()
            self._queue_ns = time.monotonic_ns() - begun_ns
            if self.was_held:
                break
        return marks

    def times_ns(self, marks: Sequence[Marks]) -> list[float]:
        """Wait for the launches to end, and return the time of one launch of each kind."""
        for _, end in marks:
            end.synchronize()
        return [1e6 * start.elapsed_time(end) / self.launches for start, end in marks]


def empty_ns(timed: BackToBack, kernel: EmptyKernel) -> float | None:
    """Return the time of an empty kernel's launch, timed as other launches are, after waiting for it.

    Returns None if the host was too slow to measure it.
    """
    launches: Sequence[Callable[[], None]] = [lambda: kernel.launch(timed.device, timed.stream)] * SAMPLES
    alike = replace(timed, restores=False)
    times_ns = alike.times_ns(alike.queued(launches))
    return statistics.median(times_ns) if alike.was_held else None


OTHER_RESULTS = "its results differ from those of the unchanged kernel"


class Results:
    """Judge of the results of variants, which are in memory when it is called.

    It accepts the same bytes alone, and everything if the unchanged kernel's results differ from launch to launch.
    """

    def __init__(self) -> None:
        self._digests: list[Digests] = []

    def note(self, digest: Digests) -> None:
        """Note what the unchanged kernel has left in memory, after each of its first launches."""
        self._digests.append(digest)

    def refusal_of(self, place: int, digest: Digests) -> str:
        """Return the reason for refusing a variant's results; empty if they are accepted."""
        first = self._digests[0]
        is_repeatable = len(set(self._digests)) == 1
        return OTHER_RESULTS if is_repeatable and digest != first else ""


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


@dataclass(slots=True, kw_only=True)
class PairedTimes:
    """Result of an experiment.

    ``refusals`` has the reasons why variants were left out, by their index. ``is_repeatable`` is false if the kernel's
    results differ from launch to launch.
    """

    pairs: Sequence[LaunchPairs]
    launches: int
    restored: bool
    refusals: Mapping[int, str]
    is_repeatable: bool
    sm_clock_hz: list[float] = field(default_factory=list)
    seconds: float = 0.0
    ended: Ended = "often"


@dataclass(slots=True)
class PairedLaunches:
    """Experiments with one launch; ``clean`` and ``variants`` are loaded kernels. A variant of None is left out."""

    launch: LoadedLaunch
    clean: Any
    variants: Sequence[Any]
    watchdog: Watchdog
    results: Results = field(default_factory=Results)
    clean_ns: float = 0.0  # time of the unchanged kernel, known after the first launches
    _warm: tuple[BackToBack, bool] | None = None
    _not_held: int = 0

    def run(self, until_s: float, max_rounds: int, unsettled: Unsettled, min_rounds: int = 0) -> PairedTimes:
        """Time all variants in at least ``min_rounds`` and at most ``max_rounds`` rounds.

        In between, only those that are ``unsettled`` go on; the end is when none is, or when ``time.monotonic()`` is
        ``until_s``. Raises ``NotReplayable``, and any error of a launch.
        """
        begun = time.monotonic()
        with self.launch.device.unaffected_by_graphs(), own_scratch(self.launch.device):
            timed, is_repeatable = self._warm = self._warm or self.warm_up()
            refusals, self._not_held = self._refused(timed), 0
            found = PairedTimes(
                pairs=[LaunchPairs() for _ in self.variants],
                launches=timed.launches,
                restored=timed.restores,
                refusals=refusals,
                is_repeatable=is_repeatable,
            )
            included = [
                place for place, kernel in enumerate(self.variants) if kernel is not None and place not in refusals
            ]
            going_on, judged_at = set(included), max(min_rounds, MIN_PAIRS)
            wanted = islice(rounds(len(included), self.launch.saved.record.variant), max_rounds if included else 0)
            for number, order in enumerate(wanted):
                places = [included[index] for index in order if included[index] in going_on]
                if not self._run_round(timed, places, found, until_s if number >= min_rounds else math.inf):
                    found.ended = "time"
                    break
                if number + 1 >= judged_at:
                    judged_at = math.ceil(_MORE_ROUNDS * judged_at)
                    going_on &= set(unsettled(found.pairs))
                    if not going_on:
                        found.ended = "precise"
                        break
        found.seconds = time.monotonic() - begun
        return found

    def _run_round(self, timed: BackToBack, places: Sequence[int], found: PairedTimes, until_s: float) -> bool:
        """Time these variants, each between two clean launches; return False if the time is over before."""
        # A chunk of a round is queued at once.
        by_time = int(_CHUNK_NS / max(2 * self.clean_ns * timed.launches, 1.0))
        size = max(min(by_time, _MAX_QUEUED // (2 * timed.launches)), 1)
        for begin in range(0, len(places), size):
            if time.monotonic() > until_s:
                return False
            chunk, kernels = places[begin : begin + size], [self.clean]
            for place in chunk:
                kernels += [self.variants[place], self.clean]
            marks = timed.queued([partial(self.launch.launch, kernel) for kernel in kernels])
            expected_s = 1e-9 * len(marks) * timed.launches * self.clean_ns
            self._watch(marks[-1][1], max(MIN_WATCH_S, WATCH_MARGIN * expected_s))
            times = timed.times_ns(marks)
            if not timed.was_held:
                self._not_held += 1
                if self._not_held > _MAX_NOT_HELD:
                    raise NotReplayable(HOST_IS_SLOW)
                continue
            for index, place in enumerate(chunk):
                before, ns, after = times[2 * index : 2 * index + 3]
                found.pairs[place].add(ns, before, after)
            found.sm_clock_hz.append(self.launch.device.sm_clock_hz(self.launch.stream))
        return True

    def warm_up(self) -> tuple[BackToBack, bool]:
        """Run the unchanged kernel; return a timer, which restores memory unless a launch does the same work without.

        Also return whether the results are the same from launch to launch, unlike with atomics on floats.
        """
        timed, alone = BackToBack(self.launch.device, self.launch.stream, self.launch.refresh), []
        for _ in range(3):
            alone.append(self._alone(timed, self.clean))
            self.results.note(alone[-1][1])
        self.clean_ns = statistics.median(ns for ns, _ in alone)
        is_repeatable = len({digest for _, digest in alone}) == 1
        relaunch = self.launch.saved.record.relaunch
        if is_repeatable and relaunch is not None and not relaunch.waits:  # one that polls is not tried
            timed.restores = False
            try:
                ns, digest = self._alone(timed, self.clean)
            finally:
                timed.restores = True
            if digest == alone[0][1] and self.clean_ns / _SAME_WORK < ns < _SAME_WORK * self.clean_ns:
                timed.restores = False
                timed.launches = min(max(math.ceil(_MIN_BATCH_NS / max(self.clean_ns, 1.0)), 1), _MAX_IN_BATCH)
        return timed, is_repeatable

    def _refused(self, timed: BackToBack) -> dict[int, str]:
        alone, refusals = BackToBack(self.launch.device, self.launch.stream, self.launch.refresh), {}
        for place, kernel in enumerate(self.variants):
            if kernel is not None:
                _, digest = self._alone(alone, kernel)
                if refusal := self.results.refusal_of(place, digest):
                    refusals[place] = refusal
        if not timed.restores:
            self.launch.refresh()  # no later launch finds a refused variant's results
        return refusals

    def watch_stream(self) -> None:
        """Have the watchdog expect a launch, or several, that were queued just now, to end."""
        mark = self.launch.device.mark(self.launch.stream)
        self._watch(mark, MIN_WATCH_S + WATCH_MARGIN * 1e-9 * self.clean_ns)

    def _watch(self, event: Event, seconds: float) -> None:
        self.watchdog.watch(event, seconds, self.launch.saved.record.name)

    def _alone(self, timed: BackToBack, kernel: Any) -> tuple[float, Digests]:
        """Return the time of a launch with its memory restored, and a digest of its results.

        The stream is held meanwhile, or the time would include the host's for a launch.
        """
        marks = timed.queued([partial(self.launch.launch, kernel)])
        self._watch(marks[-1][1], MIN_WATCH_S + WATCH_MARGIN * 1e-9 * self.clean_ns)
        (ns,) = timed.times_ns(marks)
        return ns, self.launch.digest()
