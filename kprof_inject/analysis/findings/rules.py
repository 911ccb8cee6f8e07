"""The rules, and the result of each for a launch: it found something, found nothing, or could not judge."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.findings.arithmetic import (
    frozen_iterations,
    product_sums,
    random_numbers,
    rounded_functions,
    special_functions,
)
from kprof_inject.analysis.findings.atomics import atomics
from kprof_inject.analysis.findings.busy_units import units_in_turn
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding, Rule
from kprof_inject.analysis.findings.imbalanced_warps import imbalanced_warps
from kprof_inject.analysis.findings.in_flight import few_warps, small_ctas
from kprof_inject.analysis.findings.instructions import address_arithmetic, same_in_all_threads, spills
from kprof_inject.analysis.findings.launch_conditions import (
    between_ctas,
    low_fill,
    short_launch,
    tail,
    throttled,
    uneven_ctas,
)
from kprof_inject.analysis.findings.loaded_again import loaded_again, stored_again
from kprof_inject.analysis.findings.loop_phases import epilogue, first_iterations, prologue
from kprof_inject.analysis.findings.pipelining import not_pipelined, too_few_stages
from kprof_inject.analysis.findings.repeated_work import (
    loop_invariant,
    operands_by_registers,
    reduction_in_loop,
    same_in_all_ctas,
    scaled_in_loop,
)
from kprof_inject.analysis.findings.reuse import l2_reuse, small_tiles, symmetric_product
from kprof_inject.analysis.findings.shared_memory import bank_conflicts, needless_barriers
from kprof_inject.analysis.findings.uncoalesced import narrow_accesses, uncoalesced
from kprof_inject.analysis.findings.unneeded_elements import idle_ctas, masked_iterations, padding, unneeded_elements
from kprof_inject.analysis.findings.waits import barriers, exposed_loads, lock, pace, waiting
from kprof_inject.analysis.findings.wide_types import fp32_dots, fp64, wide_types
from kprof_inject.analysis.unjudged import Unjudged

RULES: tuple[Rule, ...] = (
    low_fill,
    short_launch,
    between_ctas,
    tail,
    uneven_ctas,
    imbalanced_warps,
    prologue,
    epilogue,
    first_iterations,
    waiting,
    not_pipelined,
    too_few_stages,
    units_in_turn,
    atomics,
    lock,
    exposed_loads,
    barriers,
    few_warps,
    small_ctas,
    throttled,
    # The account of waste.
    loaded_again,
    stored_again,
    unneeded_elements,
    masked_iterations,
    idle_ctas,
    padding,
    wide_types,
    fp32_dots,
    fp64,
    uncoalesced,
    narrow_accesses,
    l2_reuse,
    small_tiles,
    symmetric_product,
    bank_conflicts,
    needless_barriers,
    operands_by_registers,
    scaled_in_loop,
    loop_invariant,
    reduction_in_loop,
    same_in_all_ctas,
    same_in_all_threads,
    address_arithmetic,
    special_functions,
    rounded_functions,
    random_numbers,
    product_sums,
    frozen_iterations,
    spills,
)
"""The rules in the order in which findings of equal gains are shown; with a causal experiment, ``pace`` follows."""


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
    rules = RULES if evidence.slopes is None else (*RULES, pace)
    if not evidence.summary.ctas:
        return tuple(Judgement(rule.name, (), Unjudged("no CTA ran", "")) for rule in rules)
    judgements = []
    for rule in rules:
        results = list(rule(evidence))
        findings = tuple(one for one in results if isinstance(one, Finding))
        unjudged = next((one for one in results if isinstance(one, Unjudged)), None)
        if unjudged and evidence.summary.is_foreign:  # remedies do not apply to buffers of other profilers
            unjudged = replace(unjudged, remedy="")
        # Findings are valid even if the rule could not judge everything.
        judgements.append(Judgement(rule.name, findings, None if findings else unjudged))
    return tuple(judgements)
