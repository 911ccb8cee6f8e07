"""Time a kernel with delays against the same kernel without, alternating from launch to launch.

Each timed launch with a delay is between two launches without, and is compared with them, because drift (of the clock,
above all) affects all three.

``DelayExperiment`` makes all launches at one launch of the program, on copies of the memory that the kernel begins with
there. ``InProgramTiming`` is for kernels that cannot be launched again: it times the program's own launches, of which
every second one gets a delay.

A kernel that waits for others may wait forever when a delay slows it down, and only the end of its process stops it. So
a ``Watchdog`` looks after all launches.
"""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Literal

from kprof_inject.capture.experiments import DelaysRecord
from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.faults import first_line, say
from kprof_inject.runtime.launch.launcher import own_scratch
from kprof_inject.runtime.process_events import Guarded, is_of_signal_handler
from kprof_inject.runtime.replay.relaunch import MIN_HOLD_NS, BackToBack, Relaunch, copies_of, is_same_work
from kprof_inject.workspace import DumpedKernel

_QUANTILE = 1.96
# Fewer pairs do not show their spread.
_MIN_PAIRS = 12


def rounds(count: int, seed: str) -> Iterator[Sequence[int]]:
    """Yield endless rounds, each with all indices below ``count`` in a random order that ``seed`` determines."""
    generator = random.Random(seed)
    while True:
        order = list(range(count))
        generator.shuffle(order)
        yield order


@dataclass(slots=True)
class DelayPairs:
    """Times of one build, each with the mean time of the clean launches before and after it."""

    ns: list[float] = field(default_factory=list)
    clean_ns: list[float] = field(default_factory=list)

    def add(self, ns: float, before_ns: float, after_ns: float) -> None:
        """Add the times of a launch with a delay, and of the launches without before and after it."""
        self.ns.append(ns)
        self.clean_ns.append((before_ns + after_ns) / 2)

    @property
    def error(self) -> float:
        """Half of the 95 % interval of the median ratio; infinite if there are too few pairs.

        The interval is between two order statistics, which outliers do not move.
        """
        count = len(self.ns)
        if count < _MIN_PAIRS:
            return math.inf
        ratios = sorted(ns / clean for ns, clean in zip(self.ns, self.clean_ns, strict=True))
        distance = math.ceil(_QUANTILE * math.sqrt(count) / 2)
        low, high = max(count // 2 - distance, 0), min((count - 1) // 2 + distance, count - 1)
        return (ratios[high] - ratios[low]) / 2


def are_precise(pairs: Sequence[DelayPairs], delays: Sequence[tuple[int, int, float]], slope_error: float) -> bool:
    """Return whether all slopes are known to within ``slope_error``; false if there are none.

    ``delays`` has for each build its scope, its cycles, and the fraction by which the kernel takes longer if none of
    these cycles are hidden.
    """
    base = {scope: pairs[index].error for index, (scope, cycles, _) in enumerate(delays) if not cycles}
    errors: dict[int, float] = {}
    for index, (scope, cycles, share) in enumerate(delays):
        if cycles:
            error = math.hypot(pairs[index].error, base.get(scope, 0.0)) / share if share else math.inf
            errors.setdefault(scope, error)  # of the scope's first delay, the shortest
    return bool(errors) and max(errors.values()) <= slope_error


_LOOKS_PER_S = 4.0


@dataclass(frozen=True, slots=True)
class _Watched:
    event: Event
    until_s: float
    what: str


class Watchdog:
    """Thread that waits for events, and kills the process if one does not happen in time."""

    def __init__(self, give_up: Callable[[str], None]) -> None:
        """Call ``give_up`` with the reason before killing the process."""
        self._give_up = give_up
        self._watched: list[_Watched] = []
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def watch(self, event: Event, seconds: float, what: str) -> None:
        """Expect ``event`` to happen within ``seconds``; ``what`` is the kernel that it follows."""
        self._watched.append(_Watched(event, time.monotonic() + seconds, what))
        if self._thread is None or self._pid != os.getpid():  # a forked child has no such thread
            self._pid = os.getpid()
            self._thread = threading.Thread(target=self._look, name="kprof-watchdog", daemon=True)
            self._thread.start()

    def _look(self) -> None:
        while True:
            # Looking at the first is enough: most events are of one stream, where they happen in order.
            first = self._watched[0] if self._watched else None
            if first is not None and _has_happened(first.event):
                self._watched.pop(0)
                continue
            if first is not None and time.monotonic() > first.until_s:
                self._end(first.what)
            time.sleep(1 / _LOOKS_PER_S)

    def _end(self, what: str) -> None:
        reason = f"{what} did not return, so kprof-inject killed its process"
        self._give_up(reason)
        say(reason)
        os.kill(os.getpid(), signal.SIGKILL)


def _has_happened(event: Event) -> bool:
    try:
        return event.query()
    except Exception:  # noqa: BLE001 (the error of a failed device, on which the kernel has ended)
        return True


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
    dumped: DumpedKernel
    watchdog: Watchdog
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
        shares = _shares(self.plan, included)
        judged_s = time.monotonic()
        for order in islice(rounds(len(included), self.dumped.variant), MAX_ROUNDS if included else 0):
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
        self.watchdog.watch(marks[-1][1], max(MIN_WATCH_S, _WATCH_MARGIN * expected_s), self.dumped.name)
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
        self.watchdog.watch(marks[-1][1], MIN_WATCH_S + _WATCH_MARGIN * 1e-9 * self._clean_ns, self.dumped.name)
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


def _shares(plan: DelaysRecord, included: Sequence[int]) -> list[tuple[int, int, float]]:
    """Return the ``delays`` of ``are_precise`` for some builds of a plan."""
    builds = [plan.builds[place] for place in included]
    return [(build.scope, build.delay_cycles, build.whole_share) for build in builds]


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
    pairs: list[DelayPairs] = field(init=False)
    clocks: list[float] = field(default_factory=list)
    _order: Iterator[int] = field(init=False)
    _begun_s: float = field(default_factory=time.monotonic)
    _marks: list[tuple[int | None, Event, Event]] = field(default_factory=list)
    _begun: tuple[int | None, Event] | None = None
    _ended: Ended | None = None

    def __post_init__(self) -> None:
        """Begin with the first round."""
        self.pairs = [DelayPairs() for _ in self.builds]
        self._order = self._launch_order()

    def _launch_order(self) -> Iterator[int]:
        """Yield the indices of the builds that take part, in the order in which to launch them."""
        included = [place for place, build in enumerate(self.builds) if build is not None]
        shares = _shares(self.plan, included)
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

    def finish(self) -> ExperimentTimes:
        """Return the times measured so far."""
        self._collect()
        return ExperimentTimes(self.pairs, self.clocks, 1, time.monotonic() - self._begun_s, self._ended or "program")


def _ns(start: Event, end: Event) -> float:
    return 1e6 * start.elapsed_time(end)
