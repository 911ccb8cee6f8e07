"""In which order builds of a kernel take their turns, and when they were timed often enough."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_QUANTILE = 1.96
# Of fewer pairs, nobody knows how much they scatter.
_LEAST_PAIRS = 12


def rounds(count: int, seed: str) -> Iterator[Sequence[int]]:
    """Rounds without end: each has all of ``count`` once, in an order of its own, which ``seed`` decides."""
    chance = random.Random(seed)
    while True:
        order = list(range(count))
        chance.shuffle(order)
        yield order


@dataclass(slots=True)
class DelayPairs:
    """Times of one build, each with what the kernel without a delay took around it."""

    ns: list[float] = field(default_factory=list)
    clean_ns: list[float] = field(default_factory=list)

    def add(self, ns: float, before_ns: float, behind_ns: float) -> None:
        self.ns.append(ns)
        self.clean_ns.append((before_ns + behind_ns) / 2)

    @property
    def error(self) -> float:
        """By how much their middle ratio may be off, as a part of it, with 95 % confidence: by half of the distance
        between two order statistics, which outliers do not move. Infinite of too few."""
        count = len(self.ns)
        if count < _LEAST_PAIRS:
            return math.inf
        ratios = sorted(ns / clean for ns, clean in zip(self.ns, self.clean_ns, strict=True))
        beside = math.ceil(_QUANTILE * math.sqrt(count) / 2)
        low, high = max(count // 2 - beside, 0), min((count - 1) // 2 + beside, count - 1)
        return (ratios[high] - ratios[low]) / 2


def are_precise(pairs: Sequence[DelayPairs], delays: Sequence[tuple[int, int, float]], slope_error: float) -> bool:
    """Whether all slopes are known to ``slope_error``. ``delays`` has of each build its scope, its cycles, and which
    part the kernel takes longer if nothing of these is hidden: without any that is known, nobody can tell."""
    base = {scope: pairs[index].error for index, (scope, cycles, _) in enumerate(delays) if not cycles}
    errors: dict[int, float] = {}
    for index, (scope, cycles, share) in enumerate(delays):
        if cycles:
            error = math.hypot(pairs[index].error, base.get(scope, 0.0)) / share if share else math.inf
            errors.setdefault(scope, error)  # the shortest delay, with which the others agree or not
    return bool(errors) and max(errors.values()) <= slope_error
