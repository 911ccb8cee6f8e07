"""The rules, and the result of each for a launch: it found something, found nothing, or could not judge."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.findings import (
    busy_units,
    in_flight,
    instructions,
    launch_conditions,
    loaded_again,
    loops,
    memory_accesses,
    repeated_work,
    reuse,
    unneeded_elements,
    waits,
    wide_types,
)
from kprof_inject.analysis.findings.busy_units import pace
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding, Rule
from kprof_inject.analysis.unjudged import Unjudged

_MODULES = (
    launch_conditions,
    loops,
    waits,
    in_flight,
    busy_units,
    # The account of waste.
    loaded_again,
    unneeded_elements,
    wide_types,
    memory_accesses,
    reuse,
    repeated_work,
    instructions,
)
RULES = tuple(one for module in _MODULES for one in vars(module).values() if isinstance(one, Rule) and one is not pace)
"""The rules in the order in which findings of equal gains are shown; with a causal experiment, ``pace`` follows."""


class Outcome(Enum):
    """Conclusion of a rule."""

    FOUND = "found"
    NOT_FOUND = "not found"
    UNJUDGED = "could not judge"


class RuleOutcome(Struct, frozen=True):
    """Conclusion of a rule, with what is missing and how to get it if it could not judge."""

    rule: str
    outcome: Outcome
    reason: str | None
    remedy: str | None


class Judgement(Struct, frozen=True):
    """Result of a rule for a launch: findings of one name, or ``unjudged``, or neither if there is nothing to find."""

    rule: str
    findings: tuple[Finding, ...]
    unjudged: Unjudged | None

    @property
    def conclusion(self) -> RuleOutcome:
        """The result without the findings."""
        outcome = Outcome.FOUND if self.findings else Outcome.UNJUDGED if self.unjudged else Outcome.NOT_FOUND
        missing = self.unjudged or Unjudged("", "")
        return RuleOutcome(self.rule, outcome, missing.reason or None, missing.remedy or None)


def judge_by_rules(evidence: Evidence) -> tuple[Judgement, ...]:
    """Return the result of each rule, in the order of the rules."""
    judgements = []
    for rule in RULES if evidence.slopes is None else (*RULES, pace):
        results = list(rule(evidence)) if evidence.summary.ctas else [Unjudged("no CTA ran", "")]
        for name in rule.names:
            findings = tuple(one for one in results if isinstance(one, Finding) and one.rule == name)
            reasons = (one for one in results if isinstance(one, Unjudged) and one.finding in ("", name))
            unjudged = next((replace(one, finding="") for one in reasons), None)
            if unjudged and evidence.summary.is_foreign:  # remedies do not apply to buffers of other profilers
                unjudged = replace(unjudged, remedy="")
            # Findings are valid even if the rule could not judge everything.
            judgements.append(Judgement(name, findings, None if findings else unjudged))
    return tuple(judgements)
