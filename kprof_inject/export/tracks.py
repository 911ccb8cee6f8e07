"""Processes and tracks of a trace, and the layouts of a launch's warps and scopes on the tracks of its process.

A layout numbers all possible threads of a launch in their order, and then their groups; ``events`` determines which of
them exist. Numbers are computed from the table of CTAs, so that a million warps need no table of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.scopes import distinct_names
from kprof_inject.timeline.nesting import lanes_of_rows
from kprof_inject.timeline.partitions import by_warp, partition_names
from kprof_inject.timeline.records import recorded_warps
from kprof_inject.timeline.timeline import Timeline

LAYOUT_NAMES = ("sm", "cta", "scope")
"""The users' names of the layouts, the default one first; ``tracks_of`` has their meanings."""

Numbers = NDArray[np.int64]
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


class Process(Struct, eq=False):
    """A process of a trace.

    ``own`` is the name of the thread that shows it as a whole, empty for none; viewers that nest draw this thread on
    the process's track. ``draw`` yields its other parts, on at most ``tracks`` threads and groups. A viewer that nests
    shows it ``within`` another process, under the name ``label``. ``position`` orders processes, the lowest first
    (None: by ``pid``); only traces that are merged into another need it.

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

    ``ids`` are unique in the trace; ``positions``, from 0 up, order the threads or the groups of one track. Viewers
    that nest show each track ``within`` another one, by its ID, under its label. Other viewers show only threads, by
    their ``names``; groups have none. A group comes before its content.
    """

    pid: int
    ids: Numbers
    positions: Numbers
    within: Numbers
    labels: TextColumn
    names: TextColumn = ()


def runs_of_warps(scopes: NDArray[np.void]) -> tuple[Numbers, Numbers]:
    """Return the first row of each warp of a CTA in a block (``SCOPE_COLUMNS``), and its number of scopes."""
    cta, warp = scopes["cta"], scopes["warp"]
    begins = np.flatnonzero((cta[1:] != cta[:-1]) | (warp[1:] != warp[:-1])) + 1
    first = np.concatenate((np.zeros(min(len(scopes), 1), dtype=np.int64), begins))
    return first, np.diff(first, append=len(scopes))


def numbers_in(columns: NDArray[np.void], name: str) -> Numbers:
    """Return a column as ``int64``."""
    column: Numbers = columns[name].astype(np.int64)
    return column


def tracks_of(timeline: Timeline, layout: str) -> WarpTracks | ScopeTracks:
    """Return the tracks of a launch in one of the ``LAYOUT_NAMES``.

    ``sm`` has a thread for each warp, sorted by SM, CTA and warp, followed by threads for its scopes that cross others;
    the groups are SMs, and CTAs in them. ``cta`` sorts by CTA and warp; the groups are CTAs. ``scope`` has a thread for
    each scope and warp, sorted by scope, SM, CTA and warp; the groups are scopes, and lost records of warps follow.
    """
    return ScopeTracks(timeline) if layout == "scope" else WarpTracks(timeline, layout == "sm")


_CTA_BITS = 32
_INCOMPLETE = "incomplete"


def _has_sms(timeline: Timeline) -> bool:
    """Return True if the SM of each CTA is known."""
    return bool((timeline.ctas["sm"] >= 0).all())


