"""Occupation of the SMs by a launch's CTAs: waves, the tail, idle time, and what the launch would win without it.

The device starts a CTA wherever a slot is free, so waves overlap in time: a later one begins while CTAs of the one
before still run. A wave is therefore defined by the order in which CTAs begin: with room for ``c`` of them, the first
``c`` are the first wave, the next ``c`` the second.

An SM is idle before its first CTA, between two, and after its last. The duration without idle time is computed by
scheduling the same CTAs again, in the order in which they began, each to the slot that is free first, as the device
does. So time lost on one SM costs the launch nothing where others take its CTAs, and much where each SM has only one.
"""

from __future__ import annotations

import heapq
from math import ceil

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.columns import Numbers, Rows, largest, merged_spans, smallest
from kprof_inject.timeline.timeline import Timeline


class SmWork(Struct, frozen=True, eq=False):
    """Work of the SMs that ran a CTA, ``ids`` ascending; ``row_of`` has the row of each CTA's SM."""

    ids: Numbers
    row_of: Numbers
    ctas: Numbers
    done_ns: Numbers

    @classmethod
    def of(cls, ctas: Rows) -> SmWork:
        """Sum up the work of ``ctas`` (``CTA_COLUMNS``) by SM."""
        ids, row_of = np.unique(ctas["sm"], return_inverse=True)
        done_ns = largest(row_of, end_of_work_ns(ctas), len(ids))
        return cls(ids, row_of, np.bincount(row_of, minlength=len(ids)), done_ns)


def end_of_work_ns(ctas: Rows) -> Numbers:
    """Return when each CTA finished its work: not before it begins, even if timers contradict each other."""
    ends_ns: Numbers = np.maximum(ctas["pre_final_ns"], ctas["init_ns"])
    return ends_ns


def _left_ns(ctas: Rows) -> Numbers:
    ends_ns: Numbers = np.maximum(ctas["post_final_ns"], end_of_work_ns(ctas))
    return ends_ns


def cycles_with_ctas(ctas: Rows, clock_hz: float, end: str = "pre_final_ns") -> int:
    """Return the cycles in which SMs had a CTA at work, summed over the SMs.

    With ``post_final_ns`` as the end, the time in which CTAs write out their records counts too.
    """
    busy_ns = _covered_ns(ctas["sm"], ctas["init_ns"], np.maximum(ctas[end], ctas["init_ns"]))
    return round(busy_ns * clock_hz / 1e9)


def cycles_of_all_ctas(cycles: Numbers, timeline: Timeline) -> Numbers:
    """Estimate the cycles of the SMs in which scopes ran, from those of the CTAs that recorded (scope), summed.

    The other CTAs on an SM are taken to be in a scope as often, and independently.
    """
    hz_per_ns = timeline.clock.clock_hz / 1e9
    own_cycles, all_cycles = (
        hz_per_ns * float((end_of_work_ns(ctas) - ctas["init_ns"]).sum()) for ctas in (timeline.ctas, timeline.all_ctas)
    )
    busy_cycles = cycles_with_ctas(timeline.all_ctas, timeline.clock.clock_hz)
    if not own_cycles or not busy_cycles:
        return cycles
    share = np.clip(cycles / own_cycles, 0.0, 1.0)
    return np.rint(busy_cycles * (1 - (1 - share) ** (all_cycles / busy_cycles))).astype(np.int64)


def _covered_ns(sm: NDArray[np.integer], begin_ns: Numbers, until_ns: Numbers) -> int:
    spans = merged_spans(np.stack([sm.astype(np.int64), begin_ns, until_ns], axis=1))
    return int((spans[:, 2] - spans[:, 1]).sum())


