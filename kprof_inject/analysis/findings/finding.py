"""Findings, each one cause that limits a launch, and the rules and rows of the account that find them.

The account of a launch is what it does that its results do not need. The *use* of a unit is counted, or computed; its
*need* is the least that the same results take. Each row finds one cause of waste, which is worth the time that the
launch would save if use fell to need and the next unit limited it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from math import prod
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.limits.limit import LIMITING, MIN_NOTABLE, POSSIBLE, memory_wait_limit
from kprof_inject.analysis.unjudged import Unjudged, missing_records, unpaired_records
from kprof_inject.quantities import counted, percent
from kprof_inject.ttgir.nodes import Operation

MIN_SHARE = 0.10
"""Part of a launch's time from which most rules report a loss: the SMs of a healthy matmul of one wave finish up to 6 %
apart (H200)."""

Figures = Mapping[str, float | int | str]
_MIN_LIKELY = 0.05  # a smaller gain is within the noise of most measurements
_GAIN_MARGIN = 1.05  # less work mostly saves a little more, as caches and queues are less full
_BEHIND_BUSY_UNIT = 0.5  # warps mostly wait anyway for a unit that limits the launch and keeps its work


class Finding(Struct, frozen=True):
    """A cause that limits a launch."""

    rule: str  # name of the cause: mostly the name of the rule that found it
    scope: str | None
    share: float  # the part of the launch's time that it explains, 0 to 1: an upper bound of the gain from removing it
    text: str
    advice: str
    figures: Figures
    index: int | None = None  # index of ``scope`` in the launch's table, as names need not be unique
    lines: tuple[int, ...] = ()  # first lines of the operations in the TTGIR, unless it is about the whole launch
    doubt: str = ""  # which records are missing, so that the figures may be off
    removed: Mapping[str, float] = {}  # the part of each unit's work that results do not need, by the unit's name
    likely: float | None = None
    """The gain to expect, which sorts findings; None if it equals ``share``, 0 for a note that is no advice."""

    @property
    def cause(self) -> tuple[str, int | None]:
        """The rule and the scope: what findings in launches of one variant have in common."""
        return self.rule, self.index

    @property
    def expected(self) -> float:
        """The gain to expect."""
        return self.share if self.likely is None else self.likely

    @property
    def sentence(self) -> str:
        """``text``, with the reason for doubt if there is one."""
        return f"{self.text} (doubtful: {self.doubt})" if self.doubt else self.text


def found(
    evidence: Evidence,
    share: float,
    text: str,
    advice: str,
    figures: Figures,
    *,
    likely: float | None = None,
    scope: int | None = None,
    at: Sequence[Operation] = (),
    around: Operation | None = None,
    name: str = "",
) -> Finding:
    """Return a finding, to which ``Rule`` adds its name unless it has one.

    It concerns ``scope`` or the operations ``at``, with the innermost roof's scope around the first, or ``around``.
    """
    if at and (roof := evidence.roof_around(around or at[0])):
        scope = roof.index
    its = None if scope is None else evidence.summary.scopes[scope].scope
    return Finding(name, its, share, text, advice, figures, scope, evidence.first_lines_of(at), likely=likely)


Results = Iterator[Finding | Unjudged]
"""Findings and, if missing data may hide some, the reason why a rule could not judge."""
Need = Callable[[Evidence], Unjudged | None]  # function that returns a rule's missing input

_FULLY_BUSY = 0.75  # a unit that is busier works for other warps while some are idle
_MARGIN = 1.05  # of a unit's utilization: with more in flight, it is a little faster


class Rule(Struct, frozen=True):
    """A rule: a function of the evidence, with the names of its findings and its properties."""

    names: tuple[str, ...]
    judge: Callable[[Evidence], Results]
    needs: tuple[Need, ...]
    uses_records: bool
    idle: Literal["SMs", "warps"] | None

    def __call__(self, evidence: Evidence) -> Results:
        """Yield the findings on a launch, or the first reason why the rule cannot judge it."""
        for need in self.needs:
            if missing := need(evidence):
                yield missing
                return
        for result in self.judge(evidence):
            if not isinstance(result, Finding):
                yield result
            elif self.idle != "warps" or evidence.busiest[1] < _FULLY_BUSY:
                yield self._completed(result, evidence)

    def _completed(self, finding: Finding, evidence: Evidence) -> Finding:
        timeline = evidence.timeline
        lost = (missing_records(timeline) or unpaired_records(timeline)) if self.uses_records else None
        finding = replace(finding, rule=finding.rule or self.names[0], doubt=lost.reason if lost else "")
        if self.idle is None:
            return finding
        # The gain is at most the time in which the launch's busiest unit is idle.
        unit, part = evidence.busiest_of_device if self.idle == "SMs" else evidence.busiest
        rest = 1 - part / _MARGIN
        if finding.share <= rest:
            return finding
        limit = f"at most {percent(rest)} can be gained ({unit} at {percent(part)} of peak)"
        return replace(finding, share=rest, text=f"{finding.text}; {limit}")


def rule(
    *needs: Need,
    uses_records: bool = True,
    idle: Literal["SMs", "warps"] | None = None,
    names: tuple[str, ...] = (),
) -> Callable[[Callable[[Evidence], Results]], Rule]:
    """Make a rule of a function, after which its findings are named, unless they bring one of ``names``.

    A rule that uses only the headers of CTAs and the clock does not use records: missing ones do not make its findings
    doubtful. ``idle`` is what loses time while the kernel does its necessary work: SMs, to which other SMs' work may
    move, or warps.
    """
    return lambda judge: Rule(names or (judge.__name__.replace("_", "-"),), judge, needs, uses_records, idle)


def all_ctas(evidence: Evidence) -> Unjudged | None:
    """Return the reason if some CTAs' times are unknown."""
    timeline, summary = evidence.timeline, evidence.summary
    if summary.is_foreign:
        return Unjudged("another profiler's buffer does not say when CTAs began and ended", "")
    if summary.waves is None:
        return Unjudged("the capture has no times of CTAs", "record with Triton 3.6 or newer")
    if timeline.ctas_never_ran:
        return Unjudged(f"{counted(timeline.ctas_never_ran, 'CTA')} of the grid never ran", "capture again")
    if timeline.ctas_damaged:
        return Unjudged(f"{counted(timeline.ctas_damaged, 'CTA')} had a damaged header", "capture again")
    ctas, grid = len(timeline.all_ctas), prod(timeline.launch.grid)
    return Unjudged(f"only {ctas} of {grid} CTAs were chosen", "choose them all") if ctas < grid else None


