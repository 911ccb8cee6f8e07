"""The order in which builds of a kernel are launched, and when they were timed often enough."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_QUANTILE = 1.96
# Fewer pairs do not show how much they scatter.
_MIN_PAIRS = 12


def rounds(count: int, seed: str) -> Iterator[Sequence[int]]:
    """Yield rounds without end, each with all of ``count`` once, in a random order that ``seed`` determines."""
    chance = random.Random(seed)
    while True:
        order = list(range(count))
        chance.shuffle(order)
        yield order


@dataclass(slots=True)
class DelayPairs:
    """Times of one build, each with the time of the kernel without a delay around it."""

    ns: list[float] = field(default_factory=list)
    clean_ns: list[float] = field(default_factory=list)

    def add(self, ns: float, before_ns: float, after_ns: float) -> None:
        """Add a launch with a delay, and those without before and after it."""
        self.ns.append(ns)
        self.clean_ns.append((before_ns + after_ns) / 2)

    @property
    def error(self) -> float:
        """Half of the 95 % interval of the median ratio; infinite if there are too few pairs.

        The interval is between two order statistics, which outliers do not move.
        """
        count = len(self.ns)
        if count < _MIN_PAIRS:
            return math.inf
        ratios = sorted(ns / clean for ns, clean in zip(self.ns, self.clean_ns, strict=True))
        distance = math.ceil(_QUANTILE * math.sqrt(count) / 2)
        low, high = max(count // 2 - distance, 0), min((count - 1) // 2 + distance, count - 1)
        return (ratios[high] - ratios[low]) / 2


def are_precise(pairs: Sequence[DelayPairs], delays: Sequence[tuple[int, int, float]], slope_error: float) -> bool:
    """Return whether all slopes are known to ``slope_error``; false if none is.

    ``delays`` has for each build its scope, its cycles, and the part by which the kernel takes longer if none of these
    are hidden.
    """
    base = {scope: pairs[index].error for index, (scope, cycles, _) in enumerate(delays) if not cycles}
    errors: dict[int, float] = {}
    for index, (scope, cycles, share) in enumerate(delays):
        if cycles:
            error = math.hypot(pairs[index].error, base.get(scope, 0.0)) / share if share else math.inf
            errors.setdefault(scope, error)  # the shortest delay, with which the others agree or not
    return bool(errors) and max(errors.values()) <= slope_error
