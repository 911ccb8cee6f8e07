"""Idle time of the SMs of a launch, and how much shorter the launch would be without it.

An SM is idle before its first CTA, between two, and after its last. The shorter duration is computed by scheduling the
same CTAs again, in the order in which they began, each to the slot that is free first, as the device does. So time lost
on one SM costs the launch nothing where others take its CTAs, and much where each SM has only one.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.columns import smallest
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import SmWork, Waves, end_of_work_ns

# Share of the launch that an SM must wait to count as late.
_LATE = 0.1


@dataclass(frozen=True, slots=True)
class IdleSms:
    """Idle time of the ``sms`` that ran a CTA.

    The three shares are of all their time, 0 to 1, and add up to ``Waves.idle_sm_share``. A CTA occupies its SM until
    its records are copied, except for an SM's last one.

    The last SM to begin did so ``longest_wait_ns`` after the first, and ``late_sms`` wait for at least a tenth of the
    launch: had all begun at once, the launch would be shorter by ``late_won_share`` of its time. Between CTAs there are
    ``gaps`` of ``gap_ns`` on average; without them, it would be shorter by ``gaps_won_share``.
    """

    sms: int
    before_share: float
    between_share: float
    after_share: float
    late_sms: int
    longest_wait_ns: int
    late_won_share: float
    gaps: int
    gap_ns: float
    gaps_won_share: float

    @property
    def work_share(self) -> float:
        """Share of their time in which the SMs have a CTA."""
        return 1 - self.before_share - self.between_share - self.after_share


def idle_of(timeline: Timeline, waves: Waves | None) -> IdleSms | None:
    """Compute the idle time of a launch with these ``waves``.

    None without waves; then no timer gives the times of its CTAs.
    """
    return idle_sms_of(timeline.ctas, waves.slots_per_sm, timeline.clock.timer_step_ns) if waves else None


def idle_sms_of(ctas: NDArray[np.void], slots_per_sm: int, timer_step_ns: int) -> IdleSms | None:
    """Compute the idle time of CTAs that all have times.

    None if there are none, or if all fall into one step of the timer.
    """
    if not ctas.size:
        return None
    ctas = ctas[np.lexsort((ctas["cta"], ctas["init_ns"]))]
    work = SmWork.of(ctas)
    begin_ns = int(ctas["init_ns"][0])
    duration_ns = int(work.done_ns.max()) - begin_ns
    if not duration_ns:
        return None
    waits_ns = smallest(work.row_of, ctas["init_ns"], len(work.ids)) - begin_ns
    gaps_ns, gaps_of_sm_ns = _gaps(ctas, work)
    whole_ns = len(work.ids) * duration_ns
    gapless_ns, late_won_ns = duration_ns, 0
    if gaps_of_sm_ns.max() >= _LATE * duration_ns:
        gapless_ns = _Queue.of(ctas, slots_per_sm).duration_ns(waits_ns)
    if waits_ns.max() >= _LATE * duration_ns:
        queue = _Queue.of(ctas, slots_per_sm)
        # CTAs that follow another one still come after a gap.
        followed = max(len(ctas) - len(work.ids) * slots_per_sm, 1)
        gap_ns = int(gaps_ns.sum()) * slots_per_sm // followed
        at_once_ns = queue.duration_ns(np.zeros_like(waits_ns), gap_ns)
        # The timer does not resolve differences below one step.
        late_won_ns = max(queue.duration_ns(waits_ns, gap_ns) - at_once_ns - timer_step_ns, 0)
    return IdleSms(
        sms=len(work.ids),
        before_share=int(waits_ns.sum()) / whole_ns,
        between_share=int(gaps_ns.sum()) / whole_ns,
        after_share=int((begin_ns + duration_ns - work.done_ns).sum()) / whole_ns,
        late_sms=int(np.count_nonzero(waits_ns >= _LATE * duration_ns)),
        longest_wait_ns=int(waits_ns.max()),
        late_won_share=min(late_won_ns / duration_ns, 1.0),
        gaps=len(gaps_ns),
        gap_ns=float(gaps_ns.mean()) if gaps_ns.size else 0.0,
        gaps_won_share=max(1 - gapless_ns / duration_ns, 0.0),
    )


def _gaps(ctas: NDArray[np.void], work: SmWork) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how long SMs had no CTA between two, and the sum for each SM; CTAs are in the order of their begins."""
    order = np.argsort(work.row_of, kind="stable")
    row, begin_ns = work.row_of[order], ctas["init_ns"][order]
    left_ns = np.minimum(_left_ns(ctas)[order], work.done_ns[row])
    gaps_ns = np.zeros(len(row), dtype=np.int64)
    # One running maximum serves all SMs if each SM's times are shifted beyond those of the SM before.
    far = row * (int(left_ns.max()) - int(begin_ns.min()) + 1) - int(begin_ns.min())
    here_until_ns = np.maximum.accumulate(left_ns + far)
    same_sm = row[1:] == row[:-1]
    gaps_ns[1:] = np.where(same_sm, np.maximum(begin_ns[1:] + far[1:] - here_until_ns[:-1], 0), 0)
    return gaps_ns[gaps_ns > 0], np.bincount(row, gaps_ns, len(work.ids)).astype(np.int64)


def _left_ns(ctas: NDArray[np.void]) -> NDArray[np.int64]:
    left_ns: NDArray[np.int64] = np.maximum(ctas["post_final_ns"], end_of_work_ns(ctas))
    return left_ns


@dataclass(frozen=True, slots=True)
class _Queue:
    """CTAs in the order of their begins: how long each works, and how long it occupies a slot."""

    slots_per_sm: int
    works_ns: Sequence[int]
    stays_ns: Sequence[int]

    @classmethod
    def of(cls, ctas: NDArray[np.void], slots_per_sm: int) -> _Queue:
        begin_ns = ctas["init_ns"]
        return cls(slots_per_sm, (end_of_work_ns(ctas) - begin_ns).tolist(), (_left_ns(ctas) - begin_ns).tolist())

    def duration_ns(self, free_from_ns: NDArray[np.int64], gap_ns: int = 0) -> int:
        """Return how long the CTAs take on slots that are free from ``free_from_ns`` (SM), with gaps between CTAs."""
        free_ns = np.repeat(free_from_ns, self.slots_per_sm).tolist()
        heapq.heapify(free_ns)
        done_ns = 0
        for works_ns, stays_ns in zip(self.works_ns, self.stays_ns, strict=True):
            begin_ns = free_ns[0]
            done_ns = max(done_ns, begin_ns + works_ns)
            heapq.heapreplace(free_ns, begin_ns + stays_ns + gap_ns)
        return done_ns
