"""Layouts: how a launch's warps and scopes are spread over the threads of its process.

A layout numbers the threads that there could be, in the order in which they stand; which of them there are is for the
caller to see. Numbers are reckoned from the table of CTAs, so that a million warps need no table of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kprof_inject.export.drawing import LAYOUT_NAMES
from kprof_inject.export.drawing.scene import Numbers, Picked, TextColumn
from kprof_inject.timeline.overlaps import lanes_of_rows
from kprof_inject.timeline.partitions import by_warp, partition_names
from kprof_inject.timeline.records import recorded_warps
from kprof_inject.timeline.timeline import Timeline

_PlaceName = Callable[[Numbers, Numbers, Numbers], TextColumn]
"""Of SMs, CTAs and warps."""

_CTA_BITS = 32
_INCOMPLETE = "incomplete"


class Tracks(Protocol):
    """The threads of one launch, by numbers from 0, in their order."""

    @property
    def count(self) -> int:
        """All numbers are less."""
        ...

    def of_scopes(self, scopes: NDArray[np.void]) -> Numbers:
        """The thread of each of a block's scopes (``SCOPE_COLUMNS``). Scopes on one thread never cross."""
        ...

    def of_incomplete(self, incomplete: NDArray[np.void]) -> Numbers:
        """The thread of what is said of each warp (``INCOMPLETE_COLUMNS``)."""
        ...

    def names(self, numbers: Numbers) -> Iterator[tuple[Numbers, TextColumn]]:
        """What these threads are called, in parts that are not empty."""
        ...


class TrackLayout(Protocol):
    """How to spread a launch over threads."""

    def tracks(self, timeline: Timeline) -> Tracks: ...


def runs_of_warps(scopes: NDArray[np.void]) -> tuple[Numbers, Numbers]:
    """Where in a block (``SCOPE_COLUMNS``) each warp of a CTA begins, and how many scopes it has."""
    cta, warp = scopes["cta"], scopes["warp"]
    begins = np.flatnonzero((cta[1:] != cta[:-1]) | (warp[1:] != warp[:-1])) + 1
    first = np.concatenate((np.zeros(min(len(scopes), 1), dtype=np.int64), begins))
    return first, np.diff(first, append=len(scopes))


def _sm_and_cta(columns: NDArray[np.void]) -> Numbers:
    """A number for each row that sorts like its SM and CTA."""
    return _numbers(columns, "sm") << _CTA_BITS | _numbers(columns, "cta")


def _cta(columns: NDArray[np.void]) -> Numbers:
    return _numbers(columns, "cta")


def _numbers(columns: NDArray[np.void], name: str) -> Numbers:
    column: Numbers = columns[name].astype(np.int64)
    return column