class Ending(Struct, frozen=True):
    """Cost of the tail: SMs that have finished their last work idle until the launch ends.

    All SMs that ran a CTA together idle for ``idle_share`` of their time, 0 to 1. If all ended at once, the launch
    would be shorter by that share.

    ``fullest_sms`` of the ``sms`` ran the most CTAs, ``most_ctas``. The other SMs idle for ``count_share`` because of
    that: it is the median delay by which those with the most CTAs finish later, but at most what ``ctas`` of equal
    length would lose, and no more than all SMs would gain by working at the pace of those with fewer. The rest is due
    to CTAs that take longer than others: their median is ``cta_ns``; CTA ``last_cta`` on ``last_sm`` ends last and
    takes ``last_cta_ns``.
    """

    sms: int
    idle_share: float
    most_ctas: int
    fullest_sms: int
    count_share: float
    ctas: int
    cta_ns: float
    last_cta: int
    last_sm: int
    last_cta_ns: int
    longest_first_share: float = 0.0
    """Share by which the launch would be shorter if the longest CTAs began first; 0 if few slots are idle."""
    sharing_share: float | None = None
    """Share by which SMs with the most CTAs take less time for each of them than SMs with fewer; None unless all CTAs
    run at once, and not equally many on all SMs."""

    @property
    def uneven_share(self) -> float:
        """Idle share that the number of CTAs does not explain."""
        return self.idle_share - self.count_share


def ending_of(timeline: Timeline, slots_per_sm: int) -> Ending | None:
    """Compute the cost of the tail; None if no CTA ran, or if all falls into one step of the timer."""
    ctas = timeline.all_ctas
    if not ctas.size:
        return None
    work, end_ns, begin_ns = SmWork.of(ctas), end_of_work_ns(ctas), int(ctas["init_ns"].min())
    duration_ns = int(end_ns.max()) - begin_ns
    if not duration_ns:
        return None
    worked_ns = work.done_ns - begin_ns
    idle_share = 1 - float(worked_ns.mean()) / duration_ns
    fullest = work.ctas == work.ctas.max()
    count_share, sharing_share = 0.0, None
    if not fullest.all():
        later_ns = float(np.median(worked_ns[fullest]) - np.median(worked_ns[~fullest]))
        later_share = max(later_ns, 0.0) / duration_ns * float((~fullest).mean())
        ctas_per_sm = len(ctas) / len(work.ids)
        # CTAs that share an SM hide each other's latency. Spread evenly, they would lose that.
        others_ns = float(np.median(worked_ns[~fullest] / work.ctas[~fullest]))
        at_pace_of_others = max(1 - ctas_per_sm * others_ns / duration_ns, 0.0)
        # The device starts each CTA where a slot is free, so no SM runs one more than it must. If one did, the others
        # had CTAs that took longer.
        waves = ctas_per_sm / slots_per_sm
        if waves <= 1:
            fullest_ns = float(np.median(worked_ns[fullest] / work.ctas[fullest]))
            sharing_share = max(1 - fullest_ns / max(others_ns, 1.0), 0.0)
        count_share = min(later_share, idle_share, 1 - waves / ceil(waves), at_pace_of_others)
    longest_first_ns = duration_ns
    if 1 - (end_ns - ctas["init_ns"]).sum() / (len(work.ids) * slots_per_sm * duration_ns) >= _MIN_UNEVEN:
        longest_first = np.argsort(ctas["init_ns"] - end_ns, kind="stable")
        longest_first_ns = queued_ns(ctas[longest_first], slots_per_sm)
    last = int(end_ns.argmax())
    cta_ns = end_ns - ctas["init_ns"]
    return Ending(
        sms=len(work.ids),
        idle_share=idle_share,
        most_ctas=int(work.ctas.max()),
        fullest_sms=int(fullest.sum()),
        count_share=count_share,
        ctas=len(ctas),
        cta_ns=float(np.median(cta_ns)),
        last_cta=int(ctas["cta"][last]),
        last_sm=int(ctas["sm"][last]),
        last_cta_ns=int(cta_ns[last]),
        longest_first_share=max(1 - longest_first_ns / duration_ns, 0.0),
        sharing_share=sharing_share,
    )


_MIN_UNEVEN = 0.05  # a smaller idle share is not worth the time to hand out all CTAs again


class LastWave(Struct, frozen=True):
    """The CTAs that began last: how many, on how many SMs, and the time from the first one's begin to the end of all.

    ``share`` is that time's share of the launch.
    """

    ctas: int
    sms: int
    duration_ns: int
    share: float


class Tail(Struct, frozen=True):
    """Time from when the first SM has finished its last work to the end of the launch.

    ``busy_sms`` is the mean number of SMs that still work in that time; None if all end at once. ``Ending.idle_share``
    is the cost of the tail, because the first SM may finish long before all others.
    """

    duration_ns: int
    share: float
    busy_sms: float | None


