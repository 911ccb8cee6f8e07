"""When the host made the launches: the calls of one process of the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kprof_inject.capture.origin import Origin
from kprof_inject.export.drawing.scene import Arg, Arrows, Events, Kind, Numbers, Part, Threads
from kprof_inject.timeline.clocks.axis import PlacedLaunch
from kprof_inject.timeline.clocks.host_calls import HostCall

_NO_END = "when the call returned was not recorded"


@dataclass(frozen=True, slots=True)
class Call:
    """A host's call that made a launch, and the id of the arrow from it to the launch (0: none)."""

    placed: PlacedLaunch
    call: HostCall
    arrow: int


def host_process_name(origin: Origin, *, of_several_hosts: bool) -> str:
    rank = "" if origin.rank is None else f"rank {origin.rank}, "
    return f"{rank}host process {origin.pid}" + (f" of {origin.host}" if of_several_hosts else "")


@dataclass(frozen=True, slots=True)
class HostLaunches:
    """The calls of one process, and the columns of them: when each began and ended, by its axis, and on which thread it
    stands. More than one only if calls overlap, as its own threads may make them."""

    calls: Sequence[Call]
    start_ns: Numbers
    end_ns: Numbers
    thread: Numbers

    @classmethod
    def of(cls, calls: Sequence[Call]) -> HostLaunches:
        start_ns = np.array([each.placed.clock.ns_on_axis(each.call.start_ns) for each in calls], dtype=np.int64)
        end_ns = np.array([each.placed.clock.ns_on_axis(_end_ns(each.call)) for each in calls], dtype=np.int64)
        # An arrow needs something to leave from.
        end_ns = np.maximum(end_ns, start_ns + 1)
        return cls(calls, start_ns, end_ns, _free_threads(start_ns, end_ns))

    @property
    def threads(self) -> int:
        return int(self.thread.max()) + 1

    def parts(self, pid: int, first_tid: int) -> Iterator[Part]:
        """In order of time, on each thread."""
        numbers = np.arange(self.threads)
        yield Threads(pid, first_tid + numbers[:1], numbers[:1], ("launches",))
        if numbers.size > 1:
            yield Threads(pid, first_tid + numbers[1:], numbers[1:], ("launches at the same time (", numbers[1:], ")"))
        order = np.lexsort((self.start_ns, self.thread))
        ordered = [self.calls[at] for at in order.tolist()]
        rows = np.arange(len(ordered))
        start_ns, thread = self.start_ns[order], self.thread[order]
        yield Events(
            pid,
            first_tid + thread,
            [_kind(each) for each in ordered],
            rows,
            start_ns,
            self.end_ns[order],
            group=thread,
            start_order=2 * rows,
            end_order=2 * rows + 1,
            args=(Arg("error_ns", np.array([each.call.error_ns for each in ordered], dtype=np.int64)),),
            arrows=Arrows(np.array([each.arrow for each in ordered], dtype=np.int64), arrive=False, at_ns=start_ns),
        )


def _end_ns(call: HostCall) -> int:
    return call.start_ns if call.end_ns is None else call.end_ns


def _free_threads(start_ns: Numbers, end_ns: Numbers) -> Numbers:
    """For each span, by the time of its start, the first thread that is free then."""
    thread = np.zeros(len(start_ns), dtype=np.int64)
    free_ns: list[int] = []
    for at in np.argsort(start_ns, kind="stable").tolist():
        chosen = next((number for number, free in enumerate(free_ns) if free <= start_ns[at]), len(free_ns))
        free_ns[chosen : chosen + 1] = [int(end_ns[at])]
        thread[at] = chosen
    return thread


def _kind(call: Call) -> Kind:
    return Kind(call.placed.timeline.launch.kernel.name, "host", tuple(_args(call)))


def _args(call: Call) -> Iterator[tuple[str, str | int]]:
    launch = call.placed.timeline.launch
    yield "variant", launch.kernel.variant
    yield "launch", launch.index
    yield "device", launch.device
    yield "stream", launch.stream
    if call.call.end_ns is None:
        yield "end", _NO_END
