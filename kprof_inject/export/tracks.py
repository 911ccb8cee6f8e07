"""Layouts of a launch's warps and scopes on the tracks of its process.

A layout numbers all possible threads of a launch in their order, and then their groups; ``drawing`` determines which of
them exist. Numbers are computed from the table of CTAs, so that a million warps need no table of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kprof_inject.capture.scopes import distinct_names
from kprof_inject.export.events import Picked, Process, TextColumn, Tracks
from kprof_inject.timeline.columns import Mask, Numbers, Rows
from kprof_inject.timeline.nesting import lanes_of_rows
from kprof_inject.timeline.partitions import by_warp, partition_names
from kprof_inject.timeline.records import recorded_warps
from kprof_inject.timeline.timeline import Timeline

LAYOUT_NAMES = ("sm", "cta", "scope")
"""The users' names of the layouts, the default one first; ``LaunchTracks`` has their meanings."""


def runs_of_warps(scopes: Rows) -> tuple[Numbers, Numbers]:
    """Return the first row of each warp of a CTA in a block (``SCOPE_COLUMNS``), and its number of scopes."""
    first = np.flatnonzero((np.diff(scopes["cta"], prepend=-1) != 0) | (np.diff(scopes["warp"], prepend=-1) != 0))
    return first, np.diff(first, append=len(scopes))


def numbers_in(columns: Rows, name: str) -> Numbers:
    """Return a column as ``int64``."""
    return columns[name].astype(np.int64)


_CTA_BITS = 32


