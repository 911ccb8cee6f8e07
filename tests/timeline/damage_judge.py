"""What can be said of a launch whose words were damaged.

A word that became another valid one cannot be told from a sound one:

- a clock value that is no more the record's, but may be another time of its CTA (any, if no timer was read), be it as
  one whose upper half was read too late (``torn_by_cycles``);
- an id or an end flag that makes an entry another record, if it is not the only damage to its warp;
- an id that makes an end the start of a scope around it, if the ring lost that one's start and has no record before it
  of what is in there; or one that makes it a record of a scope that crosses its own.

Nor can it be told what is sound where half of a CTA's records, or of the newest in the rings of its SM, are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from buffers import Entry, Scope
from known_launches import CYCLES_PER_NS, KnownCta, KnownLaunch, Site, scope_table
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Rings = dict[tuple[int, int], list[Entry]]
"""The entries of each CTA's warps, slot by slot."""


@dataclass(frozen=True, eq=False)
class Judge:
    """``words`` are what a launch wrote, ``damaged`` what was left of it."""

    launch: KnownLaunch
    words: Words
    damaged: Words

    def has_new_header(self, cta: int) -> bool:
        header = slice(0, self.launch.counts_at)
        return bool((self.words[cta, header] != self.damaged[cta, header]).any())

    def is_untouched(self, cta: int, warp: int) -> bool:
        return not self._has_new_count(cta, warp) and not self._changes[cta, warp]

    def is_clear(self, cta: int, warp: int) -> bool:
        """Whether the damage to a warp does not look like something else that it could have done."""
        changes = self._changes[cta, warp]
        possible = [change for change in changes if change.is_known(self._scopes)]
        if any(self._could_be_its_time(cta, change) for change in possible):
            return False
        others = [change for change in possible if change.old.cycles == change.new.cycles]
        is_alone = len(changes) == 1 and not self._has_new_count(cta, warp)
        return not others or (is_alone and not self._could_be_its_record(cta, warp, others[0]))

    def is_mostly_sound(self, number: int) -> bool:
        """Whether most of a CTA's records, and the newest of most rings of its SM, are as they were."""
        mine = self._cta(number)
        records = [
            self._is_right(number, warp, slot)
            for warp in self.launch.recorded
            for slot in self._slots_read(number, warp)
            if self._rings_after[number, warp][slot].scope_id < self._scopes
        ]
        ends = [
            self._is_right(cta, warp, slots[-1]) and not self.has_new_header(cta)
            for cta, warp, _ in self.launch.warps()
            if self.has_new_header(cta) or self._cta(cta).sm == mine.sm
            for slots in [self._slots_read(cta, warp)]
            if slots
        ]
        return 2 * sum(records) > len(records) and 2 * sum(ends) > len(ends)

    @cached_property
    def _scopes(self) -> int:
        return len(scope_table(self.launch.sites))

    def _cta(self, number: int) -> KnownCta:
        cta = self.launch.ctas[number]
        assert cta is not None
        return cta

    def _has_new_count(self, cta: int, warp: int) -> bool:
        at = cta, self.launch.counts_at + warp
        return bool(self.words[at] != self.damaged[at])

    @cached_property
    def _rings_before(self) -> Rings:
        return self._rings(self.words)

    @cached_property
    def _rings_after(self) -> Rings:
        return self._rings(self.damaged)

    def _rings(self, words: Words) -> Rings:
        slots, rings_at = self.launch.recording.slots, self.launch.counts_at + self.launch.num_warps
        rings: Rings = {}
        for cta, warp, _ in self.launch.warps():
            at = rings_at + 2 * slots * self.launch.recorded.index(warp)
            pairs = words[cta, at : at + 2 * slots].reshape(-1, 2).tolist()
            rings[cta, warp] = [
                Entry(high >> 23 & 0xFF, high >> 31 == 1, (high & 0x7FF) << 32 | low) for high, low in pairs
            ]
        return rings

    @cached_property
    def _changes(self) -> Mapping[tuple[int, int], list[Change]]:
        """What became of each warp's entries."""
        return {
            place: [
                Change(slot, old, new)
                for slot, (old, new) in enumerate(zip(before, self._rings_after[place], strict=True))
                if old != new
            ]
            for place, before in self._rings_before.items()
        }

    def _slots_read(self, cta: int, warp: int, words: Words | None = None) -> list[int]:
        """Those that the count says were written, the oldest first."""
        slots = self.launch.recording.slots
        count = int((self.damaged if words is None else words)[cta, self.launch.counts_at + warp]) // 2
        return [place % slots for place in range(max(0, count - slots), count)] if count <= 1 << 20 else [*range(slots)]

    def _is_right(self, cta: int, warp: int, slot: int) -> bool:
        was_written = slot in self._slots_read(cta, warp, self.words)
        return was_written and all(slot != change.slot for change in self._changes[cta, warp])

    def _could_be_its_time(self, number: int, change: Change) -> bool:
        cta, period = self._cta(number), self.launch.recording.period
        # Of two that are so far apart that one is too far from the middle, the middle may be the other.
        most = 5 * ((cta.end - cta.begin) // CYCLES_PER_NS + 4_001) + cta.end - cta.begin
        read = change.new.cycles
        times = [read, read - 2**32] if read % 2**32 >= 2**32 - 4096 else [read]
        away = [(time - cta.ahead - cta.begin + period // 2) % period - period // 2 for time in times]
        is_possible = min(map(abs, away)) <= most or not self.launch.recording.timed
        return change.old.cycles != change.new.cycles and is_possible

    def _could_be_its_record(self, cta: int, warp: int, change: Change) -> bool:
        scopes = scope_table(self.launch.sites)
        old, new = change.old.scope_id, change.new.scope_id
        crossing = [{site.scope, site.body[0].scope} for site in all_sites(self.launch.sites) if site.kind == "cross"]
        if {old, new} in crossing:
            return True
        inside = [scope for scope in range(len(scopes)) if new in around(scopes, scope)]
        if not change.old.is_end or change.new.is_end or old not in inside:
            return False
        slots = self._slots_read(cta, warp)
        before = [self._rings_before[cta, warp][slot].scope_id for slot in slots[: slots.index(change.slot)]]
        return not set(before) & set(inside)


class Change(NamedTuple):
    """An entry that is no more what it was."""

    slot: int
    old: Entry
    new: Entry

    def is_known(self, scopes: int) -> bool:
        return self.new.scope_id < scopes


def all_sites(sites: Sequence[Site]) -> Iterator[Site]:
    for site in sites:
        yield site
        yield from all_sites(site.body)


def around(scopes: Sequence[Scope], scope: int) -> set[int]:
    """The scopes of the table that one stands in."""
    parent = scopes[scope].parent
    return {parent} | around(scopes, parent) if parent >= 0 else set()


def true_scopes(launch: KnownLaunch) -> set[tuple[int, ...]]:
    """All that ran, left or not: CTA, warp, scope, start by the counter, and length."""
    return {
        (cta, number, ran.scope, begin % launch.recording.period, warp.entries[ran.end].cycles - begin)
        for cta, number, warp in launch.warps()
        for ran in warp.scopes
        for begin in [warp.entries[ran.start].cycles]
    }
