"""Records to scopes: which start and which end belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.schema import RECORDS_OF_TAG
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.timeline.records import Records


@dataclass(frozen=True, slots=True)
class ScopeRules:
    """What a scope table says of the records of its scopes."""

    parents: tuple[int, ...] = ()
    """The scope around each, or -1; nothing if that is unknown."""
    ended_by_next: tuple[int, ...] = ()
    """The scopes of which only the start is recorded each time: it ends the one before, and an end stands behind the
    last."""
    unselected: int | None = None
    """The number of the records around the kernel's body if they are no scope's."""
    tags: tuple[int, ...] = ()
    """How many tags each scope has, if some has any; their entries stand before its start."""

    @classmethod
    def of(cls, table: ScopeTable) -> ScopeRules:
        return cls(
            tuple(scope.parent for scope in table.scopes),
            tuple(number for number, scope in enumerate(table.scopes) if scope.ended_by_next),
            len(table.scopes) if table.body_record else None,
            (*(len(scope.tags) for scope in table.scopes), 0) if table.max_tags else (),
        )


NO_RULES = ScopeRules()


def scopes_of(records: Records, rules: ScopeRules = NO_RULES) -> tuple[Records, Pairs]:
    """The scopes that ran, and the records that their places are of: the given ones, and the ends that the start of a
    next iteration tells."""
    records = with_told_ends(records, rules)
    pairs = pair_records(records, rules)
    if rules.ended_by_next:
        pairs = _believable(pairs, records, rules)
    return records, pairs if rules.unselected is None else _without(pairs, records, rules.unselected)


def with_told_ends(records: Records, rules: ScopeRules) -> Records:
    """Of each scope that the next one's start ends, an end beside that start, of the same time: it is counted as a
    record. The end behind a loop without iterations, which ends nothing, is left out."""
    if not rules.ended_by_next:
        return records
    of_next = np.flatnonzero(np.isin(records.scope, rules.ended_by_next))
    of_next = of_next[np.argsort(records.scope[of_next], kind="stable")]
    scope, group, is_end = records.scope[of_next], records.group[of_next], records.is_end[of_next]
    is_open = np.append(False, (scope[1:] == scope[:-1]) & (group[1:] == group[:-1]) & ~is_end[:-1])[: len(of_next)]
    ending = of_next[is_open & ~is_end]
    idle = of_next[~is_open & is_end]
    copies = np.ones(len(records.scope), dtype=np.int64)
    copies[ending] = 2
    copies[idle[_ends_nothing(records, idle, rules)]] = 0
    at = np.repeat(np.arange(len(copies)), copies)
    behind = np.cumsum(copies)
    told = behind[ending] - 2
    is_end = records.is_end[at]
    is_end[told] = True
    number = records.number[at] + (behind - np.arange(1, len(copies) + 1))[at]
    number[told] -= 1
    begins = np.searchsorted(records.group, records.group)
    number -= np.append(0, behind)[begins][at] - begins[at]
    return replace(
        records,
        group=records.group[at],
        number=number,
        scope=records.scope[at],
        is_end=is_end,
        cycles=records.cycles[at],
        tags=records.tags[at],
    )


def _ends_nothing(records: Records, idle: NDArray[np.int64], rules: ScopeRules) -> NDArray[np.bool_]:
    """Which of these ends, before which no start of their scope is open, stand behind a loop without iterations. Where
    the ring lost records or one is damaged, the start may be among those, unless the loop around begins right there."""
    warp = records.group[idle] - records.first_group
    is_sound = (records.lost[warp] == 0) & ~np.isin(records.group[idle], records.damaged)
    before = np.maximum(idle - 1, 0)
    parents = np.array((*rules.parents, -1))[records.scope[idle]]
    is_same_warp = (before < idle) & (records.group[before] == records.group[idle])
    ends_nothing: NDArray[np.bool_] = is_sound | (
        is_same_warp & ~records.is_end[before] & (records.scope[before] == parents)
    )
    return ends_nothing


def _believable(pairs: Pairs, records: Records, rules: ScopeRules) -> Pairs:
    """Without the iterations that a damaged record may have made of others: a start alone parts them, and whatever else
    that was, its partner now has none. So an iteration is left out in which a record without a partner stands, or one
    of a scope around it, and so are those that share its start or its end. A told end is no record: without its start
    it is nothing."""
    alone = np.concatenate((pairs.open_starts, pairs.stray_ends))
    if not alone.size:
        return pairs
    is_told = records.is_end & np.isin(records.scope, rules.ended_by_next)
    is_told &= np.append(records.scope[1:] == records.scope[:-1], False)
    is_told &= np.append((records.cycles[1:] == records.cycles[:-1]) & ~records.is_end[1:], False)
    is_alone = np.zeros(len(records.scope), dtype=bool)
    is_alone[alone[~is_told[alone]]] = True
    doubted = np.zeros(len(pairs.scope), dtype=bool)
    inner = inner_scopes(rules.parents)
    for scope in rules.ended_by_next:
        around = [outer for outer, within in enumerate(inner) if scope in within]
        before = np.append(0, np.cumsum(is_alone | np.isin(records.scope, around)))
        mine = np.flatnonzero(pairs.scope == scope)
        start_at, end_at = pairs.start_at[mine], pairs.end_at[mine]
        wrong = before[end_at] > before[start_at]
        wrong |= np.isin(end_at + 1, start_at[wrong]) | np.isin(start_at - 1, end_at[wrong])
        doubted[mine] = wrong
    stray_ends = np.sort(np.concatenate((pairs.stray_ends, pairs.end_at[doubted])))
    return Pairs(
        pairs.start_at[~doubted],
        pairs.end_at[~doubted],
        pairs.scope[~doubted],
        np.sort(np.concatenate((pairs.open_starts, pairs.start_at[doubted]))),
        stray_ends[~is_told[stray_ends]],
    )


def _without(pairs: Pairs, records: Records, scope: int) -> Pairs:
    kept = pairs.scope != scope
    return Pairs(
        pairs.start_at[kept],
        pairs.end_at[kept],
        pairs.scope[kept],
        pairs.open_starts[records.scope[pairs.open_starts] != scope],
        pairs.stray_ends[records.scope[pairs.stray_ends] != scope],
    )


def inner_scopes(parents: Sequence[int]) -> list[list[int]]:
    """For each scope of the table those in it, at any depth. An outer one stands before those in it."""
    inner: list[list[int]] = [[] for _ in parents]
    for scope in range(len(parents)):
        around = scope
        while 0 <= parents[around] < around:
            around = parents[around]
            inner[around].append(scope)
    return inner


def begun_amid_inner(
    starts: NDArray[np.int64],
    order: NDArray[np.int64],
    scope: NDArray[np.int16],
    group: NDArray[np.int64],
    is_end: NDArray[np.bool_],
    parents: Sequence[int],
) -> NDArray[np.bool_]:
    """Which of the ``starts``, each the first record of its scope in its ring, cannot be the start that they seem: a
    scope in theirs was open there, or had run before. The ring lost the true start, and this one was another's.

    A scope that stands in another one's text runs only while that is open.

    ``starts`` are places in ``order``, which has the records by scope and then by time; the columns are in that order.
    """
    wrong = np.zeros(len(starts), dtype=bool)
    bounds = np.searchsorted(scope, np.arange(len(parents) + 1))
    inner = inner_scopes(parents)
    for outer in np.unique(scope[starts[scope[starts] < len(parents)]]):
        mine = np.flatnonzero(scope[starts] == outer)
        at, warp = order[starts[mine]], group[starts[mine]]
        for begin, end in ((bounds[scope], bounds[scope + 1]) for scope in inner[outer]):
            if begin == end:
                continue
            following = begin + np.searchsorted(order[begin:end], at)
            before, after = np.maximum(following - 1, begin), np.minimum(following, end - 1)
            wrong[mine] |= (following > begin) & (group[before] == warp)
            wrong[mine] |= (following < end) & (group[after] == warp) & is_end[after]
    return wrong


def _entries_of_tags(
    records: Records, start_at: NDArray[np.int64], end_at: NDArray[np.int64], rules: ScopeRules
) -> NDArray[np.int64] | int:
    """How many entries of tags were written between these records. Those of a start that tells an end stand before
    both."""
    if not rules.tags:
        return 0
    entries = np.where(records.is_end, 0, RECORDS_OF_TAG * np.array(rules.tags)[records.scope])
    tells = (records.scope[1:] == records.scope[:-1]) & records.is_end[:-1] & (np.diff(records.number) == 1)
    telling = 1 + np.flatnonzero(tells & np.isin(records.scope[1:], rules.ended_by_next))
    entries[telling - 1] = entries[telling]
    entries[telling] = 0
    before = np.cumsum(entries)
    between: NDArray[np.int64] = before[end_at] - before[start_at]
    return between


# An end and a start that were both damaged may have parted what now looks like one scope.
_TOO_MANY_DAMAGED = 2


@dataclass(frozen=True, slots=True)
class Pairs:
    """The scopes that ran: each start with its end, in the order of the starts. An outer scope stands before those in
    it."""

    start_at: NDArray[np.int64]
    """The place of the start among the records."""
    end_at: NDArray[np.int64]
    """The place of the end among the records."""
    scope: NDArray[np.int16]
    """Index in the scope table."""
    open_starts: NDArray[np.int64]
    """The places of the starts without an end."""
    stray_ends: NDArray[np.int64]
    """The places of the ends without a start."""


def pair_records(records: Records, rules: ScopeRules = NO_RULES) -> Pairs:
    """Join each start with the next end of the same scope in the same warp.

    A start and an end are left alone, without a partner, where they may not belong together:

    * Two damaged entries or more stand between them: an end and a start may have been among those. One is too many
      where a start alone ends a scope and begins the next.
    * Another start of the scope stands before the start, or another end behind the end. A warp makes them in turns, so
      one of the two is wrong.
    * The ring lost records, and the start is not where the scope can have begun (``begun_amid_inner``)."""
    count = len(records.scope)
    # Stable, so that records of one warp and scope stay in the order of time. NumPy sorts 16 bits by radix: in linear
    # time, and bytes twice as fast.
    key = records.scope.astype(np.uint8) if records.scope.max(initial=0) <= np.iinfo(np.uint8).max else records.scope
    order = np.argsort(key, kind="stable")
    scope, group, is_end = records.scope[order], records.group[order], records.is_end[order]
    same = (scope[1:] == scope[:-1]) & (group[1:] == group[:-1])
    takes_turns = is_end[1:] != is_end[:-1]
    joined = same & takes_turns & is_end[1:]
    repeats = same & ~takes_turns
    if repeats.any():
        joined[1:] &= ~repeats[:-1]
        joined[:-1] &= ~repeats[1:]
    starts = np.flatnonzero(joined)
    if records.damaged.size:
        start_at, end_at = order[starts], order[starts + 1]
        between = (records.number[end_at] - records.number[start_at]) - (end_at - start_at)
        between -= _entries_of_tags(records, start_at, end_at, rules)
        too_many = np.where(np.isin(scope[starts], rules.ended_by_next), 1, _TOO_MANY_DAMAGED)
        starts = starts[between < too_many]
    if rules.parents and records.lost.any():
        warp = group[starts] - records.first_group
        is_after_loss = (records.lost[warp] > 0) & (records.cycles[order[starts]] >= records.oldest[1, warp])
        # Before the first start of an iteration that the ring kept, what stands in the one before may have been kept.
        is_first = ~np.append(False, same)[starts] & ~np.isin(scope[starts], rules.ended_by_next)
        first = np.flatnonzero(is_after_loss & is_first)
        starts = np.delete(starts, first[begun_amid_inner(starts[first], order, scope, group, is_end, rules.parents)])

    end_of = np.full(count, -1)
    end_of[order[starts]] = order[starts + 1]
    start_at = np.flatnonzero(end_of >= 0)
    end_at = end_of[start_at]
    alone = np.ones(count, dtype=bool)
    alone[start_at] = alone[end_at] = False
    alone_at = np.flatnonzero(alone)
    ends_alone = records.is_end[alone_at]
    return Pairs(start_at, end_at, records.scope[start_at], alone_at[~ends_alone], alone_at[ends_alone])
