"""Writer of a trace of ``torch.profiler`` with our launches in it.

The bytes of the first trace are kept. Our events follow its own, and a summary follows the events. A launch is a
process next to its GPU. The launch and its scopes have the ``correlation`` of their kernel. An arrow leads from the
kernel's bar to the launch, others from changes of flags to the waits that they ended. Several traces become one, whose
times count from the base of the first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import count, pairwise
from typing import Any

from msgspec import Struct

from kprof_inject.export.chrome import events_in
from kprof_inject.export.drawing.draw import DrawnProcess, launch_processes, sections
from kprof_inject.export.drawing.flag_arrows import NO_FLAGS, FlagArrows, flag_arrows
from kprof_inject.export.drawing.hook_parts import LaunchHooks
from kprof_inject.export.drawing.launch_events import launch_facts
from kprof_inject.export.drawing.scene import Arrow
from kprof_inject.export.drawing.tracks import TrackLayout, by_sm
from kprof_inject.export.hooks import Hook
from kprof_inject.export.launch_matching import LaunchMatch
from kprof_inject.export.text_rows import json_text
from kprof_inject.export.torch_trace import (
    ARROW_IDS,
    SUMMARY_KEY,
    Bar,
    TorchTrace,
    member_spans,
    nanoseconds,
    packed_text,
)
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.axis import Axis, DeviceClock, PlacedLaunch, place_launches
from kprof_inject.timeline.host_clock import HostClock
from kprof_inject.timeline.timeline import Timeline

_CHUNK_EVENTS = 4096


class Renumbering(Struct, frozen=True):
    """New numbers and times for the events of a trace.

    ``pids`` has the new ID of each process that needs one. ``id_offset`` is added to the numeric ID of an arrow, and
    ``id_suffix`` is appended to one that is text. ``offset_ns`` is added to times.
    """

    pids: Mapping[int | str, int | str]
    id_offset: int
    offset_ns: int
    id_suffix: str


def renumbered_events(trace: TorchTrace, numbers: Renumbering) -> Iterator[bytes]:
    """Yield all events of another trace, each with a comma before it, in chunks.

    Traces number processes and arrows independently: in the trace of each rank, its own GPU is process 0. Only these
    numbers change, and times if the traces have different bases; all else keeps its text.
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
            yield name, str(number + numbers.id_offset)
        elif isinstance(number, str):
            yield name, json.dumps(number + numbers.id_suffix)
    at_ns = nanoseconds(event.get("ts"))
    if numbers.offset_ns and at_ns is not None:
        yield "ts", f"{Decimal(at_ns + numbers.offset_ns) / 1000:.3f}"


# Above Linux's process IDs (``/proc/sys/kernel/pid_max`` is at most 2^22), so that ours equal none of them.
_FIRST_ID = 1 << 23
_ALIGNMENT = "the trace that it was merged into"
_CHUNK_CHARACTERS = 1 << 22


class MatchedLaunch(Struct, frozen=True):
    """A launch and its bar.

    ``clock`` converts the times of the launch's device to those of its trace, with an error of at most ``error_ns``.
    ``place_name`` names the process and device of the launch; it is empty if there is only one place.
    """

    timeline: Timeline
    place_name: str
    bar: Bar
    match: LaunchMatch
    clock: HostClock
    error_ns: int


class TracePart(Struct, frozen=True):
    """A trace, and the launches that were matched to it."""

    trace: TorchTrace
    launches: Sequence[MatchedLaunch]


def merged_trace(
    parts: Sequence[TracePart],
    facts: dict[str, Any],
    layout: TrackLayout = by_sm,
    run: JobRunner = in_turn,
    hooks: Sequence[Hook] = (),
) -> Iterator[bytes]:
    """Yield the bytes of the merged file, in chunks.

    ``facts`` are the summary's facts about the whole merge; those of each launch are added to them.
    """
    first = parts[0].trace
    numbers = _Numbers.of([part.trace for part in parts])
    placed = list(_placed(parts, numbers))
    flags = _flags(placed)
    drawn = [each.processes(layout, hooks, flags.get(id(each), NO_FLAGS)) for each in placed]
    ids = sum(process.ids for processes in drawn for process in processes)
    ours = sections(drawn, _first_free(numbers.used_ids, ids))
    yield from _chunks(first.text, 0, first.events_end)
    for part, renumbering in zip(parts[1:], numbers.renumberings, strict=True):
        yield from renumbered_events(part.trace, renumbering)
    if len(parts) > 1:
        yield from _rank_names(parts, numbers)
    for each in placed:
        yield each.arrow_start()
    yield from run([partial(events_in, section) for section in ours])
    bracket = first.text.index("]", first.events_end) + 1
    yield packed_text(first.text[first.events_end : bracket])
    yield b',\n"%b":%b' % (SUMMARY_KEY.encode(), json_text(facts | {"launches": [each.facts() for each in placed]}))
    yield from _chunks(first.text, bracket, len(first.text))


