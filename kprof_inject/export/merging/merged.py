"""Writes a trace of ``torch.profiler`` with our launches in it.

The first trace is kept byte for byte, with our events behind its own and a key beside them. A launch is a process that
stands where its GPU does. It and its scopes have the ``correlation`` of their kernel, and an arrow leads to it from the
kernel's bar. Several traces become one, whose times count from the first's base.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import count, pairwise
from typing import Any

from kprof_inject.export.chrome import events_in
from kprof_inject.export.drawing.draw import DrawnProcess, launch_processes, sections
from kprof_inject.export.drawing.hooked import LaunchHooks
from kprof_inject.export.drawing.launch_events import launch_facts
from kprof_inject.export.drawing.scene import Arrow
from kprof_inject.export.drawing.tracks import BY_SM, TrackLayout
from kprof_inject.export.hooks import Hook
from kprof_inject.export.merging.launch_matching import LaunchMatch
from kprof_inject.export.merging.torch_trace import (
    ARROW_IDS,
    OURS,
    Bar,
    TorchTrace,
    member_spans,
    nanoseconds,
    packed_text,
)
from kprof_inject.export.text_rows import json_text
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.axis import Axis, DeviceClock, PlacedLaunch
from kprof_inject.timeline.host_clock import HostClock
from kprof_inject.timeline.timeline import Timeline

_CHUNK_EVENTS = 4096


@dataclass(frozen=True, slots=True)
class Renumbering:
    """``pids`` has the new name of each process that needs one, ``ids_from`` is what to add to the number of an arrow,
    ``later_ns`` to a time. ``mark`` is put behind an arrow's id that is text."""

    pids: Mapping[int | str, int | str]
    ids_from: int
    later_ns: int
    mark: str


def renumbered_events(trace: TorchTrace, numbers: Renumbering) -> Iterator[bytes]:
    """Yield all events of another trace, each with a comma before it, in chunks.

    Traces number their processes and arrows as they like: each GPU is process 0 to its own rank. Only these numbers are
    changed, and times where the two count from different bases; all else keeps its text.
    """
    chunk: list[str] = []
    for begin, end, event in trace.events():
        chunk.append(",\n" + _renumbered(trace.text[begin:end], event, numbers))
        if len(chunk) == _CHUNK_EVENTS:
            yield packed_text("".join(chunk))
            chunk.clear()
    yield packed_text("".join(chunk))


def _renumbered(text: str, event: Mapping[str, object], numbers: Renumbering) -> str:
    changes = dict(_changes(event, numbers))
    if not changes:
        return text
    parts, at = [], 0
    for name, begin, end in member_spans(text):
        if name in changes:
            parts += [text[at:begin], changes[name]]
            at = end
    return "".join([*parts, text[at:]])


def _changes(event: Mapping[str, object], numbers: Renumbering) -> Iterator[tuple[str, str]]:
    pid = event.get("pid")
    if isinstance(pid, int | str) and pid in numbers.pids:
        yield "pid", json.dumps(numbers.pids[pid])
    for name in ARROW_IDS:
        number = event.get(name)
        if isinstance(number, int):
            yield name, str(number + numbers.ids_from)
        elif isinstance(number, str):
            yield name, json.dumps(number + numbers.mark)
    at_ns = nanoseconds(event.get("ts"))
    if numbers.later_ns and at_ns is not None:
        yield "ts", f"{Decimal(at_ns + numbers.later_ns) / 1000:.3f}"


# Beyond the ids of Linux (``/proc/sys/kernel/pid_max`` is 2^22 at most), so that ours look like no process.
_FIRST_ID = 1 << 23
_ALIGNMENT = "the trace that it was merged into"
_CHUNK_CHARACTERS = 1 << 22


@dataclass(frozen=True, slots=True)
class MatchedLaunch:
    """A launch and its bar. ``clock`` takes its device's clock to its trace's, ``error_ns`` is how far that is off;
    ``place_name`` says of which process and device it is, empty where there is only one."""

    timeline: Timeline
    place_name: str
    bar: Bar
    match: LaunchMatch
    clock: HostClock
    error_ns: int


@dataclass(frozen=True, slots=True)
class TracePart:
    """A trace, and the launches that are in it."""

    trace: TorchTrace
    launches: Sequence[MatchedLaunch]


def merged_trace(
    parts: Sequence[TracePart],
    facts: dict[str, Any],
    layout: TrackLayout = BY_SM,
    run: JobRunner = in_turn,
    hooks: Sequence[Hook] = (),
) -> Iterator[bytes]:
    """The file's bytes, in chunks. ``facts`` is what to say of the merging as a whole."""
    first = parts[0].trace
    numbers = _Numbers.of([part.trace for part in parts])
    placed = list(_placed(parts, numbers))
    drawn = [each.processes(layout, hooks) for each in placed]
    ids = sum(process.ids for processes in drawn for process in processes)
    ours = sections(drawn, _first_free(numbers.taken, ids))
    yield from _chunks(first.text, 0, first.events_end)
    for part, renumbering in zip(parts[1:], numbers.others, strict=True):
        yield from renumbered_events(part.trace, renumbering)
    if len(parts) > 1:
        yield from _names_of_ranks(parts, numbers)
    for each in placed:
        yield each.departure()
    yield from run([partial(events_in, section) for section in ours])
    bracket = first.text.index("]", first.events_end) + 1
    yield packed_text(first.text[first.events_end : bracket])
    yield b',\n"%b":%b' % (OURS.encode(), json_text(facts | {"launches": [each.facts() for each in placed]}))
    yield from _chunks(first.text, bracket, len(first.text))