def cta_times(evidence: Evidence) -> Unjudged | None:
    """Return the reason if some CTAs' begin or end is unknown, or the whole launch is within one step of the timer."""
    if (missing := all_ctas(evidence)) or evidence.summary.ending is not None:
        return missing
    return Unjudged("the launch is too short for the timer", "give it more work")


def no_memory_waits(evidence: Evidence) -> Unjudged | None:
    """Return the reason if warps wait for memory to change: more CTAs or warps would wait, too."""
    if memory_wait_limit(evidence.summary) is None:
        return None
    return Unjudged("its warps wait for memory to change for most of their time", "")


class Waste(Struct, frozen=True):
    """Work of a launch that its results do not need, by one cause, done by ``operations``."""

    text: str  # what the launch does, and the least that would suffice, with the place
    advice: str
    removed: Mapping[str, float]  # the part of each unit's work that is not needed, by the unit's name
    operations: tuple[Operation, ...] = ()
    time_share: float | None = None
    """The part of the warps' time in this work and in waits for it; None if it is all of the operations' time."""
    certainty: float = 1.0  # the part of the gain that such an edit wins on average, 0 to 1
    figures: Figures = {}
    around: Operation | None = None
    """The operation whose innermost scope the finding names, unless it is the first one's."""
    gain: float | None = None  # upper bound of the gain, if it does not follow from ``removed`` and ``time_share``


def row(judge: Callable[[Evidence], Iterator[Waste]]) -> Rule:
    """Make a rule of a row of the account: it finds the waste that is worth an edit, if operations are known."""

    def findings(evidence: Evidence) -> Results:
        for waste in judge(evidence) if evidence.executed else ():
            share, likely = gains(evidence, waste)
            if share >= MIN_SHARE and likely >= _MIN_LIKELY:
                at, around = waste.operations, waste.around
                finding = found(evidence, share, waste.text, waste.advice, waste.figures, at=at, around=around)
                yield replace(finding, likely=likely, removed=waste.removed)

    return rule()(wraps(judge)(findings))


def gains(evidence: Evidence, waste: Waste) -> tuple[float, float]:
    """Return the upper bound of the gain without the waste, and the gain to expect, as parts of the launch's time.

    A unit that limits the launch saves its own time; warps that wait save their waits. Necessary work bounds the gain.
    """
    if waste.gain is not None:
        return waste.gain, waste.gain * waste.certainty
    of_units = evidence.max_gain_of_units(waste.removed)
    unit, part = evidence.busiest
    of_busiest = waste.removed.get(unit, 0.0) if part >= POSSIBLE else 0.0
    if waste.time_share is None and evidence.stalls is None:
        time, bound = of_units, evidence.max_gain(waste.removed)
    else:
        time = evidence.time_share_of(waste.operations) if waste.time_share is None else waste.time_share
        bound = evidence.bound_of(time)
    share = min(_GAIN_MARGIN * max(of_units, of_busiest, bound), 1 - evidence.necessary(waste.removed))
    if part >= LIMITING and waste.removed.get(unit, 0.0) < MIN_NOTABLE:
        time *= _BEHIND_BUSY_UNIT
    return share, min(share, max(of_units, time)) * waste.certainty
