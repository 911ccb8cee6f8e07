"""How many CTAs were active at a time, on each SM and on all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kprof_inject.export.drawing.scene import Counters, Numbers
from kprof_inject.timeline.clocks.axis import DeviceClock

_CHUNK_CTAS = 1 << 16
_UNIT = "CTAs"


def active_ctas(ctas: NDArray[np.void], pid: int, clock: DeviceClock) -> Iterator[Counters]:
    """A counter for all SMs, then one for each SM: of CTAs (``CTA_COLUMNS``) between their begin and the end of
    copying their records. Nothing if there are none."""
    if not ctas.size:
        return
    yield Counters(pid, ["all SMs"], _UNIT, *_changes(ctas, np.zeros(len(ctas), dtype=np.int64), clock))
    order = np.argsort(ctas["sm"], kind="stable")
    begins = np.flatnonzero(np.diff(ctas["sm"][order], prepend=-1))
    # As many whole SMs at a time as make up a chunk, and at least one.
    cuts = begins[np.flatnonzero(np.diff(begins // _CHUNK_CTAS, prepend=-1))]
    for start, end in zip(cuts.tolist(), [*cuts[1:].tolist(), len(ctas)], strict=True):
        part = ctas[order[start:end]]
        sms, counter = np.unique(part["sm"], return_inverse=True)
        yield Counters(pid, [f"SM {sm}" for sm in sms.tolist()], _UNIT, *_changes(part, counter, clock))


def _changes(ctas: NDArray[np.void], counter: Numbers, clock: DeviceClock) -> tuple[Numbers, Numbers, Numbers]:
    """When each counter changes, and to what: columns of counter, time and value, by counter and time."""
    begin_ns = clock.on_axis(ctas["init_ns"])
    # A CTA that was stopped wrote no end.
    end_ns = clock.on_axis(np.maximum(ctas["post_final_ns"], ctas["init_ns"]))
    at_ns = np.concatenate((begin_ns, end_ns))
    counter = np.concatenate((counter, counter))
    order = np.lexsort((at_ns, counter))
    active = np.cumsum(np.where(order < len(ctas), 1, -1))
    at_ns, counter = at_ns[order], counter[order]
    # What begins and ends at one time makes one change, or none. A counter starts at 0, and all its CTAs end.
    is_last = np.append((at_ns[1:] != at_ns[:-1]) | (counter[1:] != counter[:-1]), True)
    kept = np.flatnonzero(is_last)
    kept = kept[np.diff(active[kept], prepend=0) != 0]
    return counter[kept], at_ns[kept], active[kept]