@dataclass(frozen=True, slots=True)
class _PlacedEvent:
    """A launch as it is drawn: its bar's process as it is called in the merged trace, where that stands, and the arrow
    from there."""

    launch: MatchedLaunch
    zero_ns: int
    pid: int | str
    position: int | None
    arrow: Arrow

    @property
    def _placed(self) -> PlacedLaunch:
        error_ns = self.launch.error_ns
        clock = DeviceClock(Axis(0, 1, self.zero_ns, error_ns), self.launch.clock, error_ns, _ALIGNMENT)
        return PlacedLaunch(self.launch.timeline, self.launch.place_name, clock, None)

    def processes(self, layout: TrackLayout, hooks: Sequence[Hook]) -> list[DrawnProcess]:
        correlation = self.launch.bar.correlation
        told = () if correlation is None else (("correlation", correlation),)
        own = LaunchHooks(hooks, self.arrow.id)
        return list(launch_processes(self._placed, layout, self.arrow, told, self.position, hooks=own))

    def departure(self) -> bytes:
        """Where the arrow leaves: at the bar's begin."""
        place = b'"pid":%b,"tid":%b' % (json_text(self.pid), json_text(self.launch.bar.tid))
        microseconds = b"%d.%03d" % divmod(self.arrow.leaves_ns, 1000)
        return b',\n{"ph":"s","cat":"arrow","name":"launch","id":%d,%b,"ts":%b}' % (self.arrow.id, place, microseconds)

    def facts(self) -> dict[str, Any]:
        return launch_facts(self._placed) | {
            "device": self.launch.timeline.launch.device,
            "correlation": self.launch.bar.correlation,
            "matched": self.launch.match.reason,
            "outside_ns": self.launch.match.outside_ns,
            "error_ns": self.launch.error_ns,
        }


def _placed(parts: Sequence[TracePart], numbers: _Numbers) -> Iterator[_PlacedEvent]:
    zero_ns = parts[0].trace.base_ns
    arrows = count(1)
    for number, part in enumerate(parts):
        for launch in part.launches:
            position = part.trace.sort_indices.get(launch.bar.pid)
            arrow = Arrow(next(arrows), launch.bar.span.start_ns - zero_ns)
            yield _PlacedEvent(launch, zero_ns, numbers.pid(number, launch.bar.pid), position, arrow)


def _chunks(text: str, begin: int, end: int) -> Iterator[bytes]:
    for at, following in pairwise([*range(begin, end, _CHUNK_CHARACTERS), end]):
        yield packed_text(text[at:following])


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What is renumbered of each trace but the first, and all numbers that processes and threads have then."""

    others: Sequence[Renumbering]
    taken: frozenset[int]

    @classmethod
    def of(cls, traces: Sequence[TorchTrace]) -> _Numbers:
        pids, taken = set(traces[0].pids), set(traces[0].ids)
        ids_from = traces[0].highest_arrow
        others = []
        for trace in traces[1:]:
            taken |= trace.ids
            renamed: dict[int | str, int | str] = {}
            for pid in sorted(trace.pids & pids, key=str):
                new = f"{pid} ({trace.who})" if isinstance(pid, str) else _first_free(taken, 1)
                renamed[pid] = new
                taken |= {new} if isinstance(new, int) else set()
            pids |= {renamed.get(pid, pid) for pid in trace.pids}
            others.append(Renumbering(renamed, ids_from, trace.base_ns - traces[0].base_ns, f" ({trace.who})"))
            ids_from += trace.highest_arrow
        return cls(others, frozenset(taken))

    def pid(self, part: int, pid: int | str) -> int | str:
        """What a process of that trace is called in the merged one."""
        return self.others[part - 1].pids.get(pid, pid) if part else pid


def _first_free(taken: frozenset[int] | set[int], count: int) -> int:
    """The first of so many numbers in a row of which none is taken."""
    first = _FIRST_ID
    for number in sorted(number for number in taken if number >= first):
        if number >= first + count:
            break
        first = number + 1
    return first


def _names_of_ranks(parts: Sequence[TracePart], numbers: _Numbers) -> Iterator[bytes]:
    """Events that name each process with its rank: two ranks call theirs the same. Perfetto goes by the name that comes
    last in time, so they have one at which all have theirs."""
    at_ns = max(part.trace.bars[0].span.start_ns for part in parts) - parts[0].trace.base_ns
    for number, part in enumerate(parts):
        for pid, name in part.trace.process_names.items():
            event = {
                "ph": "M",
                "name": "process_name",
                "pid": numbers.pid(number, pid),
                "ts": at_ns // 1000,
                "args": {"name": f"{part.trace.who}: {name}"},
            }
            yield b",\n" + json_text(event)
