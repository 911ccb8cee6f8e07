"""The tail of a launch, from when the first SM has no more work to the end, and what the SMs lose in it: because others
were given more CTAs, or because their CTAs took longer."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.groups import largest
from kprof_inject.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True, eq=False)
class SmWork:
    """The SMs that ran a CTA, ``ids`` ascending: how many each ran, and when it had done the last of its work.
    ``row_of`` has for each CTA the row of its SM."""

    ids: NDArray[np.int64]
    row_of: NDArray[np.int64]
    ctas: NDArray[np.int64]
    done_ns: NDArray[np.int64]

    @classmethod
    def of(cls, ctas: NDArray[np.void]) -> SmWork:
        ids, row_of = np.unique(ctas["sm"], return_inverse=True)
        return cls(
            ids, row_of, np.bincount(row_of, minlength=len(ids)), largest(row_of, end_of_work_ns(ctas), len(ids))
        )


def end_of_work_ns(ctas: NDArray[np.void]) -> NDArray[np.int64]:
    """When each CTA had done its work; timers that contradict each other make none run backwards."""
    ends_ns: NDArray[np.int64] = np.maximum(ctas["pre_final_ns"], ctas["init_ns"])
    return ends_ns


@dataclass(frozen=True, slots=True)
class Ending:
    """What the tail costs: from when an SM has done the last of its work to the end of the launch it idles, all SMs
    that ran a CTA together for ``idle_share`` of their time, 0 to 1. So much shorter would the launch be if all ended
    at once.

    ``fullest_sms`` of the ``sms`` ran the most CTAs, ``most_ctas``. For ``count_share`` the others idle because of
    that: in the middle, those that ran the most are done so much later; but no more than ``ctas`` that all took as long
    would lose. The rest is for CTAs that take longer than others: they take ``cta_ns`` in the middle, CTA ``last_cta``
    on ``last_sm`` ends last and takes ``last_cta_ns``.
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

    @property
    def uneven_share(self) -> float:
        """What the number of CTAs does not explain."""
        return self.idle_share - self.count_share


def ending_of(timeline: Timeline) -> Ending | None:
    """None if no CTA ran, or if all of the launch falls into one step of the timer."""
    ctas = timeline.ctas
    if not ctas.size:
        return None
    work, end_ns, begin_ns = SmWork.of(ctas), end_of_work_ns(ctas), int(ctas["init_ns"].min())
    duration_ns = int(end_ns.max()) - begin_ns
    if not duration_ns:
        return None
    worked_ns = work.done_ns - begin_ns
    idle_share = 1 - float(worked_ns.mean()) / duration_ns
    fullest = work.ctas == work.ctas.max()
    count_share = 0.0
    if not fullest.all():
        later_ns = float(np.median(worked_ns[fullest]) - np.median(worked_ns[~fullest]))
        later_share = max(later_ns, 0.0) / duration_ns * float((~fullest).mean())
        count_share = min(later_share, idle_share, _lost_by_count(len(ctas) / len(work.ids)))
    last = int(end_ns.argmax())
    cta_ns = end_ns - ctas["init_ns"]
    return Ending(
        len(work.ids),
        idle_share,
        int(work.ctas.max()),
        int(fullest.sum()),
        count_share,
        len(ctas),
        float(np.median(cta_ns)),
        int(ctas["cta"][last]),
        int(ctas["sm"][last]),
        int(cta_ns[last]),
    )


def _lost_by_count(ctas_per_sm: float) -> float:
    """The share of their time that SMs idle at the end if all CTAs take as long: the device starts each where a slot is
    free, so that none runs one more than it must. Where one did, the others had CTAs that took longer."""
    return 1 - ctas_per_sm / ceil(ctas_per_sm)
