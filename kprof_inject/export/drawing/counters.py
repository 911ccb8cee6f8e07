"""Counters over the time of a launch: its active CTAs, and its bytes in flight."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.groups import InFlight
from kprof_inject.export.drawing.scene import Counters, Numbers
from kprof_inject.export.drawing.tracks import sm_label
from kprof_inject.timeline.axis import DeviceClock

_CHUNK_CTAS = 1 << 16


def active_ctas(ctas: NDArray[np.void], pid: int, clock: DeviceClock) -> Iterator[Counters]:
    """Yield the number of active CTAs over time: a counter for all SMs, then one for each known SM.

    A CTA (of ``CTA_COLUMNS``) is active from its start until its records are copied. Yields nothing without CTAs.
    """
    if not ctas.size:
        return
    yield Counters(pid, ["all SMs"], "CTAs", *_active(ctas, np.zeros(len(ctas), dtype=np.int64), clock))
    ctas = ctas[ctas["sm"] >= 0]
    if not ctas.size:
        return
    order = np.argsort(ctas["sm"], kind="stable")
    begins = np.flatnonzero(np.diff(ctas["sm"][order], prepend=-1))
    # Each part has whole SMs, as many as make up a chunk, and at least one.
    cuts = begins[np.flatnonzero(np.diff(begins // _CHUNK_CTAS, prepend=-1))]
    for start, end in zip(cuts.tolist(), [*cuts[1:].tolist(), len(ctas)], strict=True):
        part = ctas[order[start:end]]
        sms, counter = np.unique(part["sm"], return_inverse=True)
        yield Counters(pid, [sm_label(sm) for sm in sms.tolist()], "CTAs", *_active(part, counter, clock))


def _active(ctas: NDArray[np.void], counter: Numbers, clock: DeviceClock) -> tuple[Numbers, Numbers, Numbers]:
    # A CTA that was stopped wrote no end.
    end_ns = clock.on_axis(np.maximum(ctas["post_final_ns"], ctas["init_ns"]))
    return _changes(counter, clock.on_axis(ctas["init_ns"]), end_ns, np.ones(len(ctas), dtype=np.int64))


def bytes_in_flight(found: InFlight, pid: int, clock: DeviceClock) -> Iterator[Counters]:
    """Yield a counter for each SM that copied asynchronously; nothing if none did."""
    groups = found.groups[found.groups["bytes"] > 0]
    if not groups.size:
        return
    sms, counter = np.unique(groups["sm"], return_inverse=True)
    start_ns, end_ns = clock.on_axis(groups["start_ns"]), clock.on_axis(groups["end_ns"])
    names = [sm_label(sm) for sm in sms.tolist()]
    yield Counters(pid, names, "bytes", *_changes(counter, start_ns, end_ns, groups["bytes"]))


def _changes(counter: Numbers, start_ns: Numbers, end_ns: Numbers, amount: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return the changes of each counter, to which each amount contributes from its start to its end.

    The columns are counter, time and value, sorted by counter and time.
    """
    at_ns, counter = np.concatenate((start_ns, end_ns)), np.tile(counter, 2)
    order = np.lexsort((at_ns, counter))
    at_ns, counter, values = at_ns[order], counter[order], np.cumsum(np.concatenate((amount, -amount))[order])
    # Starts and ends at the same time make one change, or none. A counter starts and ends at 0.
    is_last = np.append((at_ns[1:] != at_ns[:-1]) | (counter[1:] != counter[:-1]), True)
    kept = np.flatnonzero(is_last)
    kept = kept[np.diff(values[kept], prepend=0) != 0]
    return counter[kept], at_ns[kept], values[kept]
