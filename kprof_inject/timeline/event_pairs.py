"""Match the starts of events with their ends, which another warp of the CTA may have recorded.

An event is asynchronous work (``ScopeKind.EVENT``). Several may be in flight; they end in the order in which they
started. How the warps of a CTA share an event decides which records belong together:

* Where each warp has started what it ends, each matches its own records. So it does where the first record of each is
  an end and the others match, as in a loop that ends what the iteration before has started.
* Where one warp starts and each of several ends every start, or one ends what each of several started, each of the
  several takes part in turn.
* Otherwise the warps share one queue, in the order of time. If several warps start or end, each start must have its
  end. If a warp does both, only one may be in flight. Otherwise the pairs are unknown.

Where a warp of the CTA lacks records, nothing is matched: a single missing record would shift all later pairs.

Proton's own parser (``pairAsyncEvents`` in Triton 3.9) has the same queue, except that a warp ends its own start first.
But it drops a start while the warp's last one is in flight, and all but the first end of a start.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.timeline.pairs import Pairs
from kprof_inject.timeline.records import Records

_Numbers = NDArray[np.int64]
_Mask = NDArray[np.bool_]
_Matched = tuple[_Numbers, _Numbers]


def match_events(records: Records, events: tuple[int, ...], warps: int) -> Pairs:
    """Match the records of ``events`` among the ``records`` of whole CTAs, each with ``warps`` recorded warps.

    The pairs are ordered by start. A start has several ends if several warps end it, and the other way round.
    """
    at = np.flatnonzero(np.isin(records.scope, events)) if events else np.zeros(0, dtype=np.int64)
    lacks = records.lost > 0
    lacks[records.damaged - records.first_group] = True
    of_lacking: _Mask = np.repeat(lacks.reshape(-1, warps).any(axis=1), warps)
    whole = at[~of_lacking[records.group[at] - records.first_group]]
    start_at, end_at = _matched(records, whole, warps) if whole.size else (whole, whole)
    order = np.lexsort((end_at, start_at))
    start_at, end_at = start_at[order], end_at[order]
    is_alone = np.ones(len(records.scope), dtype=bool)
    is_alone[start_at] = is_alone[end_at] = False
    alone = at[is_alone[at]]
    ends_alone = records.is_end[alone]
    return Pairs(start_at, end_at, records.scope[start_at], alone[~ends_alone], alone[ends_alone])


def _matched(records: Records, at: _Numbers, warps: int) -> _Matched:
    """Return the starts and ends that belong together, of CTAs that have all their records."""
    scope = records.scope[at].astype(np.int64)
    key = records.group[at] // warps * (scope.max() + 1) + scope
    # The records are in order of warp and time, so each warp's of one event are now consecutive.
    order = np.argsort(key, kind="stable")
    at, key = at[order], key[order]
    queue = np.cumsum(np.diff(key, prepend=key[0]) != 0)
    sharing = _Sharing.of(queue, records.group[at], records.is_end[at])
    in_turn = sharing.in_turn[queue]
    starts, ends = _turns(at[in_turn], queue[in_turn], sharing.run[in_turn], records)
    queued = np.flatnonzero(sharing.by_warp[queue] | sharing.by_time[queue])
    line = np.where(sharing.by_warp[queue], sharing.run, len(at) + queue)[queued]
    first, last = _lines(at[queued], line, sharing.is_shared[queue][queued], sharing.is_mixed[queue][queued], records)
    return np.concatenate((starts, first)), np.concatenate((ends, last))


class _Sharing(Struct, frozen=True):
    """Share that each warp of a CTA has in an event.

    A run is what one warp recorded of one CTA's event; ``run`` has its number for each record. The others have a value
    for each event of a CTA: whether it is matched by warp, in turn or by time; whether several warps start or end it,
    if it is not matched by warp; and whether one of these does both.
    """

    run: _Numbers
    by_warp: _Mask
    in_turn: _Mask
    by_time: _Mask
    is_shared: _Mask
    is_mixed: _Mask

    @classmethod
    def of(cls, queue: _Numbers, group: _Numbers, is_end: _Mask) -> _Sharing:
        """Compare the runs of each event, numbered by ``queue``; the records are in order of event, warp and time."""
        begins = np.flatnonzero(np.append(True, (np.diff(queue) != 0) | (np.diff(group) != 0)))
        run = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(queue))))
        owner = queue[begins]
        count = int(queue[-1]) + 1
        ended = np.bincount(run[is_end], minlength=len(begins))
        started = np.bincount(run, minlength=len(begins)) - ended
        lowest = np.minimum.reduceat(_in_flight(run, is_end), begins)
        does_both = (started > 0) & (ended > 0)
        is_late = does_both & is_end[begins] & (lowest == -1)
        ahead, both, late = (np.bincount(owner[which], minlength=count) for which in (lowest < 0, does_both, is_late))
        by_warp = (ahead == 0) | (late == np.bincount(owner))
        starts, ends = (np.bincount(owner, side, count).astype(np.int64) for side in (started, ended))
        starters, enders = (np.bincount(owner[side > 0], minlength=count) for side in (started, ended))
        # A warp that takes part in every turn, or on that side in none.
        all_end = np.bincount(owner[(ended > 0) & (ended != starts[owner])], minlength=count) == 0
        all_start = np.bincount(owner[(started > 0) & (started != ends[owner])], minlength=count) == 0
        in_turn = ~by_warp & (((starters == 1) & (enders > 1) & all_end) | ((enders == 1) & (starters > 1) & all_start))
        is_shared = ~by_warp & ((starters > 1) | (enders > 1))
        by_time = ~by_warp & ~in_turn & (~is_shared | (starts == ends))
        return cls(run, by_warp, in_turn, by_time, is_shared, is_shared & (both > 0))


def _in_flight(line: _Numbers, is_end: _Mask) -> _Numbers:
    """Return how many starts of its line precede each record, itself included, less the ends."""
    step = np.where(is_end, -1, 1)
    in_flight = np.cumsum(step)
    begins = np.flatnonzero(np.append(True, np.diff(line) != 0)[: len(line)])
    before = np.repeat((in_flight - step)[begins], np.diff(np.append(begins, len(line))))
    own: _Numbers = in_flight - before
    return own


def _rank(line: _Numbers) -> _Numbers:
    """Return the place of each record in its line; the lines ascend."""
    rank: _Numbers = np.arange(len(line)) - np.searchsorted(line, line)
    return rank


def _turns(at: _Numbers, queue: _Numbers, run: _Numbers, records: Records) -> _Matched:
    """Match each warp's k-th record on the side of several with the k-th record on the side of one.

    If an end precedes its start, the warps took no turns, and the pairs of the event are unknown.
    """
    is_end = records.is_end[at]
    sides = [np.flatnonzero(is_end == side) for side in (False, True)]
    several = [_has_several_runs(queue[side], run[side])[queue[side]] for side in sides]
    joined: list[_Matched] = []
    for many, one in ((0, 1), (1, 0)):
        those, single = sides[many][several[many]], sides[one]
        partner = single[np.searchsorted(queue[single], queue[those]) + _rank(run[those])] if those.size else those
        joined.append((those, partner) if many == 0 else (partner, those))
    starts, ends = (np.concatenate(side) for side in zip(*joined, strict=True))
    wrong = queue[ends][records.cycles[at[ends]] < records.cycles[at[starts]]]
    sound = ~np.isin(queue[ends], wrong)
    return at[starts[sound]], at[ends[sound]]


def _has_several_runs(queue: _Numbers, run: _Numbers) -> _Mask:
    """Return which queues have records of several runs here."""
    size = int(queue.max(initial=-1)) + 1
    begins = np.flatnonzero(np.append(True, np.diff(run) != 0)[: len(run)])
    several: _Mask = np.bincount(queue[begins], minlength=size) > 1
    return several


def _lines(at: _Numbers, line: _Numbers, is_shared: _Mask, is_mixed: _Mask, records: Records) -> _Matched:
    """Match the starts and ends of each line in the order of time; an end with nothing in flight is unmatched.

    A line that is shared is unknown if there is such an end, and a mixed one also if several are in flight.
    """
    order = np.lexsort((records.is_end[at], records.cycles[at], line))
    at, line = at[order], line[order]
    in_flight = _in_flight(line, records.is_end[at])
    known = ~np.isin(line, line[(is_shared[order] & (in_flight < 0)) | (is_mixed[order] & (in_flight > 1))])
    at, line = at[known], line[known]
    is_end = records.is_end[at]
    in_flight = _in_flight(line, is_end)
    # Lines are so far apart that none reaches the level of the one before.
    far = line * -(2 * len(line) + 1)
    lowest = np.minimum.accumulate(np.minimum(in_flight, 0) + far) - far
    is_first = np.append(True, np.diff(line) != 0)[: len(line)]
    before = np.where(is_first, 0, np.append(0, lowest[:-1])[: len(line)])
    starts = np.flatnonzero(~is_end)
    ends = np.flatnonzero(is_end & (in_flight >= before))
    partner = starts[np.searchsorted(line[starts], line[ends]) + _rank(line[ends])] if ends.size else ends
    return at[partner], at[ends]
