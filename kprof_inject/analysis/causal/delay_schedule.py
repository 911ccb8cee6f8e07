"""Which delays are tried at a place: from one that the kernel would just notice to one that nothing hides any more."""

from __future__ import annotations

from collections.abc import Iterator

SHORTEST_CYCLES = 48
"""A delay goes round in steps of some 20 cycles; a shorter one is more chance than delay."""

_LONGEST_CYCLES = 1 << 22
_FACTOR = 3
_LEAST_STEPS = 4
# Of the time between two executions.
_LEAST_SHARE = 0.02
# An iteration's work is hidden behind that of a stage or two; what is executed once, behind another CTA at most.
_MOST_SHARE_OFTEN, _MOST_SHARE_SELDOM = 2.0, 0.6
_OFTEN = 4.0
# Where nobody knows how often a place is executed.
_BLIND = (64, 192, 576, 1728)


def delays_for(kernel_cycles: float | None, by_cta: float | None, by_chain: float | None) -> tuple[int, ...]:
    """In cycles, ascending, 0 first. ``kernel_cycles`` is how long the kernel takes; ``by_cta`` and ``by_chain`` how
    often a CTA and the last chain of CTAs execute the place."""
    if not kernel_cycles or not by_chain:
        return (0, *_BLIND)
    between = kernel_cycles / by_chain
    most = between * (_MOST_SHARE_OFTEN if (by_cta or 0) >= _OFTEN else _MOST_SHARE_SELDOM)
    steps = _steps(max(_LEAST_SHARE * between, SHORTEST_CYCLES), min(most, _LONGEST_CYCLES))
    return (0, *dict.fromkeys(steps))


def _steps(shortest: float, longest: float) -> Iterator[int]:
    """At least so many: a delay of a few rounds of its loop tells no slope, and few delays tell no bend from a line."""
    cycles, count = shortest, 0
    while count < _LEAST_STEPS or cycles <= longest:
        yield min(round(cycles), _LONGEST_CYCLES)
        cycles *= _FACTOR
        count += 1


def whole_share(delay_cycles: int, kernel_cycles: float | None, by_chain: float | None) -> float:
    """By which part the kernel takes longer if nothing of a delay is hidden; 0 if that is unknown."""
    return delay_cycles * by_chain / kernel_cycles if kernel_cycles and by_chain else 0.0
