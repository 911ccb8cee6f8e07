"""The likeliest walk through readings that have an error.

The rate of a clock wanders, so what is left of a straight line is a random walk. The likeliest one is straight between
two readings, and at the readings it is a penalised least squares fit: near one another they are averaged, far apart
they stand for themselves. Nothing can overshoot between them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.clocks.lines import Left
from kprof_inject.timeline.clocks.readings import trust

_LEAST_STEP_NS2 = 1e-3
# By how much the readings' errors are taken too large, round by round: at first the walk goes smoothly past a reading
# that is off, which then shows as such; a walk that went through it at once would never find out.
_CAUTION = (30.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 1.0)


def likeliest_walks(
    left: Left, linked: NDArray[np.bool_], walk_ns2_per_ns: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The heights of the walks at the readings, and how much each reading counted in the end, 0 to 1.

    ``left`` has one walk after the other, each in the order of time; ``linked`` says which readings are of the same
    walk as the one before. The variance of what a walk climbs grows by ``walk_ns2_per_ns`` with the time."""
    gap_ns = np.diff(left.line_ns, prepend=0)
    stiffness = np.where(linked, 1 / np.maximum(gap_ns * walk_ns2_per_ns, _LEAST_STEP_NS2), 0.0)
    trusted = left.believed.astype(np.float64)
    for caution in _CAUTION:
        error_ns = caution * left.error_ns
        heights_ns = _balance(trusted / error_ns**2, left.height_ns, stiffness)
        trusted = left.believed * trust((left.height_ns - heights_ns) / error_ns, left.side)
    return heights_ns, trusted


def _balance(
    weight: NDArray[np.float64], target: NDArray[np.float64], stiffness: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Where chains of springs come to rest: each node hangs by ``weight`` on its ``target`` and by ``stiffness`` on the
    node before it. A chain without any weight rests at 0.

    Every second node is replaced by springs between its neighbours and their targets, until one node is left: as many
    steps as the number of nodes has binary digits. All terms are positive, so nothing cancels out."""
    count = weight.size
    size = 1 << max(count - 1, 0).bit_length()
    # Each node's weight, and what it is pulled by; nodes that hang on nothing make every step an even one.
    nodes = np.zeros((2, size))
    nodes[0, :count] = weight
    np.multiply(weight, target, out=nodes[1, :count])
    # The spring before each node, and one behind the last.
    springs = np.zeros(size + 1)
    springs[1:count] = stiffness[1:]
    levels = []
    while size > 1:
        gone = nodes[:, 1::2]
        before, after = springs[1::2], springs[2::2]
        total = gone[0] + before + after
        total += total == 0
        to_before, to_after = before / total, after / total
        levels.append((to_before, to_after, gone[1] / total))
        nodes = nodes[:, ::2] + to_before * gone
        size //= 2
        nodes[:, 1:] += (to_after * gone)[:, :-1]
        springs = np.zeros(size + 1)
        np.multiply(to_before, after, out=springs[1:])
    rest: NDArray[np.float64] = nodes[1] / np.where(nodes[0] == 0, 1, nodes[0])
    for to_before, to_after, pulled in reversed(levels):
        both = np.empty(2 * rest.size)
        both[::2] = rest
        moved = pulled + to_before * rest
        moved[:-1] += to_after[:-1] * rest[1:]
        both[1::2] = moved
        rest = both
    return rest[:count]