class _Warps:
    """The warps of a launch, numbered by SM (unless ``by_cta``), CTA and warp; ``sm`` and ``cta`` are by CTA."""

    def __init__(self, timeline: Timeline, by_cta: bool = False) -> None:
        kernel = timeline.launch.kernel
        self._cta_noun, self._warp_noun = f"{kernel.cta_name} ", f"{kernel.warp_name} "
        self.has_sms = _has_sms(timeline)
        self._by_cta = by_cta
        keys = self._keys_of(timeline.ctas)
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self.sm, self.cta = (numbers_in(timeline.ctas, name)[order] for name in ("sm", "cta"))
        self.per_cta = max(recorded_warps(timeline.launch)) + 1
        self.count = len(keys) * self.per_cta
        partitions = by_warp(timeline.partitions)
        self._partitions = [
            "".join(f", {partition.called}" for partition in partitions.get(warp, ())) for warp in range(self.per_cta)
        ]

    def _keys_of(self, columns: NDArray[np.void]) -> Numbers:
        cta = numbers_in(columns, "cta")
        return cta if self._by_cta else numbers_in(columns, "sm") << _CTA_BITS | cta

    def of_rows(self, columns: NDArray[np.void]) -> Numbers:
        return np.searchsorted(self._keys, self._keys_of(columns)) * self.per_cta + numbers_in(columns, "warp")

    def of_scopes(self, scopes: NDArray[np.void]) -> Numbers:
        """Return the same as ``of_rows``, for rows in which each warp's are consecutive."""
        first, lengths = runs_of_warps(scopes)
        return np.repeat(self.of_rows(scopes[first]), lengths)

    def partition_texts(self, warps: Numbers) -> TextColumn:
        """Return the text about each warp's partition, after its place; none unless the kernel is warp specialised."""
        return (Picked(self._partitions, warps % self.per_cta),) if any(self._partitions) else ()

    def cta_labels(self, ctas: Numbers) -> TextColumn:
        return self._cta_noun, self.cta[ctas]

    def warp_labels(self, warps: Numbers) -> TextColumn:
        return self._warp_noun, warps % self.per_cta

    def names(self, warps: Numbers, sm_first: bool = True) -> TextColumn:
        """Return the full name of each warp; unknown SMs are not in names."""
        ctas = warps // self.per_cta
        place = (*self.cta_labels(ctas), " ", *self.warp_labels(warps))
        if not self.has_sms:
            return place
        return ("SM ", self.sm[ctas], " ", *place) if sm_first else (*place, ", SM ", self.sm[ctas])


def _own_lanes(scopes: NDArray[np.void], timeline: Timeline) -> Numbers:
    """Return the lane of each scope: scopes that overlap others of the same kind are on further lanes."""
    if timeline.overlaps is None:
        return np.zeros(len(scopes), dtype=np.int64)
    return lanes_of_rows(scopes, timeline.overlaps)


def _new_groups(groups: Numbers, drawn: Mask) -> Numbers:
    """Return the groups that are not ``drawn``, and mark them."""
    new = groups[~drawn[groups]]
    drawn[new] = True
    return new


