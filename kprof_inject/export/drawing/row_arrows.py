"""Arrows that leave the scopes of a launch or point to them, by the rows of the scopes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from kprof_inject.export.drawing.scene import Arrows, Numbers


class ArrowEnds(Struct, frozen=True):
    """Ends of arrows of one ``name``: they leave the scopes in ``rows``, or (``arrive``) point to them.

    The two ends of an arrow have the same ID. ``at_ns`` are times on the axis.
    """

    name: str
    arrive: bool
    rows: Numbers
    ids: Numbers
    at_ns: Numbers


def arrows_of_rows(ends: Sequence[ArrowEnds], first: int, count: int) -> Iterator[Arrows]:
    """Yield the arrows of some rows of a launch's scopes: several columns if a scope has several arrows."""
    for end in ends:
        here = np.flatnonzero((end.rows >= first) & (end.rows < first + count))
        while here.size:
            # The first remaining arrow of each row.
            _, chosen = np.unique(end.rows[here], return_index=True)
            firsts = here[chosen]
            ids, at_ns = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
            ids[end.rows[firsts] - first] = end.ids[firsts]
            at_ns[end.rows[firsts] - first] = end.at_ns[firsts]
            yield Arrows(ids, end.arrive, at_ns, end.name)
            here = np.delete(here, chosen)