class LaunchTracks:
    """The threads of a launch and the groups around them, in one of the ``LAYOUT_NAMES``.

    ``sm`` has a thread for each warp, sorted by SM, CTA and warp, followed by threads for its scopes that cross others;
    the groups are SMs, and CTAs in them. ``cta``, also used if an SM is unknown, sorts by CTA and warp; the groups are
    CTAs. ``scope`` has a thread for each scope and warp, sorted by scope, SM, CTA and warp; the groups are scopes, the
    last one with the lost records of warps.

    Tracks are numbered: threads first, then groups from ``groups_from``. ``count`` is the number of all of them.
    """

    def __init__(self, timeline: Timeline, layout: str) -> None:
        kernel, ctas = timeline.launch.kernel, timeline.ctas
        self._timeline = timeline
        self._warp_noun = f"{kernel.warp_name} "
        self._has_sms = bool((ctas["sm"] >= 0).all())
        self._by_scope, self._by_sm = layout == "scope", layout == "sm" and self._has_sms
        keys = self._keys_of(ctas)
        order = np.argsort(keys, kind="stable")
        self._keys, self._sm, self._cta = keys[order], numbers_in(ctas, "sm")[order], numbers_in(ctas, "cta")[order]
        self._sms, self._sm_ranks = np.unique(self._sm, return_inverse=True)
        self._per_cta = max(recorded_warps(timeline.launch)) + 1
        self._warps = len(keys) * self._per_cta
        partitions = by_warp(timeline.partitions)
        self._partitions = [
            "".join(f", {partition.called}" for partition in partitions.get(warp, ())) for warp in range(self._per_cta)
        ]
        # The lane of a thread: the place of its scope among all names and their lanes, or its place in its warp.
        if self._by_scope:
            scopes, partition_of = timeline.table.scopes, partition_names(timeline.table)
            overlaps = [1] * len(scopes) if timeline.overlaps is None else timeline.overlaps.tolist()
            self._names = []
            for index, (name, lanes) in enumerate(zip(distinct_names(scopes), overlaps, strict=True)):
                full = f"{name} ({partition_of[index]})" if index in partition_of else name
                self._names += [full, *(f"{full} (lane {lane})" for lane in range(2, lanes + 1))]
            self._names.append("incomplete")
            self._first_lane = np.cumsum([0, *overlaps])
            self._lanes = len(self._names)
        else:
            self._first_lane = timeline.lanes
            overlaps = 1 if timeline.overlaps is None else timeline.overlaps
            self._lanes = int((timeline.lanes + overlaps).max(initial=1))
        self.groups_from = self._warps * self._lanes
        self.count = self.groups_from + (self._lanes if self._by_scope else len(keys) + self._by_sm * len(self._sms))

    def _keys_of(self, columns: Rows) -> Numbers:
        cta = numbers_in(columns, "cta")
        return numbers_in(columns, "sm") << _CTA_BITS | cta if self._by_sm or self._by_scope else cta

    def _warps_of(self, columns: Rows) -> Numbers:
        return np.searchsorted(self._keys, self._keys_of(columns)) * self._per_cta + numbers_in(columns, "warp")

    def _threads_of(self, lane: Numbers | int, warp: Numbers) -> Numbers:
        return lane * self._warps + warp if self._by_scope else warp * self._lanes + lane

    def _lanes_and_warps(self, threads: Numbers) -> tuple[Numbers, Numbers]:
        if self._by_scope:
            return np.divmod(threads, max(self._warps, 1))
        warps, lanes = np.divmod(threads, self._lanes)
        return lanes, warps

    def of_scopes(self, scopes: Rows) -> Numbers:
        """Return the thread of each of a block's scopes (``SCOPE_COLUMNS``). Scopes on a thread never cross."""
        lane: Numbers = self._first_lane[numbers_in(scopes, "scope")]
        if self._timeline.overlaps is not None:
            # Scopes that overlap others of the same kind are on further lanes.
            lane = lane + lanes_of_rows(scopes, self._timeline.overlaps)
        first, lengths = runs_of_warps(scopes)
        return self._threads_of(lane, np.repeat(self._warps_of(scopes[first]), lengths))

    def of_incomplete(self, incomplete: Rows) -> Numbers:
        """Return the thread of each warp's event for lost records (``INCOMPLETE_COLUMNS``)."""
        return self._threads_of(self._lanes - 1 if self._by_scope else 0, self._warps_of(incomplete))

    def threads(self, process: Process, numbers: Numbers) -> Iterator[Tracks]:
        """Yield these threads, in parts that are not empty."""
        lanes, warps = self._lanes_and_warps(numbers)
        ids, positions = process.first_track + numbers, 1 + numbers
        within = process.first_track + self.groups_from + (lanes if self._by_scope else warps // self._per_cta)
        if self._by_scope and numbers.size:
            place = self._place(warps)
            yield Tracks(process.pid, ids, positions, within, place, (Picked(self._names, lanes), ": ", *place))
        elif not self._by_scope:
            for crosses in (False, True):
                chosen = (lanes > 0) == crosses
                if chosen.any():
                    warp = warps[chosen]
                    further: TextColumn = (" (crossing ", lanes[chosen], ")") if crosses else ()
                    if any(self._partitions):
                        further = (Picked(self._partitions, warp % self._per_cta), *further)
                    label, name = (self._warp_noun, warp % self._per_cta, *further), (*self._place(warp), *further)
                    yield Tracks(process.pid, ids[chosen], positions[chosen], within[chosen], label, name)

    def _place(self, warps: Numbers) -> TextColumn:
        ctas = warps // self._per_cta
        place = ("CTA ", self._cta[ctas], f" {self._warp_noun}", warps % self._per_cta)
        if not self._has_sms:
            return place
        sm = ("SM ", self._sm[ctas])
        return (*sm, " ", *place) if self._by_sm or self._by_scope else (*place, ", ", *sm)

    def groups(self, process: Process, numbers: Numbers, drawn: Mask) -> Iterator[Tracks]:
        """Yield the groups around these threads that are not ``drawn``, the outer ones first, and mark them there."""
        lanes, warps = self._lanes_and_warps(numbers)
        ctas = warps // self._per_cta
        levels: list[tuple[int, Numbers]] = [(0, lanes if self._by_scope else ctas)]
        if self._by_sm:
            levels.insert(0, (len(self._cta), self._sm_ranks[ctas]))
        within = np.full_like(numbers, process.track)
        for first, group_of in levels:
            groups, rows = np.unique(first + group_of, return_index=True)
            is_new = ~drawn[groups]
            drawn[groups] = True
            new, positions = groups[is_new] - first, self.groups_from + groups[is_new]
            ids = process.first_track + positions
            if self._by_scope:
                labels: TextColumn = (Picked(self._names, new),)
            elif first > 0:
                labels = ("SM ", self._sms[new])
            else:
                labels = ("CTA ", self._cta[new])
                if self._has_sms and not self._by_sm:
                    labels = (*labels, ", SM ", self._sm[new])
            yield Tracks(process.pid, ids, positions, within[rows][is_new], labels)
            within = process.first_track + self.groups_from + first + group_of
