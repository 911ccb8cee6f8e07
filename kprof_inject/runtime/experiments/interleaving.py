"""Order the launches of a kernel's builds, and decide when there are enough times."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_QUANTILE = 1.96
# Fewer pairs do not show their spread.
_MIN_PAIRS = 12


def rounds(count: int, seed: str) -> Iterator[Sequence[int]]:
    """Yield endless rounds, each with all indices below ``count`` in a random order that ``seed`` determines."""
    generator = random.Random(seed)
    while True:
        order = list(range(count))
        generator.shuffle(order)
        yield order


@dataclass(slots=True)
class DelayPairs:
    """Times of one build, each with the mean time of the clean launches before and after it."""

    ns: list[float] = field(default_factory=list)
    clean_ns: list[float] = field(default_factory=list)

    def add(self, ns: float, before_ns: float, after_ns: float) -> None:
        """Add the times of a launch with a delay, and of the launches without before and after it."""
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
    """Return whether all slopes are known to within ``slope_error``; false if there are none.

    ``delays`` has for each build its scope, its cycles, and the fraction by which the kernel takes longer if none of
    these cycles are hidden.
    """
    base = {scope: pairs[index].error for index, (scope, cycles, _) in enumerate(delays) if not cycles}
    errors: dict[int, float] = {}
    for index, (scope, cycles, share) in enumerate(delays):
        if cycles:
            error = math.hypot(pairs[index].error, base.get(scope, 0.0)) / share if share else math.inf
            errors.setdefault(scope, error)  # of the scope's first delay, the shortest
    return bool(errors) and max(errors.values()) <= slope_error
