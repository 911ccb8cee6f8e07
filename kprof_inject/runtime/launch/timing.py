"""Time single launches with events, by the same method without records and with them.

That is in turn (``profile``), or in two runs (``dump`` and ``run``).

The stream is held until the host has queued both events and the launch between them. Otherwise a short kernel's time
would be the host's, which is longer while we capture.

A program that times itself with events would see the hold and our events in its own figures. So its launches are no
longer timed after it has recorded an event.

Between two events the device also reads the launch from its queue, sets up its SMs, and waits for all CTAs to end: 2 to
4 µs, depending on the kernel's threads and shared memory. An empty kernel with as many of both measures this overhead.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from types import ModuleType
from typing import Any

from kprof_inject.capture.resources import KernelResources, PairedTimesRecord
from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.imports import after_import
from kprof_inject.runtime.launch.triton_wrapping import is_benchmarking
from kprof_inject.runtime.process_events import let_through

_WARP_SIZE = 32
SAMPLES = 10  # empty launches timed; their median ignores the first one, which loads the kernel


@dataclass(frozen=True, slots=True)
class EmptyKernel:
    """An empty kernel of one CTA, with the threads and shared memory of another kernel's CTAs."""

    threads: int
    shared_bytes: int

    @classmethod
    def like(cls, metadata: Any) -> EmptyKernel:
        """Return the empty kernel for a compiled kernel's metadata, Triton's own or a capture's copy."""
        warp_size = metadata.target.warp_size if metadata.target else _WARP_SIZE
        return cls((metadata.num_warps or 1) * warp_size, metadata.shared or 0)

    def launch(self, device: Device, stream: int) -> None:
        """Launch the empty kernel on ``stream``."""
        device.launch_empty(stream, self.threads, self.shared_bytes)


MAX_COUNTED = 10_000
"""Launches of a kernel are counted up to this number: counting takes part of a microsecond of the host's time."""

# Launches not timed, because they load code and fill caches.
_WARM_UP = 3
_SAMPLES = 50
# The second launch of a program is of more interest than the first, which loads its code.
_BEFORE_TURNS = 2
_WARM_UP_PAIRS = 1
_MIN_PAIRS = 5
# Fewer pairs suffice if all of them show this excess, a part of the time: single launches scatter by a few per cent.
_FEW_PAIRS = 2
_LARGE_EXCESS = 0.15
# Usually enough time for the host to queue a launch and the event after it.
_HOLD_NS = 100_000
_MAX_HOLD_NS = 800_000

TIMES_ITSELF = "the program times its launches with its own CUDA events, which ours would disturb"
"""Reason for having no times, in words that follow *for*, as is ``_HOST_IS_SLOW``."""

_HOST_IS_SLOW = "the device began each launch before the host had queued the event after it"


class _ProgramsEvents:
    """State of the program's own timing: ``were_recorded`` is true once it has recorded an event with a time.

    An autotuner's events do not count, because the launches that it compares are not timed here.
    """

    were_recorded = False


programs_events = _ProgramsEvents()


def watch_programs_events() -> None:
    """Detect that the program times itself. Called once, right after the import of Triton."""
    after_import({"torch.cuda.streams": watch_events_of})


