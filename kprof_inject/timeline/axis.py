"""Time axes of a trace with launches of several processes and devices.

Launches of one device share its globaltimer. Devices of one host are placed on that host's clock, where it was read
next to each of them. Whole devices are placed, never single launches. Any other device keeps an axis of its own: its
times cannot be compared with the others'.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.model import Launch, place_names
from kprof_inject.capture.schema import ClockRecord
from kprof_inject.timeline.host_clock import HostCall, HostClock, fit_host_clock, host_call
from kprof_inject.timeline.timeline import Timeline

_GLOBALTIMER = "the device's own globaltimer"
_HOST_CLOCK = "the host's clock"
_CONTRADICTED = "the host's clock, whose readings contradict each other: the error was widened"
_NOT_READ = "not aligned: the host's clock was not read with it"
_ALONE_ON_HOST = "not aligned: no other device has readings of its host's clock"


class Axis(Struct, frozen=True):
    """Axis of launches whose times can be compared.

    ``zero_ns`` is when the first launch begins or is called, by the axis's clock. Launches of two ``devices`` may be
    off against each other by ``error_ns``: the sum of both devices' errors.
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

    def on_axis(self, device_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert times of the device's globaltimer to nanoseconds from the axis's zero."""
        return _to_ns(self.relation, device_ns) - self.axis.zero_ns

    def ns_on_axis(self, device_ns: int) -> int:
        """Convert a single time as ``on_axis`` does."""
        return int(self.on_axis(np.array([device_ns], dtype=np.int64))[0])


class PlacedLaunch(Struct, frozen=True):
    """Launch with its clock.

    ``place_name`` has its process and device, and is empty if there is only one. ``call`` is the host's call that made
    it; None if the host's clock was not read next to the device.
    """

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
        ctas = self.timeline.ctas
        if not ctas.size:
            return None
        begin_ns = int(ctas["init_ns"].min())
        # A CTA that was stopped wrote no end.
        end_ns = max(int(ctas["post_final_ns"].max()), begin_ns)
        return self.clock.ns_on_axis(begin_ns), self.clock.ns_on_axis(end_ns)


def place_launches(timelines: Sequence[Timeline]) -> list[PlacedLaunch]:
    """Return the launches with their clocks.

    They stay in the given order if all are of one process and device; otherwise they are sorted by host, rank, device
    and device time.
    """
    names = place_names(timeline.launch.place for timeline in timelines)
    ordered = sorted(timelines, key=_order) if len(names) > 1 else timelines
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
    """Globaltimer with its launches, its host, and its relation to the host's clock, if known."""

    timelines: Sequence[Timeline]
    host: Hashable
    relation: HostClock | None

    def first_ns(self) -> int | None:
        """Return when the first launch begins; None if no CTA ran."""
        return min((timeline.first_ns for timeline in self.timelines if timeline.ctas.size), default=None)

    def last_ns(self) -> int | None:
        return max((timeline.last_ns for timeline in self.timelines if timeline.ctas.size), default=None)

    def begins_ns(self) -> Iterator[int]:
        """Yield when the first launch begins, and when the host called each launch, if that is known."""
        first_ns = self.first_ns()
        if first_ns is not None:
            yield first_ns
        for timeline in self.timelines:
            if call := self.call_of(timeline.launch):
                yield call.start_ns

    def call_of(self, launch: Launch) -> HostCall | None:
        """Return the host's call that made the launch, by the device's globaltimer."""
        return host_call(launch, self.relation) if self.relation and launch.origin.host_clock == self.host else None


def _order(timeline: Timeline) -> tuple[object, ...]:
    place = timeline.launch.place
    begins_ns = timeline.ctas["init_ns"]
    begin_ns = int(begins_ns.min()) if begins_ns.size else 0
    return place.host, place.rank is None, place.rank or 0, place.pid, place.device, begin_ns


def _globaltimer(timeline: Timeline) -> Hashable:
    return timeline.launch.origin.globaltimer(timeline.launch.device)


def _device(timelines: Sequence[Timeline]) -> _Device:
    """Combine the readings of all processes that share the device: each read the host's clock next to it."""
    readings: dict[Hashable, dict[ClockRecord, None]] = {}
    for timeline in timelines:
        origin = timeline.launch.origin
        of_device = [reading for reading in origin.host_readings if reading.device == timeline.launch.device]
        readings.setdefault(origin.host_clock, {}).update(dict.fromkeys(of_device))
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
        else:
            clocks |= _host_clocks({globaltimer: devices[globaltimer] for globaltimer in members}, number)
    return clocks


def _host_clocks(devices: dict[Hashable, _Device], number: int) -> dict[Hashable, DeviceClock]:
    """Return the clocks of several devices that share the axis of their host's clock."""
    errors_ns = {globaltimer: _error_ns(device) for globaltimer, device in devices.items()}
    begins_ns = [_to_ns(device.relation, np.array([*device.begins_ns()], np.int64)) for device in devices.values()]
    zero_ns = min(np.concatenate(begins_ns).tolist(), default=0)
    axis = Axis(number, len(devices), zero_ns, sum(sorted(errors_ns.values())[-2:]))
    return {
        globaltimer: DeviceClock(axis, device.relation, errors_ns[globaltimer], _alignment(device.relation))
        for globaltimer, device in devices.items()
    }


def _alignment(relation: HostClock | None) -> str:
    return _CONTRADICTED if relation and relation.contradicted else _HOST_CLOCK


def _error_ns(device: _Device) -> int:
    """Return the maximum error of the host's clock at the device's launches."""
    first_ns, last_ns = device.first_ns(), device.last_ns()
    if device.relation is None or first_ns is None or last_ns is None:
        return 0
    return device.relation.error_ns(first_ns, last_ns)


def _to_ns(relation: HostClock | None, device_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    return relation.to_host_ns(device_ns) if relation else device_ns