class _WarpNumbers:
    """The warps of a launch, numbered: by what ``key`` makes of a CTA, then by warp."""

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

    def of_rows(self, columns: NDArray[np.void]) -> Numbers:
        return np.searchsorted(self._keys, self._key(columns)) * self._per_cta + _numbers(columns, "warp")

    def of_scopes(self, scopes: NDArray[np.void]) -> Numbers:
        """As ``of_rows``, of rows in which a warp's follow each other."""
        first, lengths = runs_of_warps(scopes)
        return np.repeat(self.of_rows(scopes[first]), lengths)

    def places(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """SM, CTA and warp of each."""
        ctas = self._ctas[numbers // self._per_cta]
        return _numbers(ctas, "sm"), _numbers(ctas, "cta"), numbers % self._per_cta

    def partitions(self, numbers: Numbers) -> TextColumn:
        """What is told of each one's partition behind its place: nothing unless the kernel is warp specialised."""
        return (Picked(self._partitions, numbers % self._per_cta),) if any(self._partitions) else ()


@dataclass(frozen=True, slots=True)
class SmLayout:
    """A thread for each warp, ordered by SM, CTA and warp. Beneath it stand those for the scopes that cross others."""

    def tracks(self, timeline: Timeline) -> Tracks:
        return _WarpTracks(_WarpNumbers(timeline, _sm_and_cta), timeline, _Nouns.of(timeline).sm_first)


@dataclass(frozen=True, slots=True)
class CtaLayout:
    """As ``SmLayout``, ordered by CTA and warp."""

    def tracks(self, timeline: Timeline) -> Tracks:
        return _WarpTracks(_WarpNumbers(timeline, _cta), timeline, _Nouns.of(timeline).cta_first)


@dataclass(frozen=True, slots=True)
class ScopeLayout:
    """A thread for each scope and warp, so that one scope of all warps stands together, ordered by SM, CTA and warp.
    What warps lost stands below, on threads of its own."""

    def tracks(self, timeline: Timeline) -> Tracks:
        partitions = partition_names(timeline.table)
        names = [
            f"{scope.name} ({partitions[index]})" if index in partitions else scope.name
            for index, scope in enumerate(timeline.table.scopes)
        ]
        warps = _WarpNumbers(timeline, _sm_and_cta)
        return _ScopeTracks(warps, timeline, [*names, _INCOMPLETE], _Nouns.of(timeline).sm_first)


BY_SM: TrackLayout = SmLayout()
LAYOUTS: dict[str, TrackLayout] = dict(zip(LAYOUT_NAMES, (BY_SM, CtaLayout(), ScopeLayout()), strict=True))
"""By the names that users know them by."""


@dataclass(frozen=True, slots=True)
class _Nouns:
    """What a launch's threads are called by. SMs have no place in a name where nobody knows them."""

    cta: str
    warp: str
    has_sms: bool

    @classmethod
    def of(cls, timeline: Timeline) -> _Nouns:
        kernel = timeline.launch.kernel
        return cls(kernel.cta_name, kernel.warp_name, bool((timeline.ctas["sm"] >= 0).all()))

    def sm_first(self, sm: Numbers, cta: Numbers, warp: Numbers) -> TextColumn:
        place: TextColumn = (f"{self.cta} ", cta, f" {self.warp} ", warp)
        return ("SM ", sm, " ", *place) if self.has_sms else place

    def cta_first(self, sm: Numbers, cta: Numbers, warp: Numbers) -> TextColumn:
        place: TextColumn = (f"{self.cta} ", cta, f" {self.warp} ", warp)
        return (*place, ", SM ", sm) if self.has_sms else place


def _lane_count(timeline: Timeline) -> int:
    if timeline.overlaps is None:
        return int(timeline.lanes.max(initial=0)) + 1
    return int((timeline.lanes + timeline.overlaps).max(initial=1))


def _own_lanes(scopes: NDArray[np.void], timeline: Timeline) -> Numbers:
    """What stands beside others of its kind is on a further lane."""
    if timeline.overlaps is None:
        return np.zeros(len(scopes), dtype=np.int64)
    return lanes_of_rows(scopes, timeline.overlaps)


class _WarpTracks:
    """A thread for each warp and lane."""

    def __init__(self, warps: _WarpNumbers, timeline: Timeline, name: _PlaceName) -> None:
        self._warps = warps
        self._timeline = timeline
        self._per_warp = _lane_count(timeline)
        self._name = name
        self.count = warps.count * self._per_warp

    def of_scopes(self, scopes: NDArray[np.void]) -> Numbers:
        lane = self._timeline.lanes[_numbers(scopes, "scope")] + _own_lanes(scopes, self._timeline)
        return self._warps.of_scopes(scopes) * self._per_warp + lane

    def of_incomplete(self, incomplete: NDArray[np.void]) -> Numbers:
        return self._warps.of_rows(incomplete) * self._per_warp

    def names(self, numbers: Numbers) -> Iterator[tuple[Numbers, TextColumn]]:
        lane = numbers % self._per_warp
        usual, further = numbers[lane == 0], numbers[lane > 0]
        if usual.size:
            yield usual, self._places(usual)
        if further.size:
            yield further, (*self._places(further), " (crossing ", lane[lane > 0], ")")

    def _places(self, numbers: Numbers) -> TextColumn:
        warps = numbers // self._per_warp
        return *self._name(*self._warps.places(warps)), *self._warps.partitions(warps)


class _ScopeTracks:
    """A thread for each of these names, on as many lanes as its scope takes, and each warp; a scope's is that at its
    index, the last is for what was lost."""

    def __init__(self, warps: _WarpNumbers, timeline: Timeline, names: list[str], place: _PlaceName) -> None:
        self._warps = warps
        self._timeline = timeline
        self._place = place
        lanes = np.ones(len(names), dtype=np.int64)
        if timeline.overlaps is not None:
            lanes[:-1] = timeline.overlaps
        self._first = np.cumsum(lanes) - lanes
        self._names = [
            f"{name} (beside {lane})" if lane else name
            for name, count in zip(names, lanes.tolist(), strict=True)
            for lane in range(count)
        ]
        self.count = warps.count * len(self._names)

    def of_scopes(self, scopes: NDArray[np.void]) -> Numbers:
        which = self._first[_numbers(scopes, "scope")] + _own_lanes(scopes, self._timeline)
        return which * self._warps.count + self._warps.of_scopes(scopes)

    def of_incomplete(self, incomplete: NDArray[np.void]) -> Numbers:
        return (len(self._names) - 1) * self._warps.count + self._warps.of_rows(incomplete)

    def names(self, numbers: Numbers) -> Iterator[tuple[Numbers, TextColumn]]:
        which, warp = np.divmod(numbers, max(self._warps.count, 1))
        if numbers.size:
            yield numbers, (Picked(self._names, which), ": ", *self._place(*self._warps.places(warp)))