class WarpTracks:
    """A thread for each warp and lane; after these, a group for each CTA, and one for each SM if these contain CTAs.

    Threads have numbers from 0 to ``groups_from``; ``count`` includes the groups.
    """

    def __init__(self, timeline: Timeline, by_sm: bool) -> None:
        """Assign numbers to the tracks of a launch; SMs contain no CTAs if an SM is unknown."""
        self._timeline = timeline
        self._by_sm = by_sm and _has_sms(timeline)
        self._warps = _Warps(timeline, by_cta=not self._by_sm)
        if timeline.overlaps is None:
            self._per_warp = int(timeline.lanes.max(initial=0)) + 1
        else:
            self._per_warp = int((timeline.lanes + timeline.overlaps).max(initial=1))
        self.groups_from = self._warps.count * self._per_warp
        self._ctas, sms = len(self._warps.cta), self._warps.sm
        # For each CTA, the number of SMs before its own.
        self._sm_ranks = np.cumsum(np.diff(sms, prepend=sms[:1]) != 0)
        self.count = self.groups_from + self._ctas
        if self._by_sm:
            self.count += int(self._sm_ranks.max(initial=-1)) + 1

    def of_scopes(self, scopes: NDArray[np.void]) -> Numbers:
        """Return the thread of each of a block's scopes (``SCOPE_COLUMNS``). Scopes on a thread never cross."""
        lane = self._timeline.lanes[numbers_in(scopes, "scope")] + _own_lanes(scopes, self._timeline)
        return self._warps.of_scopes(scopes) * self._per_warp + lane

    def of_incomplete(self, incomplete: NDArray[np.void]) -> Numbers:
        """Return the thread of each warp's event for lost records (``INCOMPLETE_COLUMNS``)."""
        return self._warps.of_rows(incomplete) * self._per_warp

    def threads(self, process: Process, numbers: Numbers) -> Iterator[Tracks]:
        """Yield these threads, in parts that are not empty."""
        warps, lanes = np.divmod(numbers, self._per_warp)
        for crosses in (False, True):
            chosen = (lanes > 0) == crosses
            if chosen.any():
                warp, lane = warps[chosen], lanes[chosen]
                further = (*self._warps.partition_texts(warp), *((" (crossing ", lane, ")") if crosses else ()))
                yield Tracks(
                    process.pid,
                    process.first_track + numbers[chosen],
                    1 + numbers[chosen],
                    process.first_track + self.groups_from + warp // self._warps.per_cta,
                    (*self._warps.warp_labels(warp), *further),
                    (*self._warps.names(warp, sm_first=self._by_sm), *further),
                )

    def groups(self, process: Process, numbers: Numbers, drawn: Mask) -> Iterator[Tracks]:
        """Yield the groups around these threads that are not ``drawn``, the outer ones first, and mark them.

        ``drawn`` has a row for each group.
        """
        ctas = np.unique(numbers // self._per_warp // self._warps.per_cta)
        first_sm = self.groups_from + self._ctas
        if self._by_sm:
            ranks = _new_groups(self._ctas + np.unique(self._sm_ranks[ctas]), drawn) - self._ctas
            sms = self._warps.sm[np.searchsorted(self._sm_ranks, ranks)]
            within = np.full_like(ranks, process.track)
            yield Tracks(process.pid, process.first_track + first_sm + ranks, first_sm + ranks, within, ("SM ", sms))
        ctas = _new_groups(ctas, drawn)
        labels = self._warps.cta_labels(ctas)
        if self._by_sm:
            within = process.first_track + first_sm + self._sm_ranks[ctas]
        else:
            within = np.full_like(ctas, process.track)
            labels = (*labels, ", SM ", self._warps.sm[ctas]) if self._warps.has_sms else labels
        numbers = self.groups_from + ctas
        yield Tracks(process.pid, process.first_track + numbers, numbers, within, labels)


class ScopeTracks:
    """A thread for each name, lane of the scope, and warp; after these, a group for each name and lane.

    A scope's name is at its index; the last name is for lost records. The methods are those of ``WarpTracks``.
    """

    def __init__(self, timeline: Timeline) -> None:
        """Assign numbers to the tracks of a launch."""
        self._timeline = timeline
        self._warps = _Warps(timeline)
        partitions = partition_names(timeline.table)
        names = [
            f"{name} ({partitions[index]})" if index in partitions else name
            for index, name in enumerate(distinct_names(timeline.table.scopes))
        ]
        lanes = [1] * len(names) if timeline.overlaps is None else timeline.overlaps.tolist()
        self._first = np.cumsum([0, *lanes])
        self._names = [
            f"{name} (lane {lane + 1})" if lane else name
            for name, count in zip([*names, _INCOMPLETE], [*lanes, 1], strict=True)
            for lane in range(count)
        ]
        self.groups_from = self._warps.count * len(self._names)
        self.count = self.groups_from + len(self._names)

    def of_scopes(self, scopes: NDArray[np.void]) -> Numbers:
        """Return the thread of each of a block's scopes."""
        names = self._first[numbers_in(scopes, "scope")] + _own_lanes(scopes, self._timeline)
        return names * self._warps.count + self._warps.of_scopes(scopes)

    def of_incomplete(self, incomplete: NDArray[np.void]) -> Numbers:
        """Return the thread of each warp's event for lost records."""
        return (len(self._names) - 1) * self._warps.count + self._warps.of_rows(incomplete)

    def threads(self, process: Process, numbers: Numbers) -> Iterator[Tracks]:
        """Yield these threads, if there are any."""
        if numbers.size:
            names, warps = np.divmod(numbers, self._warps.count)
            place = self._warps.names(warps)
            within = process.first_track + self.groups_from + names
            full_names = (Picked(self._names, names), ": ", *place)
            yield Tracks(process.pid, process.first_track + numbers, 1 + numbers, within, place, full_names)

    def groups(self, process: Process, numbers: Numbers, drawn: Mask) -> Iterator[Tracks]:
        """Yield the groups around these threads that are not ``drawn``, and mark them."""
        names = _new_groups(np.unique(numbers // max(self._warps.count, 1)), drawn)
        groups, within = self.groups_from + names, np.full_like(names, process.track)
        yield Tracks(process.pid, process.first_track + groups, groups, within, (Picked(self._names, names),))
