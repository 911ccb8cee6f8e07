"""Time axes of a trace with launches of several processes and devices.

Launches of one device share its globaltimer. Devices of one host are placed on that host's clock, where it was read
next to each of them. Whole devices are placed, never single launches. Any other device keeps an axis of its own: its
times cannot be compared with the others'.

Both clocks are of quartz: over a program's time, one is nearly a linear function of the other. Each reading says that
the line passes through an interval. So the readings admit the set of all lines that pass through all intervals: a
polygon in the plane of offset and drift. Its corners bound the error everywhere, between the readings and beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from kprof_inject.capture.capture_files import ClockRecord
from kprof_inject.capture.model import Launch, place_names
from kprof_inject.timeline.columns import Numbers, Rows
from kprof_inject.timeline.timeline import Timeline

_MAX_DRIFT = 2e-4  # two quartz clocks, each within 100 ppm
_TIMER_STEP_NS = 32  # a timer that moves in steps (32 ns on an H200) shows a time that is up to a step old


class _Line(Struct, frozen=True):
    offset_ns: float
    drift: float

    def at(self, x_ns: float) -> float:
        return self.offset_ns + self.drift * x_ns


class HostClock(Struct, frozen=True):
    """Relation of one device to its host.

    At device time ``device_ns``, ``offset_ns`` must be added to get host time; it grows by ``drift`` with each
    nanosecond, 0 unless the readings prove a drift.

    ``contradicted`` is true if no line passes through all readings. The intervals were then widened until one did, and
    the error spans each reading, as any may be the true one.
    """

    device_ns: int
    offset_ns: int
    drift: float
    contradicted: bool
    _corners: tuple[_Line, ...]
    _furthest_reading_ns: float

    def to_host_ns(self, device_ns: Numbers) -> Numbers:
        """Convert device times to host times."""
        host_ns = device_ns + self.offset_ns
        if self.drift:
            host_ns += np.rint((device_ns - self.device_ns) * self.drift).astype(np.int64)
        return host_ns

    def error_ns(self, first_ns: int, last_ns: int) -> int:
        """Return the maximum error of ``to_host_ns``, at device times from ``first_ns`` to ``last_ns``."""
        # Two lines are furthest apart at one of the ends.
        ends = (first_ns - self.device_ns, last_ns - self.device_ns)
        furthest = max(abs(corner.at(x_ns) - self.drift * x_ns) for corner in self._corners for x_ns in ends)
        return math.ceil(furthest + self._furthest_reading_ns) + 1  # rounding to whole nanoseconds


def fit_host_clock(readings: Sequence[ClockRecord]) -> HostClock | None:
    """Fit the relation to readings of one device and one host clock; None if there are none."""
    if not readings:
        return None
    # Epoch nanoseconds do not fit a float: everything below is relative to the first reading.
    first = readings[0]
    common_ns = first.host_ns - first.device_ns
    # At ``x_ns``, the offset is ``offset_ns`` ± ``error_ns``.
    known_ns = [
        (one.device_ns - first.device_ns, one.host_ns - one.device_ns - common_ns, one.error_ns + _TIMER_STEP_NS)
        for one in readings
    ]
    widening = 1
    while True:
        bounds = [
            (x_ns, at_ns - widening * error_ns, at_ns + widening * error_ns) for x_ns, at_ns, error_ns in known_ns
        ]
        # The corners of the polygon of all lines between each time's lower and upper bound of the offset.
        (_, low, high), *rest = bounds
        corners = [_Line(low, -_MAX_DRIFT), _Line(high, -_MAX_DRIFT), _Line(high, _MAX_DRIFT), _Line(low, _MAX_DRIFT)]
        for x_ns, low, high in rest:
            corners = _cut(_cut(corners, x_ns, high, 1), x_ns, low, -1)
        if corners:
            break
        widening *= 2
    lowest = min(line.drift for line in corners)
    highest = max(line.drift for line in corners)
    drift = 0.0 if lowest <= 0 <= highest else (lowest + highest) / 2
    # The middle offset of the lines with this drift through all intervals.
    lowest_ns = max(low_ns - drift * x_ns for x_ns, low_ns, _ in bounds)
    highest_ns = min(high_ns - drift * x_ns for x_ns, _, high_ns in bounds)
    offset_ns = round((lowest_ns + highest_ns) / 2)
    distances_ns = (abs(at_ns - offset_ns - drift * x_ns) + error_ns for x_ns, at_ns, error_ns in known_ns)
    return HostClock(
        first.device_ns,
        common_ns + offset_ns,
        drift,
        widening > 1,
        tuple(_Line(line.offset_ns - offset_ns, line.drift) for line in corners),
        max(distances_ns) if widening > 1 else 0.0,
    )


def _cut(lines: list[_Line], x_ns: int, bound_ns: int, side: int) -> list[_Line]:
    """Return the part of the polygon whose lines, at ``x_ns``, are not above (``side`` 1) or below (-1) the bound."""
    kept = []
    for line, following in pairwise([*lines, *lines[:1]]):
        over, next_over = (side * (each.at(x_ns) - bound_ns) for each in (line, following))
        if over <= 0:
            kept.append(line)
        if over * next_over < 0:
            part = over / (over - next_over)
            kept.append(
                _Line(
                    line.offset_ns + part * (following.offset_ns - line.offset_ns),
                    line.drift + part * (following.drift - line.drift),
                )
            )
    return kept


class HostCall(Struct, frozen=True):
    """Host's call that made a launch, from just before it until it returned, by the device's globaltimer.

    Its times may be off by ``error_ns`` against the device's.
    """

    start_ns: int
    end_ns: int | None
    error_ns: int


def host_call(launch: Launch, relation: HostClock) -> HostCall | None:
    """Return the call of a launch, given the ``relation`` of its device to its host; None in a CUDA graph."""
    if launch.graph:
        return None  # the call that was captured did not make the replay, which may be minutes later
    start_ns = _to_device_ns(relation, launch.host_ns)
    end_ns = None if launch.host_end_ns is None else _to_device_ns(relation, launch.host_end_ns)
    last_ns = start_ns if end_ns is None else end_ns
    return HostCall(start_ns, end_ns, relation.error_ns(start_ns, last_ns))


def _to_device_ns(relation: HostClock, host_ns: int) -> int:
    """Convert a host time to a device time: the inverse of ``HostClock.to_host_ns``, to the nanosecond."""
    since_ns = host_ns - relation.offset_ns - relation.device_ns
    return relation.device_ns + since_ns - round(since_ns * (relation.drift / (1 + relation.drift)))


_GLOBALTIMER = "the device's own globaltimer"
_HOST_CLOCK = "the host's clock"
_CONTRADICTED = "the host's clock, whose readings contradict each other: the error was widened"
_NOT_READ = "not aligned: the host's clock was not read with it"
_ALONE_ON_HOST = "not aligned: no other device has readings of its host's clock"


class Axis(Struct, frozen=True):
    """Axis of launches whose times can be compared.

    ``zero_ns`` is when the first launch begins or is called, by the axis's clock. ``error_ns`` is the sum of the errors
    of any two ``devices``.
    """

    number: int
    devices: int
    zero_ns: int
    error_ns: int


class DeviceClock(Struct, frozen=True):
    """Conversion of one device's globaltimer to its axis; without a ``relation`` the axis has that very clock.

    ``error_ns`` bounds the error of the relation at any launch, ``alignment`` describes what was done.
    """

    axis: Axis
    relation: HostClock | None
    error_ns: int
    alignment: str

    def on_axis(self, device_ns: Numbers) -> Numbers:
        """Convert times of the device's globaltimer to nanoseconds from the axis's zero."""
        clock_ns = self.relation.to_host_ns(device_ns) if self.relation else device_ns
        return clock_ns - self.axis.zero_ns

    def ns_on_axis(self, device_ns: int) -> int:
        """Convert a single time as ``on_axis`` does."""
        return int(self.on_axis(np.array([device_ns], dtype=np.int64))[0])


class PlacedLaunch(Struct, frozen=True):
    """Launch with its clock; ``place_name`` has its process and device, and is empty if there is only one."""

    timeline: Timeline
    place_name: str
    clock: DeviceClock
    call: HostCall | None

    @property
    def title(self) -> str:
        """Name of the launch in drawings."""
        launch = self.timeline.launch
        replay = " (last replay of a CUDA graph)" if launch.graph else ""
        name = f"{launch.kernel.name} launch {launch.index}{replay}, grid {'x'.join(map(str, launch.grid))}"
        return f"{self.place_name}: {name}" if self.place_name else f"{name}, device {launch.device}"

    def span_ns(self) -> tuple[int, int] | None:
        """Return when the first CTA began and the last one ended, from the axis's zero; None if no CTA ran."""
        if not self.timeline.ctas.size:
            return None
        begin_ns, end_ns = span_of(self.timeline.ctas)
        return self.clock.ns_on_axis(begin_ns), self.clock.ns_on_axis(end_ns)


