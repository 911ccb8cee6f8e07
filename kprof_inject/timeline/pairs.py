"""Match starts with ends: records to scopes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.schema import RECORDS_OF_TAG
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.timeline.columns import Mask, Numbers, group_begins
from kprof_inject.timeline.records import Records


class ScopeRules(Struct, frozen=True):
    """Properties of a table's scopes that decide how their records are matched."""

    parents: tuple[int, ...] = ()  # index of each scope's parent, or -1; empty if unknown
    ended_by_next: tuple[int, ...] = ()
    """Scopes of which only starts are recorded: each start also ends the scope before it, and one end record follows
    the last.
    """
    unselected: int | None = None  # number of the records around the kernel's body if they belong to no scope
    tags: tuple[int, ...] = ()
    """Number of tags of each scope, empty if no scope has any; tag entries precede the scope's start."""

    @classmethod
    def of(cls, table: ScopeTable) -> ScopeRules:
        """Return the rules that ``table`` implies."""
        return cls(
            tuple(scope.parent for scope in table.scopes),
            tuple(number for number, scope in enumerate(table.scopes) if scope.ended_by_next),
            len(table.scopes) if table.body_record else None,
            (*(len(scope.tags) for scope in table.scopes), 0) if table.max_tags else (),
        )


NO_RULES = ScopeRules()


def scopes_of(records: Records, rules: ScopeRules = NO_RULES) -> tuple[Records, Pairs]:
    """Return the records with the ends that the start of a next iteration implies, and the scopes that ran."""
    records = with_implied_ends(records, rules)
    pairs = pair_records(records, rules)
    if rules.ended_by_next:
        pairs = _without_doubtful_iterations(pairs, records, rules)
    if rules.unselected is not None:
        kept = pairs.scope != rules.unselected
        pairs = Pairs(
            pairs.start_at[kept],
            pairs.end_at[kept],
            pairs.scope[kept],
            pairs.open_starts[records.scope[pairs.open_starts] != rules.unselected],
            pairs.stray_ends[records.scope[pairs.stray_ends] != rules.unselected],
        )
    return records, pairs


def with_implied_ends(records: Records, rules: ScopeRules) -> Records:
    """Insert an end, with its own number, before each start that also ends the previous scope of its kind.

    The end record after a loop without iterations ends nothing and is dropped.
    """
    if not rules.ended_by_next:
        return records
    of_next = np.flatnonzero(np.isin(records.scope, rules.ended_by_next))
    of_next = of_next[np.argsort(records.scope[of_next], kind="stable")]
    scope, group, is_end = records.scope[of_next], records.group[of_next], records.is_end[of_next]
    is_open = np.append(False, (scope[1:] == scope[:-1]) & (group[1:] == group[:-1]) & ~is_end[:-1])[: len(of_next)]
    ending_starts = of_next[is_open & ~is_end]
    lone_ends = of_next[~is_open & is_end]
    copies = np.ones(len(records.scope), dtype=np.int64)
    copies[ending_starts] = 2
    # Ends without an open start follow a loop without iterations. A lost or damaged record may be the start, unless the
    # enclosing loop begins immediately before the end.
    warp = records.group[lone_ends] - records.first_group
    is_sound = (records.lost[warp] == 0) & ~np.isin(records.group[lone_ends], records.damaged)
    before = np.maximum(lone_ends - 1, 0)
    parents = np.array((*rules.parents, -1))[records.scope[lone_ends]]
    is_same_warp = (before < lone_ends) & (records.group[before] == records.group[lone_ends])
    begins_before = is_same_warp & ~records.is_end[before] & (records.scope[before] == parents)
    copies[lone_ends[is_sound | begins_before]] = 0
    at = np.repeat(np.arange(len(copies)), copies)
    stop = np.cumsum(copies)
    implied = stop[ending_starts] - 2
    is_end = records.is_end[at]
    is_end[implied] = True
    number = records.number[at] + (stop - np.arange(1, len(copies) + 1))[at]
    number[implied] -= 1
    begins = group_begins(np.diff(records.group, prepend=-1) != 0)
    number -= np.append(0, stop)[begins][at] - begins[at]
    return replace(records.at(at), number=number, is_end=is_end)


def _without_doubtful_iterations(pairs: Pairs, records: Records, rules: ScopeRules) -> Pairs:
    """Drop iterations that a damaged record may have merged or split.

    Iterations are separated by a start alone. If that start was another record, that one's partner is now unpaired. So
    an iteration is dropped if it contains an unpaired record, or a record of a scope around it; so are those that share
    its start or end, and an implied end without its start.
    """
    alone = np.concatenate((pairs.open_starts, pairs.stray_ends))
    if not alone.size:
        return pairs
    is_implied = records.is_end & np.isin(records.scope, rules.ended_by_next)
    is_implied &= np.append(records.scope[1:] == records.scope[:-1], False)
    is_implied &= np.append((records.cycles[1:] == records.cycles[:-1]) & ~records.is_end[1:], False)
    is_alone = np.zeros(len(records.scope), dtype=bool)
    is_alone[alone[~is_implied[alone]]] = True
    doubted = np.zeros(len(pairs.scope), dtype=bool)
    inner = inner_scopes(rules.parents)
    for scope in rules.ended_by_next:
        around = [outer for outer, within in enumerate(inner) if scope in within]
        before = np.append(0, np.cumsum(is_alone | np.isin(records.scope, around)))
        of_scope = np.flatnonzero(pairs.scope == scope)
        start_at, end_at = pairs.start_at[of_scope], pairs.end_at[of_scope]
        wrong = before[end_at] > before[start_at]
        wrong |= np.isin(end_at + 1, start_at[wrong]) | np.isin(start_at - 1, end_at[wrong])
        doubted[of_scope] = wrong
    stray_ends = np.sort(np.concatenate((pairs.stray_ends, pairs.end_at[doubted])))
    return Pairs(
        pairs.start_at[~doubted],
        pairs.end_at[~doubted],
        pairs.scope[~doubted],
        np.sort(np.concatenate((pairs.open_starts, pairs.start_at[doubted]))),
        stray_ends[~is_implied[stray_ends]],
    )


