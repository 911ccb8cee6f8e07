"""What the SMs lose at the end of a launch, when some have no more work and others have: because these were given more
CTAs, or because their CTAs took longer."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from kprof_inject.timeline.groups import largest
from kprof_inject.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Ending:
    """From when an SM has done the last of its work to the end of the launch it idles: all SMs that ran a CTA together
    for ``idle_share`` of their time, 0 to 1. So much shorter would the launch be if all ended at once.

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
    end_ns = np.maximum(ctas["pre_final_ns"], ctas["init_ns"])
    duration_ns = int(end_ns.max() - ctas["init_ns"].min())
    if not duration_ns:
        return None
    sms, sm = np.unique(ctas["sm"], return_inverse=True)
    dry_ns = largest(sm, end_ns, len(sms)) - int(ctas["init_ns"].min())
    idle_share = 1 - float(dry_ns.mean()) / duration_ns
    counts = np.bincount(sm)
    fullest = counts == counts.max()
    count_share = 0.0
    if not fullest.all():
        later_ns = float(np.median(dry_ns[fullest]) - np.median(dry_ns[~fullest]))
        later_share = max(later_ns, 0.0) / duration_ns * float((~fullest).mean())
        count_share = min(later_share, idle_share, _lost_by_count(len(ctas) / len(sms)))
    last = int(end_ns.argmax())
    cta_ns = end_ns - ctas["init_ns"]
    return Ending(
        len(sms),
        idle_share,
        int(counts.max()),
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