def watch_events_of(module: ModuleType) -> None:
    """Wrap the class of events in torch's module. Events that other libraries record are not detected."""
    event: Any = module.Event
    make, record = event.__new__, event.record
    # An event does not show whether it has a time, so the addresses of those that do are kept. They are not weak
    # references: torch does not clear those to its events, and Python then crashes at its end (seen with torch 2.11).
    with_time: set[int] = set()

    @functools.wraps(make)
    def make_and_note(cls: Any, enable_timing: bool = False, *args: Any, **kwargs: Any) -> Any:
        made = make(cls, enable_timing, *args, **kwargs)
        (with_time.add if enable_timing else with_time.discard)(id(made))
        return made

    @functools.wraps(record)
    def record_and_note(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not programs_events.were_recorded and id(self) in with_time and not is_benchmarking():
            programs_events.were_recorded = True
        return record(self, *args, **kwargs)

    event.__new__ = staticmethod(make_and_note)
    event.record = record_and_note


@dataclass(frozen=True, slots=True)
class Excess:
    """The part of its time by which a kernel takes longer with records, or CTAs that record than those that do not.

    It is negative if they take less time.
    """

    part: float
    of_ctas: bool

    def __str__(self) -> str:
        took = f"took {100 * abs(self.part):.0f} % {'longer' if self.part > 0 else 'less time'}"
        return f"CTAs that record {took} than the others" if self.of_ctas else f"it {took}"


@dataclass(frozen=True, slots=True)
class Turn:
    """Turn of a launch: its place among pairs of launches with the same grid, of which one has records."""

    grid: Grid
    pair: int
    has_records: bool
    timer: TurnTimer = field(compare=False)  # the timer that gave the turn: the kernel may have another one now


_Timed = tuple[Event, Event, Turn | None]  # events around a launch, and its turn if it had one


class LaunchTimer:
    """Timer of some launches of one kernel: not the first ones, and none in a graph or an autotuner's benchmark.

    It stops if the device fails or the program times itself. After each of the first timed launches, it times the
    ``empty`` kernel in the same way.
    """

    def __init__(self, device: Device, empty: EmptyKernel, warm_up: int = _WARM_UP) -> None:
        self._warm_up = warm_up
        self._device = device
        self._empty = empty
        self._empty_events: list[_Timed] = []
        self.launches = 0  # number of launches counted, at most ``MAX_COUNTED``
        self._hold_ns = _HOLD_NS
        self._events: list[_Timed] = []
        self._times_itself = False
        self._is_stopped = False

    @property
    def not_timed(self) -> str:
        """Reason why launches were not timed that should have been; empty if there is none."""
        if self._times_itself:
            return TIMES_ITSELF
        return _HOST_IS_SLOW if self._hold_ns > _HOLD_NS and not self._events else ""

    @property
    def is_done(self) -> bool:
        """True once there are enough samples; later launches need no timer."""
        return self._is_stopped or self.launches >= self._warm_up + _SAMPLES

    def count(self) -> bool:
        """Count a launch that needs no timer; return whether enough launches were counted."""
        self.launches += 1
        return self.launches >= MAX_COUNTED

    def begin(self, stream: int) -> Event | None:
        """Begin to time a launch that is about to be made; return the event for ``end``, or None not to time it."""
        if programs_events.were_recorded:
            self._times_itself = self._is_stopped = True
        is_timed = not self.is_done and self.launches >= self._warm_up
        self.launches += 1
        return self._hold_and_mark(stream) if is_timed else None

    def _hold_and_mark(self, stream: int) -> Event | None:
        try:
            if self._device.is_capturing():
                return None
            self._device.hold(stream, self._hold_ns)
            return self._device.timing_mark(stream)
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            self._stop_for(error)
            return None

    def end(self, start: Event, stream: int, turn: Turn | None = None) -> None:
        """End the timing of a launch that is queued; ``start`` is the event that ``begin`` returned."""
        try:
            self._add(self._events, start, stream, turn)
            if len(self._empty_events) >= SAMPLES:
                return
            begin = self._hold_and_mark(stream)
            if begin is not None:
                self._empty.launch(self._device, stream)
                self._add(self._empty_events, begin, stream, None)
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            self._stop_for(error)

    def _add(self, events: list[_Timed], start: Event, stream: int, turn: Turn | None) -> None:
        """Keep the two events unless the device has passed ``start`` already: it may have waited for the host."""
        end = self._device.timing_mark(stream)
        if start.query():
            self._hold_ns = min(2 * self._hold_ns, _MAX_HOLD_NS)
        else:
            events.append((start, end, turn))

    def _stop_for(self, error: Exception) -> None:
        let_through(error)
        self._is_stopped = True

    def times_ns(self) -> list[float]:
        """Return the times of the timed launches that have ended."""
        return [time_ns for time_ns, _ in _times_ns(self._events)]

    def resources(self, **known: Any) -> KernelResources:
        """Return these times of a kernel, with what is ``known`` of it."""
        not_timed, empty_ns = self.not_timed or None, self.empty_ns()
        return KernelResources(**known, times_ns=tuple(self.times_ns()), not_timed=not_timed, empty_launch_ns=empty_ns)

    def times_by_turn(self) -> dict[Turn, float]:
        """Return the times of the timed launches that had a turn and have ended."""
        return {turn: time_ns for time_ns, turn in _times_ns(self._events) if turn is not None}

    def empty_ns(self) -> float | None:
        """Return the median time of the empty kernel; None if it was not timed."""
        times_ns = [time_ns for time_ns, _ in _times_ns(self._empty_events)]
        return median(times_ns) if times_ns else None


def _times_ns(events: Sequence[_Timed]) -> list[tuple[float, Turn | None]]:
    return [(1e6 * start.elapsed_time(end), turn) for start, end, turn in events if end.query()]


class TurnTimer:
    """Timer of launches of one kernel, without records and with them in turn.

    Of two successive launches with the same grid, one has records. Which one is random: a program may alternate, too.
    The first launches with a grid all have records, because there may be no more. ``clean`` is like the kernel without
    records.
    """

    def __init__(self, device: Device, clean: EmptyKernel) -> None:
        self.clean = LaunchTimer(device, clean, _WARM_UP_PAIRS)
        self._device = device
        self._with_records: LaunchTimer | None = None
        self._launches: dict[Grid, Iterator[int]] = {}
        self._calls = 0
        self._look_at = _calls_for(_FEW_PAIRS)
        """Number of calls after which ``excess`` looks at the times. The device may lag the host by many launches."""

    def with_records(self, empty: EmptyKernel) -> LaunchTimer:
        """Return the timer of the launches with records; ``empty`` is like the build that is launched first."""
        if self._with_records is None:
            self._with_records = LaunchTimer(self._device, empty, _WARM_UP_PAIRS)
        return self._with_records

    def turn(self, grid: Grid) -> Turn | None:
        """Return the turn of a launch that is about to be made; None if it has records and no turn."""
        is_done = self.clean.is_done and (self._with_records is None or self._with_records.is_done)
        if is_done or self._device.is_capturing():
            return None
        launches = self._launches.get(grid) or self._launches.setdefault(grid, count())
        number = next(launches) - _BEFORE_TURNS
        if number < 0:
            return None
        pair, place = divmod(number, 2)
        # It looks random: the highest bit of a multiplicative hash (Knuth, TAOCP 3, 6.4).
        return Turn(grid, pair, place == (pair * 0x9E3779B1 >> 31) & 1, self)

    def excess(self) -> float | None:
        """Return by which part of its time the kernel takes longer with records, once that is known; otherwise None.

        Called at each launch, it looks at the times only now and then.
        """
        self._calls += 1
        if self._calls <= self._look_at:
            return None
        self._look_at = max(self._look_at + self._look_at // 2, _calls_for(_MIN_PAIRS))
        ratios = _ratios(self.times(None))
        if not ratios:
            return None
        self._look_at = sys.maxsize
        return median(ratios) - 1

    def times(self, grids: Collection[Grid] | None) -> PairedTimesRecord:
        """Return the times of the pairs with these grids (None: any) of which both launches were timed."""
        with_records = self._with_records
        recorded_ns = with_records.times_by_turn() if with_records is not None else {}
        partners = {(turn.grid, turn.pair): time_ns for turn, time_ns in recorded_ns.items()}
        pairs = [
            (time_ns, partners[turn.grid, turn.pair])
            for turn, time_ns in self.clean.times_by_turn().items()
            if (grids is None or turn.grid in grids) and (turn.grid, turn.pair) in partners
        ]
        return PairedTimesRecord(
            clean_ns=tuple(clean_ns for clean_ns, _ in pairs),
            with_records_ns=tuple(recorded_ns for _, recorded_ns in pairs),
            clean_empty_ns=self.clean.empty_ns(),
            with_records_empty_ns=with_records.empty_ns() if with_records is not None else None,
        )

    def clean_by_grid(self) -> dict[Grid, list[float]]:
        """Return the times of the launches without records, by grid."""
        found: dict[Grid, list[float]] = {}
        for turn, time_ns in self.clean.times_by_turn().items():
            found.setdefault(turn.grid, []).append(time_ns)
        return found


def _ratios(times: PairedTimesRecord) -> list[float]:
    pairs = list(zip(times.clean_ns, times.with_records_ns, strict=True))
    if len(pairs) < _MIN_PAIRS:
        # The first empty launches are slower, so a launch's overhead is not yet known.
        ratios = [ns / clean_ns for clean_ns, ns in pairs]
        return ratios if len(ratios) >= _FEW_PAIRS and min(ratios) > 1 + _LARGE_EXCESS else []
    clean_empty, empty = times.clean_empty_ns or 0.0, times.with_records_empty_ns or 0.0
    ratios = [(ns - empty) / (clean_ns - clean_empty) for clean_ns, ns in pairs if clean_ns > clean_empty]
    return ratios if len(ratios) >= _MIN_PAIRS else []


def _calls_for(pairs: int) -> int:
    return _BEFORE_TURNS + 2 * (_WARM_UP_PAIRS + pairs)
