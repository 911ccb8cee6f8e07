"""The order of starts and ends, where each is a packet of its own.

Perfetto sorts packets by time and keeps, at equal times, the order of the file; an end ends what began last on its
thread. So the file has to have starts and ends in the order in which they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from kprof_inject.export.drawing.scene import Events, Mask, Numbers

# So few that a chunk's rows stay in the processor's cache.
_CHUNK_ORDERS = 1 << 15


def chunks(events: Events) -> Iterator[slice]:
    """Rows of whole groups, so many that their numbers of order stay few: at least one group."""
    first, _, spans = _groups(events)
    before = np.cumsum(spans) - spans
    cuts = np.flatnonzero(np.diff(before // _CHUNK_ORDERS, prepend=-1))
    rows = [*first[cuts].tolist(), len(events)]
    yield from (slice(begin, end) for begin, end in pairwise(rows))


def places(events: Events, lasts: Mask) -> tuple[Numbers, Numbers]:
    """Of each start, and of each end of what ``lasts``, its place in the order of all these: 0, 1, 2...

    The numbers of order are counted off, not sorted: in a group no two are the same.
    """
    first, lowest, spans = _groups(events)
    base = np.repeat(np.cumsum(spans) - spans - lowest, np.diff(first, append=len(events)))
    starts = base + events.start_order
    ends = (base + events.end_order)[lasts]
    taken = np.zeros(int(spans.sum()), dtype=np.int64)
    taken[starts] = taken[ends] = 1
    place = np.cumsum(taken) - 1
    return place[starts], place[ends]


def _groups(events: Events) -> tuple[Numbers, Numbers, Numbers]:
    """Where each group begins, its lowest number of order, and how many there are from that to its highest."""
    first = np.flatnonzero(np.diff(events.group, prepend=events.group[:1] - 1))
    lowest = np.minimum.reduceat(events.start_order, first)
    highest = np.maximum(np.maximum.reduceat(events.start_order, first), np.maximum.reduceat(events.end_order, first))
    return first, lowest, highest - lowest + 1
