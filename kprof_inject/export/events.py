"""The content of a trace, independent of its format: columns of slices, instants, counters and arrows on tracks.

``drawing`` makes them and decides all content, with its order, names, numbers and times; a format only encodes them.
They come in parts, so that a trace may be larger than memory, and a format needs no loop over events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.scope_colours import ScopeColour
from kprof_inject.timeline.columns import Mask, Numbers, Reals


class Picked(Struct, frozen=True):
    """A column of texts: ``texts[i]`` for each ``i`` of ``index``."""

    texts: Sequence[str]
    index: Numbers

    def __getitem__(self, rows: slice) -> Picked:
        return Picked(self.texts, self.index[rows])


TextColumn = tuple[str | Numbers | Picked, ...]
"""A column of texts, in parts: constants, numbers from 0 up in decimal, and at most one ``Picked``."""


class Process(Struct, eq=False):
    """A process of a trace.

    ``own`` is the name of the thread that shows it as a whole; viewers that nest draw this thread on the process's
    track. ``draw`` yields its other parts, on at most ``tracks`` threads and groups. A viewer that nests shows it
    ``within`` another process, under the name ``label``. ``position`` orders processes in a merged trace.

    Processes are numbered once all are known: ``pid`` is from 1 up and no thread's ID; the IDs of its threads and
    groups ascend from ``first_id``.
    """

    name: str
    draw: Callable[[Process], Iterator[Any]]
    own: str = ""
    tracks: int = 0
    within: Process | None = None
    label: str = ""
    position: int | None = None
    pid: int = 0
    first_id: int = 0

    @property
    def track(self) -> int:
        """The ID of its track, which contains other tracks in viewers that nest."""
        return self.first_id if self.own else self.pid

    @property
    def first_track(self) -> int:
        """The ID of the first track that is not its own thread."""
        return self.first_id + bool(self.own)


class Tracks(Struct, frozen=True):
    """Threads of one process, on which events are drawn; or groups, which only contain other tracks.

    ``positions``, from 0 up, order the threads or the groups of one track. Viewers that nest show each track ``within``
    another one, by its ID, under its label. Other viewers show only threads, by their ``names``; groups have none. A
    group comes before its content.
    """

    pid: int
    ids: Numbers
    positions: Numbers
    within: Numbers
    labels: TextColumn
    names: TextColumn = ()


KindArgs = tuple[tuple[str, str | int | float], ...]  # arguments that many events have in common


class EventKind(Struct, frozen=True):
    """The common properties of events; ``is_instant`` distinguishes points in time from durations."""

    name: str
    category: str
    args: KindArgs = ()
    is_instant: bool = False
    colour: ScopeColour | None = None


class Arg(Struct, frozen=True):
    """An argument with a value for each event, on events that are ``shown`` (None: on all). Reals are finite."""

    name: str
    values: Numbers | Reals | Picked
    shown: Mask | None = None


class Arrows(Struct, frozen=True):
    """Arrows that leave slices or (``arrive``) point to them: ``ids`` from 1 up, 0 for a slice without any.

    The two ends of an arrow have the same ID, and the part where it leaves comes first. Clocks may be off, so each end
    has a time of its own, ``at_ns``: that of its slice's start, but never before the arrow leaves.
    """

    ids: Numbers
    arrive: bool
    at_ns: Numbers
    name: str = "launch"


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
        return len(self.tids)

    def part(self, rows: slice) -> Events:
        """Return these rows of all columns."""
        columns = ("tids", "kind", "start_ns", "end_ns", "group", "start_order", "end_order")
        args = (
            replace(arg, values=arg.values[rows], shown=None if arg.shown is None else arg.shown[rows])
            for arg in self.args
        )
        arrows = (replace(arrows, ids=arrows.ids[rows], at_ns=arrows.at_ns[rows]) for arrows in self.arrows)
        parts = {name: getattr(self, name)[rows] for name in columns}
        return replace(self, **parts, args=tuple(args), arrows=tuple(arrows))


class Counters(Struct, frozen=True):
    """Counters of one process, which has no thread of its own.

    From ``at_ns`` on, counter ``names[counter]`` has ``values``, in ``unit``. A counter's samples are in one part, in
    order of time, at most one at each.
    """

    pid: int
    names: Sequence[str]
    unit: str
    counter: Numbers
    at_ns: Numbers
    values: Numbers | Reals


Part = Process | Tracks | Events | Counters

Section = Callable[[], Iterator[Part]]
"""A function that returns parts which need none of another section, so sections can be encoded in parallel."""


class Scene(Struct, frozen=True):
    """The whole content of a trace; ``launches`` has the facts of each, as JSON, in the order of their processes.

    In the order of the ``sections`` and their parts, a process comes before its content, a thread before its events,
    and earlier events of a thread before later ones.
    """

    launches: list[dict[str, Any]]
    sections: Sequence[Section]


def sections(groups: Sequence[Sequence[Process]], first_id: int = 1) -> Iterator[Section]:
    """Yield each group of processes as a section, with IDs for them and their threads from ``first_id`` on."""
    # Process IDs come first, so no thread's ID equals one: some viewers take such a thread for the main one.
    next_id = first_id + sum(map(len, groups))
    for pid, process in enumerate(chain.from_iterable(groups), first_id):
        process.pid, process.first_id = pid, next_id
        next_id = process.first_track + process.tracks
    return (partial(_section, processes) for processes in groups)


def _section(processes: Sequence[Process]) -> Iterator[Part]:
    for process in processes:
        yield process
        yield from process.draw(process)
