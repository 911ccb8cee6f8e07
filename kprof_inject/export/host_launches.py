"""When the host made the launches: a process for each of the program's, with its calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kprof_inject.capture.origin import Origin
from kprof_inject.export.scene import Arrows, Events, Kind, Part, Process, Threads
from kprof_inject.timeline.axis import PlacedLaunch
from kprof_inject.timeline.host_calls import HostCall

_END_UNKNOWN = "when the call returned was not recorded"
_GRAPH = "captured into a CUDA graph by this call; the kernel ran when the graph was replayed"


@dataclass(frozen=True, slots=True)
class Call:
    """A host's call that made a launch, and the number of the arrow from one to the other (0: none)."""

    placed: PlacedLaunch
    call: HostCall
    arrow: int

    @property
    def start_ns(self) -> int:
        """On the axis, as ``end_ns``."""
        return int(self.placed.clock.on_axis(np.array([self.call.start_ns]))[0])

    @property
    def end_ns(self) -> int:
        """At least 1 ns after the start, so that an arrow has something to leave from."""
        if self.call.end_ns is None:
            return self.start_ns + 1
        return max(int(self.placed.clock.on_axis(np.array([self.call.end_ns]))[0]), self.start_ns + 1)


def host_launches(calls: Sequence[Call], pid: int, first_tid: int, *, several_hosts: bool) -> Iterator[Part]:
    """The process of calls that one process made."""
    yield Process(pid, _process_name(calls[0].placed.timeline.launch.origin, several_hosts))