def span_of(ctas: Rows) -> tuple[int, int]:
    """Return when the first of these CTAs began and the last one ended, by the device's clock."""
    begin_ns = int(ctas["init_ns"].min())
    # A CTA that was stopped wrote no end.
    return begin_ns, max(int(ctas["post_final_ns"].max()), begin_ns)


def place_launches(timelines: Sequence[Timeline]) -> list[PlacedLaunch]:
    """Return the launches with their clocks; those of several places are sorted by host, rank, device and time."""
    names = place_names(timeline.launch.place for timeline in timelines)

    def order(timeline: Timeline) -> tuple[object, ...]:
        place, begins_ns = timeline.launch.place, timeline.ctas["init_ns"]
        begin_ns = int(begins_ns.min()) if begins_ns.size else 0
        return place.host, place.rank is None, place.rank or 0, place.pid, place.device, begin_ns

    ordered = sorted(timelines, key=order) if len(names) > 1 else timelines
    members: dict[Hashable, list[Timeline]] = {}
    for timeline in ordered:
        members.setdefault(_globaltimer(timeline), []).append(timeline)
    devices = {globaltimer: _device(own) for globaltimer, own in members.items()}
    clocks = _clocks_of(devices)
    placed = []
    for timeline in ordered:
        device, clock = devices[_globaltimer(timeline)], clocks[_globaltimer(timeline)]
        call = device.call_of(timeline.launch)
        placed.append(PlacedLaunch(timeline, names[timeline.launch.place], clock, call))
    return placed


