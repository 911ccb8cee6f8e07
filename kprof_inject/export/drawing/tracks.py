"""Layouts: the distribution of a launch's warps and scopes over the threads of its process, and the groups of these.

A layout numbers all possible threads in their order, and then their groups; the caller determines which of them exist.
Numbers are computed from the table of CTAs, so that a million warps need no table of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.scopes import distinct_names
from kprof_inject.export.drawing import LAYOUT_NAMES
from kprof_inject.export.drawing.scene import Mask, Numbers, Picked, TextColumn
from kprof_inject.timeline.nesting import lanes_of_rows
from kprof_inject.timeline.partitions import by_warp, partition_names
from kprof_inject.timeline.records import recorded_warps
from kprof_inject.timeline.timeline import Timeline

_CTA_BITS = 32
_INCOMPLETE = "incomplete"

SM, CTA = "SM ", "CTA "
"""The text before the number in the name of an SM or of a CTA."""

LAUNCH = -1
"""The number for the launch, which contains the tracks that are in no group."""


class NamedTracks(Struct, frozen=True):
    """Threads or groups, by number: the group that contains each, and its name there.

    Threads have ``full_names``, too, for viewers that do not nest.
    """

    numbers: Numbers
    within: Numbers
    labels: TextColumn
    full_names: TextColumn = ()


class Tracks(Protocol):
    """The threads of one launch and their groups, by numbers from 0, in their order."""

    @property
    def first_group(self) -> int:
        """The number of the first group; threads have lower numbers."""
        ...

    @property
    def count(self) -> int:
        """The number of threads and groups."""
        ...

    def of_scopes(self, scopes: NDArray[np.void]) -> Numbers:
        """Return the thread of each of a block's scopes (``SCOPE_COLUMNS``). Scopes on a thread never cross."""
        ...

    def of_incomplete(self, incomplete: NDArray[np.void]) -> Numbers:
        """Return the thread of each warp's event for lost records (``INCOMPLETE_COLUMNS``)."""
        ...

    def threads(self, numbers: Numbers) -> Iterator[NamedTracks]:
        """Yield these threads, in parts that are not empty."""
        ...

    def groups(self, numbers: Numbers, drawn: Mask) -> Iterator[NamedTracks]:
        """Yield each group around these threads once, the outer ones first, in parts that may be empty.

        Groups that are ``drawn``, which has a row for each group, are omitted.
        """
        ...


TrackLayout = Callable[[Timeline], Tracks]
"""A way to distribute a launch over threads."""


def runs_of_warps(scopes: NDArray[np.void]) -> tuple[Numbers, Numbers]:
    """Return the first row of each warp of a CTA in a block (``SCOPE_COLUMNS``), and its number of scopes."""
    cta, warp = scopes["cta"], scopes["warp"]
    begins = np.flatnonzero((cta[1:] != cta[:-1]) | (warp[1:] != warp[:-1])) + 1
    first = np.concatenate((np.zeros(min(len(scopes), 1), dtype=np.int64), begins))
    return first, np.diff(first, append=len(scopes))


def _sm_and_cta(columns: NDArray[np.void]) -> Numbers:
    """Return a number for each row that sorts by SM and CTA."""
    return _numbers(columns, "sm") << _CTA_BITS | _numbers(columns, "cta")


def _numbers(columns: NDArray[np.void], name: str) -> Numbers:
    column: Numbers = columns[name].astype(np.int64)
    return column


