"""What is said of a change: is it the kernel's, the clock's, or chance?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kprof_inject.timeline.comparison import Change, rounded_error

_SAME_CLOCK = 0.01
"""Within it clocks are alike: each is fitted to a quarter of a per cent or so, and what times differ by then is within
the noise from process to process."""

_TOO_COARSE_PERCENT = 25.0
"""Whoever compares kernels is after less than a quarter: an interval that wide says nothing."""

_NO_BOUND_PERCENT = 100.0


class ChangeVerdict(Enum):
    """``NEW`` and ``GONE`` are of a scope that ran in B alone, or in A alone."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "no difference"
    CLOCK = "the clock"
    UNKNOWN = "cannot tell"
    NEW = "new"
    GONE = "gone"


ONE_SIDED = (ChangeVerdict.NEW, ChangeVerdict.GONE)

_BY_DIRECTION = {1: ChangeVerdict.SLOWER, 0: ChangeVerdict.SAME, -1: ChangeVerdict.FASTER}


@dataclass(frozen=True, slots=True)
class Clocks:
    """The SMs' clock of both sides, as it was measured; None where it was not."""

    a_hz: float | None
    b_hz: float | None

    @property
    def differ(self) -> bool:
        if not self.a_hz or not self.b_hz:
            return False
        return abs(math.log(self.b_hz / self.a_hz)) > _SAME_CLOCK

    def __str__(self) -> str:
        return " vs ".join("unknown" if hz is None else f"{hz / 1e9:.2f} GHz" for hz in (self.a_hz, self.b_hz))


@dataclass(frozen=True, slots=True)
class Judged:
    """A change in time and the same in cycles, None where they cannot be told, and what is said of them.

    A kernel that changed is slower, or faster, in cycles as well; where the clocks differ and it is not, the clock is
    all that is known to have changed."""

    verdict: ChangeVerdict
    change: Change | None
    cycles: Change | None

    @property
    def changed(self) -> bool:
        return self.verdict in (ChangeVerdict.SLOWER, ChangeVerdict.FASTER)

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict.value,
            "change": change_json(self.change),
            "change_in_cycles": change_json(self.cycles),
        }


def judged(change: Change | None, cycles: Change | None, clocks: Clocks) -> Judged:
    return Judged(_verdict(change, cycles, clocks), change, cycles)


def _verdict(change: Change | None, cycles: Change | None, clocks: Clocks) -> ChangeVerdict:
    if change is None or (change.direction == 0 and is_too_coarse(change)):
        return ChangeVerdict.UNKNOWN
    if change.direction and clocks.differ and cycles is not None and cycles.direction != change.direction:
        return ChangeVerdict.CLOCK
    return _BY_DIRECTION[change.direction]


def decisive(recorded: Judged, clean: Judged | None) -> Judged:
    """What is said of a launch by its times with records and without: by those without, if they can tell."""
    return clean if clean is not None and clean.verdict is not ChangeVerdict.UNKNOWN else recorded


def change_words(change: Change) -> str:
    """With its interval, unless that says no more than that nothing is known."""
    error = rounded_error(change.error_percent)
    if change.direction == 0 and change.error_percent > _NO_BOUND_PERCENT:
        error = f">{_NO_BOUND_PERCENT:g}"
    return f"{round(change.percent, 1) + 0.0:+.1f} % ± {error}"


def is_too_coarse(change: Change) -> bool:
    return change.detectable_percent > _TOO_COARSE_PERCENT


def change_json(change: Change | None) -> dict[str, float] | None:
    if change is None:
        return None
    return {
        "percent": round(change.percent, 4),
        "low_percent": round(change.low_percent, 4),
        "high_percent": round(change.high_percent, 4),
        "detectable_percent": round(change.detectable_percent, 4),
    }