class _DrawnLaunch(Struct, frozen=True):
    """A launch with its place in the merged trace.

    ``pid`` is the new ID of the bar's process, ``position`` is the sort index of that process (None if the trace has
    none), and ``arrow`` leads from the bar to the launch. ``zero_ns`` is the base of the merged trace.
    """

    launch: MatchedLaunch
    zero_ns: int
    pid: int | str
    position: int | None
    arrow: Arrow

    @property
    def placed(self) -> PlacedLaunch:
        """The launch with the clock by which it is drawn."""
        error_ns = self.launch.error_ns
        clock = DeviceClock(Axis(0, 1, self.zero_ns, error_ns), self.launch.clock, error_ns, _ALIGNMENT)
        return PlacedLaunch(self.launch.timeline, self.launch.place_name, clock, None)

    def processes(self, layout: TrackLayout, hooks: Sequence[Hook], flags: FlagArrows) -> list[DrawnProcess]:
        correlation = self.launch.bar.correlation
        shared_args = () if correlation is None else (("correlation", correlation),)
        launch_hooks = LaunchHooks(hooks, self.arrow.id)
        return list(
            launch_processes(
                self.placed, layout, self.arrow, shared_args, self.position, hooks=launch_hooks, flags=flags
            )
        )

    def arrow_start(self) -> bytes:
        """Return the event for the start of the arrow, at the start of the bar."""
        place = b'"pid":%b,"tid":%b' % (json_text(self.pid), json_text(self.launch.bar.tid))
        microseconds = b"%d.%03d" % divmod(self.arrow.leaves_ns, 1000)
        return b',\n{"ph":"s","cat":"arrow","name":"launch","id":%d,%b,"ts":%b}' % (self.arrow.id, place, microseconds)

    def facts(self) -> dict[str, Any]:
        return launch_facts(self.placed) | {
            "device": self.launch.timeline.launch.device,
            "correlation": self.launch.bar.correlation,
            "matched": self.launch.match.reason,
            "outside_ns": self.launch.match.outside_ns,
            "error_ns": self.launch.error_ns,
        }


def _placed(parts: Sequence[TracePart], numbers: _Numbers) -> Iterator[_DrawnLaunch]:
    zero_ns = parts[0].trace.base_ns
    arrows = count(1)
    for number, part in enumerate(parts):
        for launch in part.launches:
            position = part.trace.sort_indices.get(launch.bar.pid)
            arrow = Arrow(next(arrows), launch.bar.span.start_ns - zero_ns)
            yield _DrawnLaunch(launch, zero_ns, numbers.pid(number, launch.bar.pid), position, arrow)


def _flags(drawn: Sequence[_DrawnLaunch]) -> dict[int, FlagArrows]:
    """Return the arrows to waits for flags of each launch, by the launch's ``id``.

    The capture's own clocks tell what ended a wait: they are more exact than the launches' places in their bars.
    """
    by_timeline = {id(each.launch.timeline): each for each in drawn}
    placed = place_launches([each.launch.timeline for each in drawn])
    ordered = [by_timeline[id(one.timeline)] for one in placed]
    found = flag_arrows(placed, [each.placed for each in ordered], _rounding_ns(drawn))
    return {id(ordered[number]): arrows for number, arrows in found.items()}


def _rounding_ns(drawn: Sequence[_DrawnLaunch]) -> int:
    """Return by how much two times in the trace may be rounded apart.

    Readers hold the microseconds as doubles, and then the nanoseconds. Torch's base may be a year before the launches.
    """
    last_ns = max((span[1] for each in drawn if (span := each.placed.span_ns())), default=0)
    return math.ceil(1000 * math.ulp(last_ns / 1000) + math.ulp(float(last_ns))) + 1


def _chunks(text: str, begin: int, end: int) -> Iterator[bytes]:
    for at, following in pairwise([*range(begin, end, _CHUNK_CHARACTERS), end]):
        yield packed_text(text[at:following])


class _Numbers(Struct, frozen=True):
    """Renumbering of each trace but the first, and all IDs that processes and threads then have."""

    renumberings: Sequence[Renumbering]
    used_ids: frozenset[int]

    @classmethod
    def of(cls, traces: Sequence[TorchTrace]) -> _Numbers:
        pids, used_ids = set(traces[0].pids), set(traces[0].ids)
        id_offset = traces[0].highest_arrow
        renumberings = []
        for trace in traces[1:]:
            used_ids |= trace.ids
            suffix = f" ({trace.who})"
            new_pids: dict[int | str, int | str] = {}
            for pid in sorted(trace.pids & pids, key=str):
                if isinstance(pid, str):
                    new_pids[pid] = pid + suffix
                else:
                    free_id = _first_free(used_ids, 1)
                    new_pids[pid] = free_id
                    used_ids.add(free_id)
            pids |= {new_pids.get(pid, pid) for pid in trace.pids}
            renumberings.append(Renumbering(new_pids, id_offset, trace.base_ns - traces[0].base_ns, suffix))
            id_offset += trace.highest_arrow
        return cls(renumberings, frozenset(used_ids))

    def pid(self, part: int, pid: int | str) -> int | str:
        """Return the ID that a process of trace number ``part`` has in the merged trace."""
        return self.renumberings[part - 1].pids.get(pid, pid) if part else pid


def _first_free(used_ids: frozenset[int] | set[int], count: int) -> int:
    """Return the first of ``count`` consecutive IDs that are all unused."""
    first = _FIRST_ID
    for number in sorted(number for number in used_ids if number >= first):
        if number >= first + count:
            break
        first = number + 1
    return first


def _rank_names(parts: Sequence[TracePart], numbers: _Numbers) -> Iterator[bytes]:
    """Yield events that add the rank to the name of each process, because ranks use the same names.

    Perfetto uses the latest name of a process. So these events have a time when each process already has its own name.
    """
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