class Waves(Struct, frozen=True):
    """Waves and idle time of a launch.

    ``sms`` is the number of SMs that ran a CTA, ``highest_sm`` the highest id among them; how many the device has is
    unknown. Each had room for ``slots_per_sm`` CTAs at once, according to ``slots_source``: the driver ("occupancy"),
    or the largest number that was seen at once ("observed").

    ``fill`` is the number of CTAs over the slots of those SMs, ``waves`` the same rounded up. ``duration_ns`` extends
    from the first CTA's begin to the last one's end. For ``idle_sm_share`` of it SMs had no CTA, and for
    ``idle_slot_share`` slots had none: a CTA occupies its slot until its records are copied, but never longer than its
    SM has work. Both are None if the duration is 0, because the launch fits into one step of the timer.
    """

    ctas: int
    sms: int
    highest_sm: int
    slots_per_sm: int
    slots_source: str
    fill: float
    waves: int
    duration_ns: int
    last: LastWave
    tail: Tail
    idle_sm_share: float | None
    idle_slot_share: float | None


def launch_duration_ns(timeline: Timeline) -> int:
    """Return the time from the first CTA's begin to the last one's end of work; 0 if none ran."""
    ctas = timeline.all_ctas
    return int(end_of_work_ns(ctas).max() - ctas["init_ns"].min()) if ctas.size else 0


