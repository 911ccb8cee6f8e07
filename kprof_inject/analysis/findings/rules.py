"""The rules, and the result of each for a launch: it found something, found nothing, or could not judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.findings.atomics import atomics
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.exposed_latency import barriers, exposed_loads
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.idle_sms import between_ctas, low_fill, tail, uneven_ctas
from kprof_inject.analysis.findings.imbalanced_warps import imbalanced_warps
from kprof_inject.analysis.findings.in_flight import few_warps, small_ctas
from kprof_inject.analysis.findings.launch_conditions import short_launch, throttled
from kprof_inject.analysis.findings.loop_phases import epilogue, first_iterations, prologue
from kprof_inject.analysis.findings.loop_work import loop_invariant, reduction_in_loop
from kprof_inject.analysis.findings.pace import pace
from kprof_inject.analysis.findings.pipelining import has_sampled_waits, not_pipelined, too_few_stages
from kprof_inject.analysis.findings.reuse import l2_reuse, same_in_all_ctas, small_tiles
from kprof_inject.analysis.findings.special_functions import special_functions
from kprof_inject.analysis.findings.uncoalesced import uncoalesced
from kprof_inject.analysis.findings.unit_work import alternating_units, bank_conflicts, fp32_dots, spills
from kprof_inject.analysis.findings.waiting import waiting
from kprof_inject.analysis.roofs.limits import memory_wait_limit
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_ctas, missing_records, too_short, unpaired_records
from kprof_inject.quantities import percent
from kprof_inject.timeline.timeline import Timeline

RuleResults = Iterator[Finding | Unjudged]
Rule = Callable[[Evidence], RuleResults]
"""Yields its findings and, if missing data may hide some, the reason why it could not judge. If it yields neither,
there is nothing to find."""


def _by_records(rule: Callable[[Timeline, LaunchSummary], RuleResults]) -> Rule:
    """Return a rule that needs nothing but what was recorded."""
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


def _unless_memory_waits(rule: Rule) -> Rule:
    """Return a rule that takes idle SMs and warps for a lack of work: not where they wait for memory to change.

    More CTAs or warps would wait, too, and CTAs that wait for each other may not all fit on the SMs.
    """

    def judge(evidence: Evidence) -> RuleResults:
        if memory_wait_limit(evidence.summary) is None:
            yield from rule(evidence)
        else:
            yield Unjudged("its warps wait for memory to change for most of their time", "")

    return judge


def _waiting(evidence: Evidence) -> RuleResults:
    """Judge waits by records; where samples show them all, it lacks nothing."""
    for result in waiting(evidence.timeline, evidence.summary):
        if isinstance(result, Finding) or not has_sampled_waits(evidence):
            yield result


RULES: dict[str, Rule] = {
    "low-fill": _unless_memory_waits(low_fill),
    "short-launch": short_launch,
    "between-ctas": _by_cta_times(between_ctas),
    "tail": _by_cta_times(tail),
    "uneven-ctas": _by_cta_times(uneven_ctas),
    "imbalanced-warps": _by_records(imbalanced_warps),
    "prologue": _by_records(prologue),
    "epilogue": _by_records(epilogue),
    "first-iterations": _by_records(first_iterations),
    "waiting": _waiting,
    "not-pipelined": not_pipelined,
    "too-few-stages": too_few_stages,
    "bank-conflicts": bank_conflicts,
    "uncoalesced": uncoalesced,
    "l2-reuse": l2_reuse,
    "small-tiles": small_tiles,
    "alternating-units": alternating_units,
    "atomics": atomics,
    "loop-invariant": loop_invariant,
    "reduction-in-loop": reduction_in_loop,
    "same-in-all-ctas": same_in_all_ctas,
    "special-functions": special_functions,
    "fp32-dots": fp32_dots,
    "exposed-loads": exposed_loads,
    "barriers": _unless_memory_waits(barriers),
    "few-warps": _unless_memory_waits(few_warps),
    "small-ctas": _unless_memory_waits(small_ctas),
    "spills": spills,
    "throttled": throttled,
}

_OF_SMS = ("low-fill", "between-ctas", "tail", "uneven-ctas")
"""Rules on SMs without work, to which other SMs' work may move."""

_WITHOUT_RECORDS = (*_OF_SMS, "short-launch", "throttled")
"""Rules that use only the headers of CTAs and the clock, so that missing records do not make their findings
doubtful."""

_OF_SAME_WORK = (
    *_OF_SMS,
    "imbalanced-warps",
    "prologue",
    "epilogue",
    "first-iterations",
    "waiting",
)
"""Rules on time that is lost while the kernel does its necessary work: the gain is limited to the time in which the
busiest unit is idle."""

RULES_ON_EXPERIMENTS: dict[str, Rule] = {"pace": pace}
"""Rules that run only if there is a causal experiment."""

_NO_CTA = Unjudged("no CTA ran", "")


class Outcome(Enum):
    """Conclusion of a rule."""

    FOUND = "found"
    NOT_FOUND = "not found"
    UNJUDGED = "could not judge"


class RuleOutcome(Struct, frozen=True):
    """Conclusion of a rule; what is missing and how to get it, if it could not judge and that is known."""

    rule: str
    outcome: Outcome
    reason: str | None
    remedy: str | None


class Judgement(Struct, frozen=True):
    """Result of a rule for a launch: findings, or ``unjudged``, or neither if there is nothing to find."""

    rule: str
    findings: tuple[Finding, ...]
    unjudged: Unjudged | None

    @property
    def outcome(self) -> Outcome:
        """The kind of result."""
        if self.findings:
            return Outcome.FOUND
        return Outcome.UNJUDGED if self.unjudged else Outcome.NOT_FOUND

    @property
    def conclusion(self) -> RuleOutcome:
        """The result without the findings."""
        missing = self.unjudged or Unjudged("", "")
        return RuleOutcome(self.rule, self.outcome, missing.reason or None, missing.remedy or None)


def judge_by_rules(evidence: Evidence) -> tuple[Judgement, ...]:
    """Return the result of each rule, in the order of the rules."""
    rules = RULES if evidence.slopes is None else {**RULES, **RULES_ON_EXPERIMENTS}
    if not evidence.summary.ctas:
        return tuple(Judgement(rule, (), _NO_CTA) for rule in rules)
    timeline = evidence.timeline
    missing = missing_records(timeline) or unpaired_records(timeline)
    judgements = []
    for name, rule in rules.items():
        results = [*_limited_by_unit(name, rule(evidence), evidence)]
        doubt = missing.reason if missing and name not in _WITHOUT_RECORDS else ""
        findings = tuple(replace(one, doubt=doubt) for one in results if isinstance(one, Finding))
        unjudged = next((one for one in results if isinstance(one, Unjudged)), None)
        if unjudged and evidence.summary.is_foreign:  # remedies do not apply to buffers of other profilers
            unjudged = replace(unjudged, remedy="")
        # Findings are valid even if the rule could not judge everything.
        judgements.append(Judgement(name, findings, None if findings else unjudged))
    return tuple(judgements)


def _limited_by_unit(rule: str, results: RuleResults, evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Limit each finding's gain to the time in which the launch's busiest unit is idle."""
    unit, part = evidence.busiest_of_device if rule in _OF_SMS else evidence.busiest
    rest = 1 - part
    for result in results:
        if isinstance(result, Finding) and rule in _OF_SAME_WORK and result.share > rest:
            limit = f"at most {percent(rest)} can be gained ({unit} at {percent(part)} of peak)"
            result = replace(result, share=rest, text=f"{result.text}; {limit}")
        yield result
