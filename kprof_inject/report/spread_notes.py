"""Which warps, CTAs and SMs stand out in a scope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kprof_inject.report.quantities import percent, ratio
from kprof_inject.report.summary import ScopeSummary
from kprof_inject.timeline.statistics.spread import Spread

# A quarter more than the median: less is how any kernel's CTAs differ.
_NOTABLE = 1.25


def spread_notes(scopes: Sequence[ScopeSummary]) -> Iterator[str]:
    """A line for each scope in which something stands out, and one for all that is even."""
    even: list[Spread] = []
    rest = "all warps, CTAs and SMs"
    for scope in scopes:
        spreads = _comparable(scope)
        notable = {noun: spread for noun, spread in spreads.items() if _factor(spread) >= _NOTABLE}
        even += [spread for noun, spread in spreads.items() if noun not in notable]
        parts = [f"{noun}s {_range(spread, noun)} the median" for noun, spread in notable.items()]
        balance = scope.cta_balance
        if balance and balance.median_imbalance >= _NOTABLE:
            parts.append(f"in a CTA the slowest warp {ratio(balance.median_imbalance)} the mean of the warps")
        if parts:
            yield f"spread of {scope.scope}: {'; '.join(parts)}"
            rest = "all else"
    if even:
        furthest = max(
            max(spread.greatest_ns / spread.median_ns - 1, 1 - spread.least_ns / spread.median_ns) for spread in even
        )
        yield f"spread: {rest} within {percent(furthest)} of the median of their scope"


def _comparable(scope: ScopeSummary) -> dict[str, Spread]:
    spreads = {"warp": scope.warp_spread, "CTA": scope.cta_spread, "SM": scope.sm_spread}
    return {noun: spread for noun, spread in spreads.items() if spread and spread.groups > 1 and spread.median_ns}


def _factor(spread: Spread) -> float:
    """By how much the one that is furthest from the median differs from it."""
    slower = spread.greatest_ns / spread.median_ns
    return max(slower, spread.median_ns / spread.least_ns) if spread.least_ns else float("inf")


def _range(spread: Spread, noun: str) -> str:
    least, greatest = (value / spread.median_ns for value in (spread.least_ns, spread.greatest_ns))
    return f"{ratio(least)} ({noun} {spread.least_id}) to {ratio(greatest)} ({noun} {spread.greatest_id})"