def waves_of(timeline: Timeline) -> Waves | None:
    """Compute the waves of a launch; None if no CTA ran, or if no timer was read that gives their begins and ends."""
    if timeline.clock.source in (ClockSource.NOMINAL, ClockSource.TIMER):
        return None
    occupancy, ctas = timeline.launch.kernel.with_records.ctas_per_sm, _by_begin(timeline.all_ctas)
    if not ctas.size:
        return None
    work, begin_ns, end_ns, left_ns = SmWork.of(ctas), ctas["init_ns"], end_of_work_ns(ctas), _left_ns(ctas)
    # An SM never holds more CTAs than it has room for; if more were seen, the driver's occupancy is of another kernel.
    # CTAs that all fall into one step of the timer may have run one after another, and prove nothing. Warps of a CTA
    # that does not record end apart, and their room goes to the next CTA before the last has ended.
    takes_time = left_ns > begin_ns
    seen = 0
    if not timeline.unrecorded.size:
        seen = _max_at_once(work.row_of[takes_time], begin_ns[takes_time], left_ns[takes_time])
    slots, slots_source = occupancy or 0, "occupancy"
    if occupancy is None or occupancy < seen:
        slots, slots_source = max(slots, _max_at_once(work.row_of, begin_ns, left_ns)), "observed"
    sms = len(work.ids)
    capacity = sms * slots
    waves = -(-len(ctas) // capacity)
    duration_ns = int(end_ns.max() - begin_ns[0])
    last = (waves - 1) * capacity
    last_ns = int(end_ns[last:].max() - begin_ns[last])
    tail_ns = int(work.done_ns.max() - work.done_ns.min())
    busy_in_tail_ns = int((work.done_ns - work.done_ns.min()).sum())
    # At the end of the launch an SM copies records, which it would not do without us.
    here_until_ns = np.minimum(left_ns, work.done_ns[work.row_of])
    idle_sm_share = idle_slot_share = None
    if duration_ns:
        idle_sm_share = 1 - _covered_ns(work.row_of, begin_ns, here_until_ns) / (sms * duration_ns)
        idle_slot_share = 1 - int((here_until_ns - begin_ns).sum()) / (capacity * duration_ns)
    return Waves(
        ctas=len(ctas),
        sms=sms,
        highest_sm=int(ctas["sm"].max()),
        slots_per_sm=slots,
        slots_source=slots_source,
        fill=len(ctas) / capacity,
        waves=waves,
        duration_ns=duration_ns,
        last=LastWave(len(ctas) - last, len(np.unique(work.row_of[last:])), last_ns, last_ns / max(duration_ns, 1)),
        tail=Tail(tail_ns, tail_ns / max(duration_ns, 1), busy_in_tail_ns / tail_ns if tail_ns else None),
        idle_sm_share=idle_sm_share,
        idle_slot_share=idle_slot_share,
    )


def _by_begin(ctas: Rows) -> Rows:
    # Those that begin in one step of the timer are started in the order of their numbers.
    return ctas[np.lexsort((ctas["cta"], ctas["init_ns"]))]


def _max_at_once(sm: Numbers, begin_ns: Numbers, left_ns: Numbers) -> int:
    """Return the largest number of these CTAs that were on one SM at once, at least 1."""
    # Within one step of the timer, CTAs may leave before others come, but none leaves before it came itself.
    rank = np.concatenate((np.full(len(sm), 1), np.where(left_ns > begin_ns, 0, 2)))
    order = np.lexsort((rank, np.concatenate((begin_ns, left_ns)), np.tile(sm, 2)))
    # All CTAs of an SM have left it before the sum reaches the next SM.
    resident = np.cumsum(np.where(rank[order] == 1, 1, -1))
    return max(int(resident.max(initial=0)), 1)


# Smaller gaps of an SM, as a share of the launch, are not worth a simulation of the launch without them.
_MIN_GAPS = 0.1


class IdleSms(Struct, frozen=True):
    """Idle time of the ``sms`` that ran a CTA.

    The three shares are of all their time, 0 to 1, and add up to ``Waves.idle_sm_share``. A CTA occupies its SM until
    its records are copied, except for an SM's last one.

    Between CTAs there are ``gaps`` of ``gap_ns`` on average; without them, the launch would be shorter by
    ``gaps_won_share`` of its time.
    """

    sms: int
    before_share: float
    between_share: float
    after_share: float
    gaps: int
    gap_ns: float
    gaps_won_share: float

    @property
    def work_share(self) -> float:
        """Share of their time in which the SMs have a CTA."""
        return 1 - self.before_share - self.between_share - self.after_share


def idle_sms_of(ctas: Rows, slots_per_sm: int) -> IdleSms | None:
    """Compute the idle time of CTAs that all have times; None if there are none, or all fall into one timer step."""
    if not ctas.size:
        return None
    ctas = _by_begin(ctas)
    work = SmWork.of(ctas)
    begin_ns = int(ctas["init_ns"][0])
    duration_ns = int(work.done_ns.max()) - begin_ns
    if not duration_ns:
        return None
    waits_ns = smallest(work.row_of, ctas["init_ns"], len(work.ids)) - begin_ns
    left_ns = np.minimum(_left_ns(ctas), work.done_ns[work.row_of])
    row, begins_ns, ends_ns = merged_spans(np.stack([work.row_of, ctas["init_ns"], left_ns], axis=1)).T
    same_sm = row[1:] == row[:-1]
    gaps_ns = (begins_ns[1:] - ends_ns[:-1])[same_sm]
    gaps_of_sm_ns = np.bincount(row[1:][same_sm], gaps_ns, len(work.ids)).astype(np.int64)
    whole_ns = len(work.ids) * duration_ns
    gapless_ns = duration_ns
    if gaps_of_sm_ns.max() >= _MIN_GAPS * duration_ns:
        gapless_ns = queued_ns(ctas, slots_per_sm, waits_ns)
    return IdleSms(
        sms=len(work.ids),
        before_share=int(waits_ns.sum()) / whole_ns,
        between_share=int(gaps_ns.sum()) / whole_ns,
        after_share=int((begin_ns + duration_ns - work.done_ns).sum()) / whole_ns,
        gaps=len(gaps_ns),
        gap_ns=float(gaps_ns.mean()) if gaps_ns.size else 0.0,
        gaps_won_share=max(1 - gapless_ns / duration_ns, 0.0),
    )


def queued_ns(ctas: Rows, slots_per_sm: int, free_from_ns: Numbers | None = None) -> int:
    """Return the time of CTAs that begin in this order without gaps, with slots free from ``free_from_ns`` (SM) on."""
    if free_from_ns is None:
        free_from_ns = np.zeros(len(np.unique(ctas["sm"])), np.int64)
    works_ns, stays_ns = end_of_work_ns(ctas) - ctas["init_ns"], _left_ns(ctas) - ctas["init_ns"]
    free_ns = np.repeat(free_from_ns, slots_per_sm).tolist()
    heapq.heapify(free_ns)
    done_ns = 0
    for work_ns, stay_ns in zip(works_ns.tolist(), stays_ns.tolist(), strict=True):
        done_ns = max(done_ns, free_ns[0] + work_ns)
        heapq.heapreplace(free_ns, free_ns[0] + stay_ns)
    return int(done_ns)
