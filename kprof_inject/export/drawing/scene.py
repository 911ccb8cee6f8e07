"""What a trace shows, in no format: the one description that every writer of traces encodes.

``drawing.draw`` makes it of timelines. It decides what there is, in which order and by which name, number and time;
a writer decides nothing. It comes in parts, so that a trace may be larger than memory, and in columns, so that a writer
needs no loop over events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Picked:
    """A column of texts: ``texts[i]`` for each ``i`` of ``index``."""

    texts: Sequence[str]
    index: Numbers

    def __getitem__(self, rows: slice) -> Picked:
        return Picked(self.texts, self.index[rows])


TextColumn = tuple[str | Numbers | Picked, ...]
"""A column of texts, as parts that follow each other: the same for all, numbers from 0 up in decimal, or picked. No
more than one part is picked."""


@dataclass(frozen=True, slots=True)
class OwnThread:
    """The thread that shows its process as a whole: the first. A viewer that nests draws it on the process's own
    track."""

    tid: int
    name: str


@dataclass(frozen=True, slots=True)
class TraceProcess:
    """A process of the trace. ``pid`` is from 1 up and is no thread's id. ``position`` says where it stands, lowest
    first; None: by its ``pid``. Only who writes into another's trace needs it.

    A viewer that nests shows it in the track ``within`` (0: in none), where it is called ``label``."""

    pid: int
    name: str
    own: OwnThread | None = None
    within: int = 0
    label: str = ""
    position: int | None = None

    @property
    def track(self) -> int:
        """The id of its track, for what a viewer nests in it."""
        return self.own.tid if self.own else self.pid


@dataclass(frozen=True, slots=True)
class Nested:
    """For viewers that nest: the id of the track in which each track stands, and what it is called there."""

    within: Numbers
    labels: TextColumn


@dataclass(frozen=True, slots=True)
class TrackGroups:
    """Tracks of one process with nothing on them but tracks, for viewers that nest. ``ids`` are like those of threads:
    nothing else has them. ``positions`` order the groups of one track. A group comes before what stands in it."""

    pid: int
    ids: Numbers
    positions: Numbers
    nested: Nested


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of one process, on which something is drawn. No two of a trace have the same ``tids``; ``positions``,
    from 0 up, say where each stands among those of its process. None of them is the process's own. Where they are not
    ``nested`` they stand in their process, by the same names."""

    pid: int
    tids: Numbers
    positions: Numbers
    names: TextColumn
    nested: Nested | None = None


@dataclass(frozen=True, slots=True)
class EventKind:
    """What several events have in common. ``args`` are names with their values; ``is_instant`` tells those that are
    a point in time from those that last."""

    name: str
    category: str
    args: tuple[tuple[str, str | int | float], ...] = ()
    is_instant: bool = False


@dataclass(frozen=True, slots=True)
class Arg:
    """An argument that differs from event to event, on those that are ``shown`` (None: on all). Reals are finite."""

    name: str
    values: Numbers | Reals | Picked
    shown: Mask | None = None


@dataclass(frozen=True, slots=True)
class Arrows:
    """Arrows that leave each slice, or (``arrive``) that point to it: ``ids`` from 1 up, 0 for a slice with none. The
    two ends of one have the same id, and the part in which it leaves comes first.

    A slice may begin before the one from which its arrow comes, if their clocks are off. So an end has a time of its
    own, ``at_ns``: that of its slice's start, but for an arrow never to arrive before it leaves. ``name`` is what they
    mean."""

    ids: Numbers
    arrive: bool
    at_ns: Numbers
    name: str = "launch"

    def part(self, rows: slice) -> Arrows:
        return replace(self, ids=self.ids[rows], at_ns=self.at_ns[rows])


@dataclass(frozen=True, slots=True)
class Arrow:
    """One arrow that points to a launch: its id, and when it leaves, in nanoseconds from the axis's zero."""

    id: int
    leaves_ns: int


@dataclass(frozen=True, slots=True)
class Events:
    """Slices and instants on threads of one process; all columns have a row for each.

    ``kind`` indexes ``kinds``. Times are nanoseconds from the axis's zero; an instant stands at ``start_ns``.
    A thread's events never cross, and at equal starts the outer one comes first.

    ``group`` does not fall from row to row, and no thread has events in two groups. In a group every start and every
    end has a number of its own, ``start_order`` and ``end_order``, that rises with time: who writes starts and ends by
    themselves merges them by these, which tells what came first at equal times too.
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
        return len(self.tids)

    def part(self, rows: slice) -> Events:
        """These rows of all columns."""
        columns = ("tids", "kind", "start_ns", "end_ns", "group", "start_order", "end_order")
        args = (
            replace(arg, values=arg.values[rows], shown=None if arg.shown is None else arg.shown[rows])
            for arg in self.args
        )
        arrows = (each.part(rows) for each in self.arrows)
        parts = {name: getattr(self, name)[rows] for name in columns}
        return replace(self, **parts, args=tuple(args), arrows=tuple(arrows))


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of one process, which belong to none of its threads: from ``at_ns`` on counter ``names[counter]`` has
    ``values``, in ``unit``. A counter's samples stand in order of time, at most one at each. They may come in several
    parts, each with other counters."""

    pid: int
    names: Sequence[str]
    unit: str
    counter: Numbers
    at_ns: Numbers
    values: Numbers | Reals


Part = TraceProcess | TrackGroups | Threads | Events | Counters


Section = Callable[[], Iterator[Part]]
"""Parts that need none of another section: they can be encoded beside it. It can be called again and gives the same
once more."""


@dataclass(frozen=True, slots=True)
class Scene:
    """All of a trace. ``launches`` says what is known of each launch, as JSON, in the order of their processes.

    In the order of the ``sections`` and their parts, a process comes before what belongs to it, a thread before its
    events, and what came first on a thread before what came later, if they are in different parts."""

    launches: list[dict[str, Any]]
    sections: Sequence[Section]

    def parts(self) -> Iterator[Part]:
        """Those of all sections."""
        return chain.from_iterable(section() for section in self.sections)
