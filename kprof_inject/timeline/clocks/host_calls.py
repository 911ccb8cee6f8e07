"""When the host made a launch, by the device's clock."""

from __future__ import annotations

from dataclasses import dataclass

from kprof_inject.capture.reader import Launch
from kprof_inject.timeline.clocks.host_clock import HostClock


@dataclass(frozen=True, slots=True)
class HostCall:
    """The host's call that made a launch, by the device's globaltimer: from just before it until it returned (None if
    that was not recorded). Against what the device did it may be off by ``error_ns``."""

    start_ns: int
    end_ns: int | None
    error_ns: int


def host_call(launch: Launch, relation: HostClock) -> HostCall | None:
    """The call of a launch whose device and host clocks stand to each other as ``relation`` says. None for one in a
    CUDA graph: the call that was captured did not make the replay, which may be minutes later."""
    if launch.graph:
        return None
    start_ns = _to_device_ns(relation, launch.host_ns)
    end_ns = None if launch.host_end_ns is None else _to_device_ns(relation, launch.host_end_ns)
    last_ns = start_ns if end_ns is None else end_ns
    return HostCall(start_ns, end_ns, relation.error_ns(start_ns, last_ns))


def _to_device_ns(relation: HostClock, host_ns: int) -> int:
    """The inverse of ``HostClock.to_host_ns``, to the nanosecond."""
    since_ns = host_ns - relation.offset_ns - relation.device_ns
    return relation.device_ns + since_ns - round(since_ns * (relation.drift / (1 + relation.drift)))