class _Device(Struct, frozen=True):
    timelines: Sequence[Timeline]
    host: Hashable
    relation: HostClock | None

    def begins_ns(self) -> Iterator[int]:
        for timeline in self.timelines:
            if timeline.ctas.size:
                yield timeline.first_ns
            if call := self.call_of(timeline.launch):
                yield call.start_ns

    def error_ns(self) -> int:
        ran = [timeline for timeline in self.timelines if timeline.ctas.size]
        if self.relation is None or not ran:
            return 0
        return self.relation.error_ns(min(one.first_ns for one in ran), max(one.last_ns for one in ran))

    def call_of(self, launch: Launch) -> HostCall | None:
        return host_call(launch, self.relation) if self.relation and launch.process.host_clock == self.host else None


def _globaltimer(timeline: Timeline) -> Hashable:
    return timeline.launch.process.globaltimer(timeline.launch.device)


def _device(timelines: Sequence[Timeline]) -> _Device:
    """Combine the readings of all processes that share the device: each read the host's clock next to it."""
    readings: dict[Hashable, dict[ClockRecord, None]] = {}
    for timeline in timelines:
        process = timeline.launch.process
        of_device = [reading for reading in process.host_readings if reading.device == timeline.launch.device]
        readings.setdefault(process.host_clock, {}).update(dict.fromkeys(of_device))
    host = next((host for host, found in readings.items() if found), next(iter(readings)))
    return _Device(timelines, host, fit_host_clock(list(readings[host])))


def _clocks_of(devices: dict[Hashable, _Device]) -> dict[Hashable, DeviceClock]:
    axes: dict[Hashable, list[Hashable]] = {}
    for globaltimer, device in devices.items():
        axes.setdefault(device.host if device.relation else (globaltimer,), []).append(globaltimer)
    clocks: dict[Hashable, DeviceClock] = {}
    for number, members in enumerate(axes.values()):
        if len(members) == 1:
            device = devices[members[0]]
            why_not = _ALONE_ON_HOST if device.relation else _NOT_READ
            axis = Axis(number, 1, min(device.begins_ns(), default=0), 0)
            clocks[members[0]] = DeviceClock(axis, None, 0, _GLOBALTIMER if len(devices) == 1 else why_not)
            continue
        own = [devices[globaltimer] for globaltimer in members]
        errors_ns = [device.error_ns() for device in own]
        begins_ns = [
            device.relation.to_host_ns(np.array([*device.begins_ns()], np.int64)) for device in own if device.relation
        ]
        axis = Axis(number, len(own), min(np.concatenate(begins_ns).tolist(), default=0), sum(sorted(errors_ns)[-2:]))
        for globaltimer, device, error_ns in zip(members, own, errors_ns, strict=True):
            alignment = _CONTRADICTED if device.relation and device.relation.contradicted else _HOST_CLOCK
            clocks[globaltimer] = DeviceClock(axis, device.relation, error_ns, alignment)
    return clocks
