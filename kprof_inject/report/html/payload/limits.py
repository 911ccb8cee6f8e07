"""How many scopes one page shows: a browser holds them all, and a page is to be sent around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.timeline import Timeline

MOST_SCOPES = 4_000_000
"""About 20 MB of page, and 320 MB in the browser."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows of one launch: ``ctas`` tells which rows of ``timeline.ctas`` have their scopes in it (None:
    all do). All other CTAs are shown without their scopes."""

    ctas: NDArray[np.bool_] | None
    scopes: int

    def cta_count(self, timeline: Timeline) -> int:
        return len(timeline.ctas) if self.ctas is None else int(self.ctas.sum())


def shares(wanted: Sequence[int], most: int) -> list[int]:
    """How many of ``most`` each gets: as many as it wants if that is no more than an equal share, and of what those
    leave again an equal share."""
    left, given = most, [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for done, index in enumerate(order):
        given[index] = min(wanted[index], left // (len(order) - done))
        left -= given[index]
    return given


def shown_of(timeline: Timeline, most: int) -> Shown:
    """Whole CTAs with at most so many scopes, but at least one: those of the first SMs, so that what an SM did is there
    from the launch's begin to its end."""
    if timeline.scope_count <= most:
        return Shown(None, timeline.scope_count)
    numbers = np.argsort(timeline.ctas["cta"], kind="stable")
    sorted_ctas = timeline.ctas["cta"][numbers]
    counts = np.zeros(len(numbers), dtype=np.int64)
    for block in timeline.blocks():
        counts += np.bincount(numbers[np.searchsorted(sorted_ctas, block["cta"])], minlength=len(counts))
    order = np.lexsort((timeline.ctas["cta"], timeline.ctas["sm"]))
    fits = np.cumsum(counts[order]) <= most
    fits[np.flatnonzero(counts[order])[:1]] = True
    shown = np.zeros(len(counts), dtype=bool)
    shown[order[fits]] = True
    return Shown(shown, int(counts[shown].sum()))


def omissions(timelines: Sequence[Timeline], most: int = MOST_SCOPES) -> list[str]:
    """What a page of these launches leaves out, in words: a line for each launch of which it does."""
    given = shares([timeline.scope_count for timeline in timelines], most)
    return [
        f"{timeline.launch.kernel.name}, launch {timeline.launch.index}: the page has no room for all "
        f"{timeline.scope_count} scopes; its timeline shows CTAs of the first SMs with about {share} of them"
        for timeline, share in zip(timelines, given, strict=True)
        if share < timeline.scope_count
    ]
