"""The content of a trace, independent of its format: the one description that every writer of traces encodes.

``drawing.draw`` makes it from timelines and decides all content, with its order, names, numbers and times; a writer
decides nothing. It comes in parts, so that a trace may be larger than memory, and in columns, so that a writer needs no
loop over events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.scope_colours import ScopeColour

Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Picked(Struct, frozen=True):
    """A column of texts: ``texts[i]`` for each ``i`` of ``index``."""

    texts: Sequence[str]
    index: Numbers

    def __getitem__(self, rows: slice) -> Picked:
        """Return these rows of the column."""
        return Picked(self.texts, self.index[rows])


TextColumn = tuple[str | Numbers | Picked, ...]
"""A column of texts, as a sequence of parts: a constant, numbers from 0 up in decimal, or a ``Picked``.

At most one part is picked.
"""


class OwnThread(Struct, frozen=True):
    """The first thread of a process, which shows it as a whole; viewers that nest draw it on the process's track."""

    tid: int
    name: str


class TraceProcess(Struct, frozen=True):
    """A process of the trace.

    ``pid`` is from 1 up and no thread's ID. ``position`` orders processes, the lowest first (None: by ``pid``); only
    traces that are merged into another need it. A viewer that nests shows the process in the track ``within`` (0: in
    none), under the name ``label``.
    """

    pid: int
    name: str
    own: OwnThread | None = None
    within: int = 0
    label: str = ""
    position: int | None = None

    @property
    def track(self) -> int:
        """The ID of its track, which contains other tracks in viewers that nest."""
        return self.own.tid if self.own else self.pid


class Nested(Struct, frozen=True):
    """For viewers that nest: the ID of the track that contains each track, and its name there."""

    within: Numbers
    labels: TextColumn


class TrackGroups(Struct, frozen=True):
    """Tracks of one process that only contain other tracks, for viewers that nest.

    ``ids`` are unique, also among those of threads. ``positions`` order the groups of one track. A group comes before
    its content.
    """

    pid: int
    ids: Numbers
    positions: Numbers
    nested: Nested


class Threads(Struct, frozen=True):
    """Threads of one process, on which events are drawn.

    ``tids`` are unique in the trace; ``positions``, from 0 up, order the threads of the process. None of them is the
    process's own. Without ``nested``, they are directly in their process, by the same names.
    """

    pid: int
    tids: Numbers
    positions: Numbers
    names: TextColumn
    nested: Nested | None = None


class EventKind(Struct, frozen=True):
    """The common properties of events.

    ``args`` are names with their values; ``is_instant`` distinguishes points in time from durations. A viewer that
    cannot be told the ``colour`` chooses its own.
    """

    name: str
    category: str
    args: tuple[tuple[str, str | int | float], ...] = ()
    is_instant: bool = False
    colour: ScopeColour | None = None


class Arg(Struct, frozen=True):
    """An argument with a value for each event, on events that are ``shown`` (None: on all). Reals are finite."""

    name: str
    values: Numbers | Reals | Picked
    shown: Mask | None = None


class Arrows(Struct, frozen=True):
    """Arrows that leave slices or (``arrive``) point to them: ``ids`` from 1 up, 0 for a slice without any.

    The two ends of an arrow have the same ID, and the part where it leaves comes first. ``name`` is its meaning.

    A slice may begin before the one that its arrow comes from, if their clocks are off. So each end has a time of its
    own, ``at_ns``: that of its slice's start, but never before the arrow leaves.
    """

    ids: Numbers
    arrive: bool
    at_ns: Numbers
    name: str = "launch"

    def part(self, rows: slice) -> Arrows:
        """Return these rows of all columns."""
        return replace(self, ids=self.ids[rows], at_ns=self.at_ns[rows])


class Arrow(Struct, frozen=True):
    """An arrow to a launch: its ID, and the time when it leaves, in nanoseconds from the axis's zero."""

    id: int
    leaves_ns: int


class Events(Struct, frozen=True):
    """Slices and instants on threads of one process; all columns have a row for each.

    ``kind`` is an index of ``kinds``. Times are nanoseconds from the axis's zero; the time of an instant is
    ``start_ns``. A thread's events never cross, and at equal starts the outer one comes first.

    ``group`` never decreases from row to row, and no thread has events in two groups. Within a group, every start and
    every end has a unique number, ``start_order`` and ``end_order``, which rises with time: a writer of separate starts
    and ends merges them by these numbers, which also decide the order at equal times.
    """

    pid: int
    tids: Numbers
    kinds: Sequence[EventKind]
    kind: Numbers
    start_ns: Numbers
    end_ns: Numbers
    group: Numbers
    start_order: Numbers
    end_order: Numbers
    args: tuple[Arg, ...] = ()
    arrows: tuple[Arrows, ...] = ()

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.tids)

    def part(self, rows: slice) -> Events:
        """Return these rows of all columns."""
        columns = ("tids", "kind", "start_ns", "end_ns", "group", "start_order", "end_order")
        args = (
            replace(arg, values=arg.values[rows], shown=None if arg.shown is None else arg.shown[rows])
            for arg in self.args
        )
        arrows = (arrow.part(rows) for arrow in self.arrows)
        parts = {name: getattr(self, name)[rows] for name in columns}
        return replace(self, **parts, args=tuple(args), arrows=tuple(arrows))


class Counters(Struct, frozen=True):
    """Counters of one process, which belong to none of its threads.

    From ``at_ns`` on, counter ``names[counter]`` has ``values``, in ``unit``. A counter's samples are in order of time,
    at most one at each. They may come in several parts, each with other counters.
    """

    pid: int
    names: Sequence[str]
    unit: str
    counter: Numbers
    at_ns: Numbers
    values: Numbers | Reals

    @classmethod
    def of_spans(
        cls,
        pid: int,
        names: Sequence[str],
        unit: str,
        counter: Numbers,
        start_ns: Numbers,
        end_ns: Numbers,
        amount: Numbers,
    ) -> Counters:
        """Return counters to which each span contributes its ``amount`` from its start to its end."""
        at_ns, counter = np.concatenate((start_ns, end_ns)), np.tile(counter, 2)
        order = np.lexsort((at_ns, counter))
        at_ns, counter, values = at_ns[order], counter[order], np.cumsum(np.concatenate((amount, -amount))[order])
        # Starts and ends at the same time make one change, or none. A counter starts and ends at 0.
        is_last = np.append((at_ns[1:] != at_ns[:-1]) | (counter[1:] != counter[:-1]), True)
        kept = np.flatnonzero(is_last)
        kept = kept[np.diff(values[kept], prepend=0) != 0]
        return cls(pid, names, unit, counter[kept], at_ns[kept], values[kept])


Part = TraceProcess | TrackGroups | Threads | Events | Counters


Section = Callable[[], Iterator[Part]]
"""A function that returns parts which need none of another section, so sections can be encoded in parallel.

It can be called again, with the same result.
"""


class Scene(Struct, frozen=True):
    """The whole content of a trace. ``launches`` has the facts of each, as JSON, in the order of their processes.

    In the order of the ``sections`` and their parts, a process comes before its content, a thread before its events,
    and earlier events of a thread before later ones, if they are in different parts.
    """

    launches: list[dict[str, Any]]
    sections: Sequence[Section]

    def parts(self) -> Iterator[Part]:
        """Return the parts of all sections."""
        return chain.from_iterable(section() for section in self.sections)
