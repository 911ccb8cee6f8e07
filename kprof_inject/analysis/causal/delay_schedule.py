"""The delays to try at a place: from one that just shows in the kernel's time to one that nothing can hide."""

from __future__ import annotations

from collections.abc import Iterator

SHORTEST_CYCLES = 48
"""A delay spins in steps of some 20 cycles; a shorter one is dominated by noise."""

_LONGEST_CYCLES = 1 << 22
_FACTOR = 3
_MIN_STEPS = 4
_MIN_SHARE = 0.02  # of the time between two executions
# An iteration can be hidden by the work of a stage or two; code that is executed once, by another CTA at most.
_MAX_SHARE_OFTEN, _MAX_SHARE_SELDOM = 2.0, 0.6
_OFTEN = 4.0
# The delays if it is unknown how often the place is executed.
_BLIND = (64, 192, 576, 1728)


def delays_for(kernel_cycles: float | None, by_cta: float | None, by_chain: float | None) -> tuple[int, ...]:
    """Return delays in cycles, ascending; the first is 0.

    ``kernel_cycles`` is how long the kernel takes; ``by_cta`` and ``by_chain`` are how often a CTA, and the last chain
    of CTAs, execute the place.
    """
    if not kernel_cycles or not by_chain:
        return (0, *_BLIND)
    between = kernel_cycles / by_chain
    longest = between * (_MAX_SHARE_OFTEN if (by_cta or 0) >= _OFTEN else _MAX_SHARE_SELDOM)
    steps = _steps(max(_MIN_SHARE * between, SHORTEST_CYCLES), min(longest, _LONGEST_CYCLES))
    return (0, *dict.fromkeys(steps))


def _steps(shortest: float, longest: float) -> Iterator[int]:
    """Yield delays, at least ``_MIN_STEPS``: short ones show no slope, and a few cannot tell a bend from a line."""
    cycles, count = shortest, 0
    while count < _MIN_STEPS or cycles <= longest:
        yield min(round(cycles), _LONGEST_CYCLES)
        cycles *= _FACTOR
        count += 1


def whole_share(delay_cycles: int, kernel_cycles: float | None, by_chain: float | None) -> float:
    """Return the relative slowdown of the kernel if no part of a delay is hidden; 0 if unknown."""
    return delay_cycles * by_chain / kernel_cycles if kernel_cycles and by_chain else 0.0