def inner_scopes(parents: Sequence[int]) -> list[list[int]]:
    """Return, for each scope of the table, the scopes inside it at any depth; outer scopes come first in the table."""
    inner: list[list[int]] = [[] for _ in parents]
    for scope in range(len(parents)):
        around = scope
        while 0 <= parents[around] < around:
            around = parents[around]
            inner[around].append(scope)
    return inner


def begun_amid_inner(
    starts: Numbers, order: Numbers, scope: NDArray[np.int16], group: Numbers, is_end: Mask, parents: Sequence[int]
) -> Mask:
    """Determine which ``starts``, each the first record of its scope in its ring, are not the true start of the scope.

    If a scope inside was open at the start, or had run before it, the ring lost the true start. ``starts`` are
    positions in ``order``, which sorts the records by scope, then time; the columns are sorted likewise.
    """
    wrong = np.zeros(len(starts), dtype=bool)
    bounds = np.searchsorted(scope, np.arange(len(parents) + 1))
    inner = inner_scopes(parents)
    for outer in np.unique(scope[starts[scope[starts] < len(parents)]]):
        of_outer = np.flatnonzero(scope[starts] == outer)
        at, warp = order[starts[of_outer]], group[starts[of_outer]]
        for begin, end in ((bounds[scope], bounds[scope + 1]) for scope in inner[outer]):
            if begin == end:
                continue
            following = begin + np.searchsorted(order[begin:end], at)
            before, after = np.maximum(following - 1, begin), np.minimum(following, end - 1)
            wrong[of_outer] |= (following > begin) & (group[before] == warp)
            wrong[of_outer] |= (following < end) & (group[after] == warp) & is_end[after]
    return wrong


def _entries_of_tags(records: Records, start_at: Numbers, end_at: Numbers, rules: ScopeRules) -> Numbers | int:
    if not rules.tags:
        return 0
    entries = np.where(records.is_end, 0, RECORDS_OF_TAG * np.array(rules.tags)[records.scope])
    # The tags of a start that implies an end precede both.
    implies_end = (records.scope[1:] == records.scope[:-1]) & records.is_end[:-1] & (np.diff(records.number) == 1)
    implying_starts = 1 + np.flatnonzero(implies_end & np.isin(records.scope[1:], rules.ended_by_next))
    entries[implying_starts - 1] = entries[implying_starts]
    entries[implying_starts] = 0
    before = np.cumsum(entries)
    between: Numbers | int = before[end_at] - before[start_at]
    return between


# A damaged end and a damaged start between two records may have split what now looks like one scope.
_MIN_DAMAGED_TO_DOUBT = 2


class Pairs(Struct, frozen=True):
    """The scopes that ran, by index of their records, ordered by start, outer scopes before inner ones."""

    start_at: Numbers
    end_at: Numbers
    scope: NDArray[np.int16]
    open_starts: Numbers
    stray_ends: Numbers


def pair_records(records: Records, rules: ScopeRules = NO_RULES) -> Pairs:
    """Match each start with the next end of the same scope in the same warp, unless they may not belong together.

    * At least two damaged entries between them may have been an end and a start. One suffices where a start alone ends
      a scope and begins the next.
    * Two starts of the scope precede the end, or two ends follow the start: one of the two is wrong.
    * The ring lost records, and the scope cannot have begun at this start (``begun_amid_inner``).
    """
    count = len(records.scope)
    # A stable sort keeps the records of one warp and scope in the order of time. NumPy sorts 16 bits by radix, in
    # linear time, and bytes twice as fast.
    key = records.scope.astype(np.uint8) if records.scope.max(initial=0) <= np.iinfo(np.uint8).max else records.scope
    order = np.argsort(key, kind="stable")
    scope, group, is_end = records.scope[order], records.group[order], records.is_end[order]
    same = (scope[1:] == scope[:-1]) & (group[1:] == group[:-1])
    alternates = is_end[1:] != is_end[:-1]
    joined = same & alternates & is_end[1:]
    repeats = same & ~alternates
    if repeats.any():
        joined[1:] &= ~repeats[:-1]
        joined[:-1] &= ~repeats[1:]
    starts = np.flatnonzero(joined)
    if records.damaged.size:
        start_at, end_at = order[starts], order[starts + 1]
        between = (records.number[end_at] - records.number[start_at]) - (end_at - start_at)
        between -= _entries_of_tags(records, start_at, end_at, rules)
        min_damaged = np.where(np.isin(scope[starts], rules.ended_by_next), 1, _MIN_DAMAGED_TO_DOUBT)
        starts = starts[between < min_damaged]
    if rules.parents and records.lost.any():
        warp = group[starts] - records.first_group
        is_after_loss = (records.lost[warp] > 0) & (records.cycles[order[starts]] >= records.oldest[1, warp])
        # The ring may have kept inner scopes of the iteration before the first start of an iteration.
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