class _WarpNumbers:
    """Numbers of a launch's warps: sorted by the ``key`` of their CTA, then by warp."""

    def __init__(self, timeline: Timeline, key: Callable[[NDArray[np.void]], Numbers]) -> None:
        keys = key(timeline.ctas)
        order = np.argsort(keys, kind="stable")
        self._key = key
        self._keys = keys[order]
        self._ctas = timeline.ctas[["sm", "cta"]][order]
        self._per_cta = max(recorded_warps(timeline.launch)) + 1
        partitions = by_warp(timeline.partitions)
        self._partitions = [
            "".join(f", {partition.called}" for partition in partitions.get(warp, ())) for warp in range(self._per_cta)
        ]
        self.count = len(keys) * self._per_cta

    @property
    def ctas(self) -> int:
        return len(self._keys)

    def of_rows(self, columns: NDArray[np.void]) -> Numbers:
        return np.searchsorted(self._keys, self._key(columns)) * self._per_cta + _numbers(columns, "warp")

    def of_scopes(self, scopes: NDArray[np.void]) -> Numbers:
        """Return the same as ``of_rows``, for rows in which each warp's are consecutive."""
        first, lengths = runs_of_warps(scopes)
        return np.repeat(self.of_rows(scopes[first]), lengths)

    def places(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return SM, CTA and warp of each number."""
        return *self.places_of_ctas(self.cta(numbers)), self.warp(numbers)

    def warp(self, numbers: Numbers) -> Numbers:
        return numbers % self._per_cta

    def cta(self, numbers: Numbers) -> Numbers:
        """Return the index of the CTA of each number."""
        return numbers // self._per_cta

    def places_of_ctas(self, ctas: Numbers) -> tuple[Numbers, Numbers]:
        """Return SM and CTA of each index of a CTA."""
        chosen = self._ctas[ctas]
        return _numbers(chosen, "sm"), _numbers(chosen, "cta")

    def sm_ranks(self) -> Numbers:
        """Return for each CTA the number of SMs before its own; the CTAs must be sorted by SM."""
        sms = _numbers(self._ctas, "sm")
        return np.cumsum(np.diff(sms, prepend=sms[:1]) != 0)

    def partitions(self, numbers: Numbers) -> TextColumn:
        """Return the text about each warp's partition, after its place; none unless the kernel is warp specialised."""
        return (Picked(self._partitions, numbers % self._per_cta),) if any(self._partitions) else ()


def by_sm(timeline: Timeline) -> Tracks:
    """Return a thread for each warp, sorted by SM, CTA and warp, followed by threads for its scopes that cross others.

    The groups are SMs, and CTAs in them.
    """
    nouns = _Nouns.of(timeline)
    return _SmTracks(_WarpNumbers(timeline, _sm_and_cta), timeline, nouns) if nouns.has_sms else by_cta(timeline)


def by_cta(timeline: Timeline) -> Tracks:
    """Return threads as ``by_sm`` does, but sorted by CTA and warp. The groups are CTAs."""
    return _CtaTracks(_WarpNumbers(timeline, partial(_numbers, name="cta")), timeline, _Nouns.of(timeline))


def by_scope(timeline: Timeline) -> Tracks:
    """Return a thread for each scope and warp, sorted by scope, SM, CTA and warp, so that a scope's warps are together.

    Lost records of warps are below, on threads of their own. The groups are scopes.
    """
    partitions = partition_names(timeline.table)
    names = [
        f"{name} ({partitions[index]})" if index in partitions else name
        for index, name in enumerate(distinct_names(timeline.table.scopes))
    ]
    warps = _WarpNumbers(timeline, _sm_and_cta)
    return _ScopeTracks(warps, timeline, [*names, _INCOMPLETE], _Nouns.of(timeline))


LAYOUTS: dict[str, TrackLayout] = dict(zip(LAYOUT_NAMES, (by_sm, by_cta, by_scope), strict=True))
"""The layouts by their names for users."""


def sm_label(sm: int) -> str:
    """Return the name of an SM's group."""
    return f"{SM}{sm}"


def cta_label(cta: int) -> str:
    """Return the name of a CTA's group in that of its SM."""
    return f"{CTA}{cta}"


class _Nouns(Struct, frozen=True):
    """The words in the names of a launch's threads, each with a trailing blank; unknown SMs are not in names."""

    cta: str
    warp: str
    has_sms: bool

    @classmethod
    def of(cls, timeline: Timeline) -> _Nouns:
        kernel = timeline.launch.kernel
        return cls(f"{kernel.cta_name} ", f"{kernel.warp_name} ", bool((timeline.ctas["sm"] >= 0).all()))

    def sm_first(self, sm: Numbers, cta: Numbers, warp: Numbers) -> TextColumn:
        place: TextColumn = (self.cta, cta, f" {self.warp}", warp)
        return (SM, sm, " ", *place) if self.has_sms else place

    def cta_first(self, sm: Numbers, cta: Numbers, warp: Numbers) -> TextColumn:
        place: TextColumn = (self.cta, cta, f" {self.warp}", warp)
        return (*place, f", {SM}", sm) if self.has_sms else place

    def cta_alone(self, sm: Numbers, cta: Numbers) -> TextColumn:
        return (self.cta, cta, f", {SM}", sm) if self.has_sms else (self.cta, cta)


def _lane_count(timeline: Timeline) -> int:
    if timeline.overlaps is None:
        return int(timeline.lanes.max(initial=0)) + 1
    return int((timeline.lanes + timeline.overlaps).max(initial=1))


def _own_lanes(scopes: NDArray[np.void], timeline: Timeline) -> Numbers:
    """Return the lane of each scope: scopes that overlap others of the same kind are on further lanes."""
    if timeline.overlaps is None:
        return np.zeros(len(scopes), dtype=np.int64)
    return lanes_of_rows(scopes, timeline.overlaps)


_PlaceName = Callable[[Numbers, Numbers, Numbers], TextColumn]


class _WarpTracks:
    """A thread for each warp and lane; after these, a group for each CTA."""

    def __init__(self, warps: _WarpNumbers, timeline: Timeline, nouns: _Nouns, name: _PlaceName) -> None:
        self._warps = warps
        self._timeline = timeline
        self._nouns = nouns
        self._per_warp = _lane_count(timeline)
        self._name = name
        self.first_group = warps.count * self._per_warp
        self.count = self.first_group + warps.ctas

    def of_scopes(self, scopes: NDArray[np.void]) -> Numbers:
        lane = self._timeline.lanes[_numbers(scopes, "scope")] + _own_lanes(scopes, self._timeline)
        return self._warps.of_scopes(scopes) * self._per_warp + lane

    def of_incomplete(self, incomplete: NDArray[np.void]) -> Numbers:
        return self._warps.of_rows(incomplete) * self._per_warp

    def threads(self, numbers: Numbers) -> Iterator[NamedTracks]:
        lane = numbers % self._per_warp
        first_lanes, further_lanes = numbers[lane == 0], numbers[lane > 0]
        if first_lanes.size:
            yield self._named(first_lanes)
        if further_lanes.size:
            yield self._named(further_lanes, " (crossing ", lane[lane > 0], ")")

    def _named(self, numbers: Numbers, *crossing: str | Numbers) -> NamedTracks:
        warps = numbers // self._per_warp
        further = (*self._warps.partitions(warps), *crossing)
        return NamedTracks(
            numbers,
            self.first_group + self._warps.cta(warps),
            (self._nouns.warp, self._warps.warp(warps), *further),
            (*self._name(*self._warps.places(warps)), *further),
        )

    def _ctas_of(self, numbers: Numbers) -> Numbers:
        return np.unique(self._warps.cta(numbers // self._per_warp))


class _SmTracks(_WarpTracks):
    """Tracks with groups for SMs, numbered after those for CTAs."""

    def __init__(self, warps: _WarpNumbers, timeline: Timeline, nouns: _Nouns) -> None:
        super().__init__(warps, timeline, nouns, nouns.sm_first)
        self._sm_ranks = warps.sm_ranks()
        self._first_sm = self.count
        self.count += int(self._sm_ranks.max(initial=-1)) + 1

    def groups(self, numbers: Numbers, drawn: Mask) -> Iterator[NamedTracks]:
        ctas = self._ctas_of(numbers)
        of_ctas, of_sms = drawn[: self._warps.ctas], drawn[self._warps.ctas :]
        ranks = np.unique(self._sm_ranks[ctas])
        ranks = ranks[~of_sms[ranks]]
        sm, _ = self._warps.places_of_ctas(np.searchsorted(self._sm_ranks, ranks))
        yield NamedTracks(self._first_sm + ranks, np.full_like(ranks, LAUNCH), (SM, sm))
        ctas = ctas[~of_ctas[ctas]]
        _, cta = self._warps.places_of_ctas(ctas)
        yield NamedTracks(self.first_group + ctas, self._first_sm + self._sm_ranks[ctas], (self._nouns.cta, cta))


class _CtaTracks(_WarpTracks):
    """Tracks whose groups for CTAs are in no other group."""

    def __init__(self, warps: _WarpNumbers, timeline: Timeline, nouns: _Nouns) -> None:
        super().__init__(warps, timeline, nouns, nouns.cta_first)

    def groups(self, numbers: Numbers, drawn: Mask) -> Iterator[NamedTracks]:
        ctas = self._ctas_of(numbers)
        ctas = ctas[~drawn[ctas]]
        sm, cta = self._warps.places_of_ctas(ctas)
        yield NamedTracks(self.first_group + ctas, np.full_like(ctas, LAUNCH), self._nouns.cta_alone(sm, cta))


class _ScopeTracks:
    """A thread for each name, lane of the scope, and warp; after these, a group for each name and lane.

    A scope's name is at its index; the last name is for lost records.
    """

    def __init__(self, warps: _WarpNumbers, timeline: Timeline, names: list[str], nouns: _Nouns) -> None:
        self._warps = warps
        self._timeline = timeline
        self._nouns = nouns
        lanes = np.ones(len(names), dtype=np.int64)
        if timeline.overlaps is not None:
            lanes[:-1] = timeline.overlaps
        self._first = np.cumsum(lanes) - lanes
        self._names = [
            f"{name} (lane {lane + 1})" if lane else name
            for name, count in zip(names, lanes.tolist(), strict=True)
            for lane in range(count)
        ]
        self.first_group = warps.count * len(self._names)
        self.count = self.first_group + len(self._names)

    def of_scopes(self, scopes: NDArray[np.void]) -> Numbers:
        which = self._first[_numbers(scopes, "scope")] + _own_lanes(scopes, self._timeline)
        return which * self._warps.count + self._warps.of_scopes(scopes)

    def of_incomplete(self, incomplete: NDArray[np.void]) -> Numbers:
        return (len(self._names) - 1) * self._warps.count + self._warps.of_rows(incomplete)

    def threads(self, numbers: Numbers) -> Iterator[NamedTracks]:
        which, warp = np.divmod(numbers, max(self._warps.count, 1))
        if numbers.size:
            place = self._nouns.sm_first(*self._warps.places(warp))
            yield NamedTracks(numbers, self.first_group + which, place, (Picked(self._names, which), ": ", *place))

    def groups(self, numbers: Numbers, drawn: Mask) -> Iterator[NamedTracks]:
        which = np.unique(numbers // max(self._warps.count, 1))
        which = which[~drawn[which]]
        yield NamedTracks(self.first_group + which, np.full_like(which, LAUNCH), (Picked(self._names, which),))
