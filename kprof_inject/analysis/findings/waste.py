"""The account of a launch: what it does that its results do not need, on which unit, and what that is worth.

The *use* of a unit is counted, or computed; its *need* is the least that the same results take. Each row finds one
cause of waste, which is worth the time that the launch would save if use fell to need and the next unit limited it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Figures, Finding, Results, Rule, found, rule
from kprof_inject.analysis.limits.limit import LIMITING, MIN_NOTABLE, POSSIBLE
from kprof_inject.ttgir.nodes import Operation

_MIN_LIKELY = 0.05
"""A smaller gain is within the noise of most measurements."""


class Waste(Struct, frozen=True):
    """Work of a launch that its results do not need, by one cause."""

    text: str
    """What the launch does, and the least that would suffice, with the place."""
    advice: str
    removed: Mapping[str, float]
    """The part of each unit's work that is not needed, by the unit's name."""
    operations: tuple[Operation, ...] = ()
    """The operations that do the work."""
    time_share: float | None = None
    """The part of the warps' time in this work and in waits for it; None if it is all of the operations' time."""
    certainty: float = 1.0
    """The part of the gain that such an edit wins on average, 0 to 1."""
    figures: Figures = {}
    around: Operation | None = None
    """The operation whose innermost scope the finding names; None for the first one."""
    gain: float | None = None
    """Upper bound of the gain, if it does not follow from ``removed`` and ``time_share``."""


def row(judge: Callable[[Evidence], Iterator[Waste]]) -> Rule:
    """Make a rule of a row of the account: it finds the waste that is worth an edit, if operations are known."""

    def findings(evidence: Evidence) -> Results:
        for waste in judge(evidence) if evidence.executed else ():
            if finding := _finding(evidence, waste):
                yield finding

    return rule()(wraps(judge)(findings))


def _finding(evidence: Evidence, waste: Waste) -> Finding | None:
    share, likely = (waste.gain, waste.gain * waste.certainty) if waste.gain is not None else gains(evidence, waste)
    if share < MIN_SHARE or likely < _MIN_LIKELY:
        return None
    figures, operations, around = {**waste.figures}, waste.operations, waste.around
    finding = found(evidence, share, waste.text, waste.advice, figures, likely=likely, at=operations, around=around)
    return replace(finding, removed=waste.removed)


# Less work mostly saves a little more, as caches and queues are less full.
_MARGIN = 1.05
# Warps mostly wait anyway for a unit that limits the launch and keeps its work.
_BEHIND_BUSY_UNIT = 0.5


def gains(evidence: Evidence, waste: Waste) -> tuple[float, float]:
    """Return the upper bound of the gain without the waste, and the gain to expect, as parts of the launch's time.

    A unit that limits the launch saves its own time; warps that wait save their waits. Necessary work bounds the gain.
    """
    of_units = evidence.max_gain_of_units(waste.removed)
    unit, part = evidence.busiest
    of_busiest = waste.removed.get(unit, 0.0) if part >= POSSIBLE else 0.0
    if waste.time_share is None and evidence.stalls is None:
        time, bound = of_units, evidence.max_gain(waste.removed)
    else:
        time = evidence.time_share_of(waste.operations) if waste.time_share is None else waste.time_share
        bound = evidence.bound_of(time)
    share = min(_MARGIN * max(of_units, of_busiest, bound), 1 - evidence.necessary(waste.removed))
    if part >= LIMITING and waste.removed.get(unit, 0.0) < MIN_NOTABLE:
        time *= _BEHIND_BUSY_UNIT
    return share, min(share, max(of_units, time)) * waste.certainty
