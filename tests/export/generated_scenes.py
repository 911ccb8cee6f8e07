"""Scenes made by hypothesis, with what a trace of them must show.

Threads of one group begin and end slices in any order, at times that are often equal, so that slices of different
threads cross and slices of one thread touch, or have no length. But no two instants of a thread stand at one time:
Perfetto shows the second of them in the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kprof_inject.export.events import Arg, EventKind, Events, Part, Process, Scene, TextColumn, Tracks
from kprof_inject.timeline.columns import Numbers

PID = 1
KINDS = [
    EventKind("outer", "func", (("source", "/src/k.py:1"), ("weight", 0.5))),
    EventKind("inner", "op", (("count", 7),)),
    EventKind("mark", "mark", is_instant=True),
]
MARK = 2

at_any_speed = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

Shown = tuple[str, int, int, str, int, str | None, int]
"""A slice or instant: thread, begin, duration, name, depth, the name around it, its number."""


def process(pid: int, name: str, **others: Any) -> Process:
    """A process with these properties, and nothing in it."""
    return Process(name, lambda _: iter(()), pid=pid, **others)


def threads(pid: int, tids: Numbers, names: TextColumn) -> Tracks:
    """Threads of a process without one of its own, in this order."""
    return Tracks(pid, tids, np.arange(len(tids)), np.full_like(tids, pid), names, names)


@dataclass
class Row:
    """One event of a scene as it is made; ``number`` tells it from all others."""

    tid: int
    kind: int
    start_ns: int
    start_order: int
    depth: int
    parent: str | None
    group: int
    number: int
    end_ns: int = 0
    end_order: int = 0

    def shown(self) -> Shown:
        duration_ns = 0 if self.kind == MARK else self.end_ns - self.start_ns
        name = KINDS[self.kind].name
        return thread_name(self.tid), self.start_ns, duration_ns, name, self.depth, self.parent, self.number


@dataclass
class Drawn:
    """Rows of events in the order of their starts, and the threads that they stand on."""

    rows: list[Row] = field(default_factory=list)
    tids: set[int] = field(default_factory=set)

    def scene(self) -> Scene:
        return Scene([], [lambda: self._parts()])

    def _parts(self) -> Iterator[Part]:
        yield process(PID, "a process")
        tids = np.array(sorted(self.tids), dtype=np.int64)
        yield threads(PID, tids, ("thread ", tids))
        if self.rows:
            yield self._events()

    def _events(self) -> Events:
        def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            return np.array([getattr(row, name) for row in self.rows], dtype=np.int64)

        number = column("number")
        return Events(
            PID,
            column("tid"),
            KINDS,
            column("kind"),
            column("start_ns"),
            column("end_ns"),
            column("group"),
            column("start_order"),
            column("end_order"),
            (Arg("odd", number, number % 2 == 1), Arg("number", number)),
        )


def thread_name(tid: int) -> str:
    return f"thread {tid}"


@dataclass(frozen=True)
class Step:
    """Some time passes and some numbers of order are left out; then a thread of the group begins an event of this kind,
    or (None) ends its innermost slice."""

    thread: int
    kind: int | None
    passes_ns: int
    skips: int


STEPS = st.lists(
    st.builds(Step, st.integers(0, 1), st.sampled_from([None, None, 0, 1, MARK]), st.integers(0, 2), st.integers(0, 3)),
    max_size=24,
)


def drawn_from(groups: Sequence[Sequence[Step]]) -> Drawn:
    """Each group has threads of its own, and its first event at 0 or later."""
    drawn = Drawn()
    for group, steps in enumerate(groups):
        _draw_group(drawn, group, steps)
    return drawn


DRAWN = st.lists(STEPS, max_size=4).map(drawn_from)
MUCH_DRAWN = st.lists(STEPS, max_size=40).map(drawn_from)
"""For what takes long for each scene."""


def _draw_group(drawn: Drawn, group: int, steps: Sequence[Step]) -> None:
    open_slices: dict[int, list[Row]] = {}
    at_ns = order = 0
    marked_ns: dict[int, int] = {}
    for step in steps:
        at_ns += step.passes_ns
        order += 1 + step.skips
        tid = 10 + 2 * group + step.thread
        stack = open_slices.setdefault(tid, [])
        drawn.tids.add(tid)
        if step.kind is not None:
            if step.kind == MARK:
                at_ns = max(at_ns, marked_ns.get(tid, -1) + 1)
                marked_ns[tid] = at_ns
            parent = KINDS[stack[-1].kind].name if stack else None
            row = Row(tid, step.kind, at_ns, order, len(stack), parent, group, len(drawn.rows), at_ns)
            drawn.rows.append(row)
            if step.kind == MARK:
                order += 1
                row.end_order = order
            else:
                stack.append(row)
        elif stack:
            row = stack.pop()
            row.end_ns, row.end_order = at_ns, order
    for stack in open_slices.values():
        while stack:
            order += 1
            row = stack.pop()
            row.end_ns, row.end_order = at_ns, order
