"""All rules, and what each says of a launch: that it found something, that it did not, or that it could not judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from kprof_inject.analysis.findings.bank_conflicts import bank_conflicts
from kprof_inject.analysis.findings.between_ctas import between_ctas
from kprof_inject.analysis.findings.finding import Evidence, Finding
from kprof_inject.analysis.findings.imbalanced_warps import imbalanced_warps
from kprof_inject.analysis.findings.iterations import first_iterations, last_iteration
from kprof_inject.analysis.findings.late_start import late_start
from kprof_inject.analysis.findings.low_fill import low_fill
from kprof_inject.analysis.findings.pace import pace
from kprof_inject.analysis.findings.pipelining import not_pipelined, too_few_stages
from kprof_inject.analysis.findings.prologue_epilogue import epilogue, prologue
from kprof_inject.analysis.findings.second_cta import second_cta
from kprof_inject.analysis.findings.tail import tail
from kprof_inject.analysis.findings.throttled import throttled
from kprof_inject.analysis.findings.uneven_ctas import uneven_ctas
from kprof_inject.analysis.findings.waiting import waiting
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_ctas, missing_records, too_short, unpaired_records
from kprof_inject.quantities import percent
from kprof_inject.timeline.timeline import Timeline

RuleResults = Iterator[Finding | Unjudged]
Rule = Callable[[Evidence], RuleResults]
"""Yields what it finds; and where what it lacks may hide something, why it could not judge. Nothing of either says that
there is nothing to find."""


def _by_records(rule: Callable[[Timeline, LaunchSummary], RuleResults]) -> Rule:
    """A rule that asks for nothing but what was recorded."""
    return lambda evidence: rule(evidence.timeline, evidence.summary)


def _by_cta_times(rule: Callable[[Timeline, LaunchSummary], RuleResults]) -> Rule:
    """Return a rule that judges a launch only if the begin and end of all its CTAs are known."""

    def judge(evidence: Evidence) -> RuleResults:
        timeline, summary = evidence.timeline, evidence.summary
        if missing := missing_ctas(timeline, summary) or too_short(summary):
            yield missing
        else:
            yield from rule(timeline, summary)

    return judge


RULES: dict[str, Rule] = {
    "low-fill": _by_records(low_fill),
    "late-start": _by_cta_times(late_start),
    "between-ctas": _by_cta_times(between_ctas),
    "tail": _by_cta_times(tail),
    "uneven-ctas": _by_cta_times(uneven_ctas),
    "imbalanced-warps": _by_records(imbalanced_warps),
    "prologue": _by_records(prologue),
    "epilogue": _by_records(epilogue),
    "first-iterations": _by_records(first_iterations),
    "last-iteration": _by_records(last_iteration),
    "waiting": _by_records(waiting),
    "not-pipelined": not_pipelined,
    "too-few-stages": too_few_stages,
    "bank-conflicts": bank_conflicts,
    "second-cta": second_cta,
    "throttled": throttled,
}

_WITHOUT_RECORDS = ("low-fill", "late-start", "between-ctas", "tail", "uneven-ctas", "throttled")
"""What they find rests on the headers of CTAs and on the clock: no record that is missing makes it doubtful."""

_OF_SAME_WORK = (
    "imbalanced-warps",
    "prologue",
    "epilogue",
    "first-iterations",
    "last-iteration",
    "waiting",
)
"""What they find costs time while the kernel does what it has to do anyway: a unit that this keeps busy for a part of
the time leaves no more than the rest to be won."""

RULES_ON_EXPERIMENTS: dict[str, Rule] = {"pace": pace}
"""They judge launches whose kernels were delayed; of others, they are not asked."""

_NO_CTA = Unjudged("no CTA ran", "")


class Outcome(Enum):
    FOUND = "found"
    NOT_FOUND = "not found"
    UNJUDGED = "could not judge"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one rule says of a launch. It has findings, or is ``unjudged``, or neither: there is nothing to find."""

    rule: str
    findings: tuple[Finding, ...]
    unjudged: Unjudged | None

    @property
    def outcome(self) -> Outcome:
        if self.findings:
            return Outcome.FOUND
        return Outcome.UNJUDGED if self.unjudged else Outcome.NOT_FOUND

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "outcome": self.outcome.value,
            "reason": self.unjudged.reason if self.unjudged else None,
            "remedy": (self.unjudged.remedy or None) if self.unjudged else None,
        }


def judge_by_rules(evidence: Evidence) -> tuple[Judgement, ...]:
    """What each of the rules says, in their order."""
    rules = RULES if evidence.slopes is None else {**RULES, **RULES_ON_EXPERIMENTS}
    if not evidence.summary.ctas:
        return tuple(Judgement(rule, (), _NO_CTA) for rule in rules)
    timeline = evidence.timeline
    missing = missing_records(timeline) or unpaired_records(timeline)
    judgements = tuple(
        _judgement(name, _within_reach(name, rule(evidence), evidence), None if name in _WITHOUT_RECORDS else missing)
        for name, rule in rules.items()
    )
    return tuple(map(_without_remedy, judgements)) if evidence.summary.is_foreign else judgements


def _within_reach(rule: str, said: RuleResults, evidence: Evidence) -> list[Finding | Unjudged]:
    """With no more to be won than the launch's busiest unit leaves."""
    unit, part = evidence.busiest
    rest = 1 - part
    return [
        replace(
            one, share=rest, text=f"{one.text}; {percent(rest)} can be won at most ({unit}: {percent(part)} of peak)"
        )
        if isinstance(one, Finding) and rule in _OF_SAME_WORK and one.share > rest
        else one
        for one in said
    ]


def _without_remedy(judgement: Judgement) -> Judgement:
    """What helps where we record helps with nobody else's buffer."""
    if judgement.unjudged is None:
        return judgement
    return replace(judgement, unjudged=replace(judgement.unjudged, remedy=""))


def _judgement(rule: str, said: Sequence[Finding | Unjudged], missing: Unjudged | None) -> Judgement:
    """``missing`` is what makes its findings doubtful."""
    doubt = missing.reason if missing else ""
    findings = tuple(replace(one, doubt=doubt) for one in said if isinstance(one, Finding))
    unjudged = next((one for one in said if isinstance(one, Unjudged)), None)
    # What was found is there, whatever else may be.
    return Judgement(rule, findings, None if findings else unjudged)
