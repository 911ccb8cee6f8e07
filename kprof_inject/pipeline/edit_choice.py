"""Choose which edits of a kernel to try, from the findings on its launch and from what has won so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.roofs.limits import DRAM, Limit
from kprof_inject.analysis.roofs.rates import L2, L2_TO_SM
from kprof_inject.capture.edits import COLUMNS, COLUMNS_REVERSED, REVERSED, Edit
from kprof_inject.runtime.experiments.edits.edit import EditRefused, KernelToEdit
from kprof_inject.runtime.experiments.edits.kinds import KINDS, OTHER_CONSTANTS, with_options

MAX_BUILDS = 12
"""Maximum number of builds in each round."""

ASKED_FOR, NEIGHBOUR = "asked for", "neighbour"
_VALUES_OF_FINDING = 4
_MORE, _FEWER = "more", "fewer"


class Proposal(Struct, frozen=True):
    """Edits to try together, and why: the name of a finding, or one of the words above.

    ``predicted`` is the upper bound of the gain by the finding, if the edits do what it advises.
    """

    edits: tuple[Edit, ...]
    reason: str
    predicted: float | None = None


_Step = tuple[str, str]
"""A kind of edit, with a direction or a value."""

_STAGES_UP: _Step = ("num_stages", _MORE)
_LOOP_STAGES: _Step = ("loop_stages", _MORE)
_LOOP_STAGES_DOWN: _Step = ("loop_stages", _FEWER)
_STAGES_DOWN: _Step = ("num_stages", _FEWER)
_WARPS_UP: _Step = ("num_warps", _MORE)
_WARPS_DOWN: _Step = ("num_warps", _FEWER)
_FEWER_REGISTERS: _Step = ("maxnreg", _FEWER)
_MORE_REGISTERS: _Step = ("maxnreg", _MORE)
_LAST_FIRST: _Step = ("program_order", REVERSED)
_COLUMNS: tuple[_Step, ...] = (("program_order", COLUMNS_REVERSED), ("program_order", COLUMNS))
_GROUPED: tuple[_Step, ...] = tuple(("program_order", f"grouped:{rows}") for rows in (8, 4, 16))

# The edits that may help against what each rule finds, most promising first. Other rules propose none.
_BY_RULE: Mapping[str, tuple[_Step, ...]] = {
    "not-pipelined": (_STAGES_UP, _WARPS_UP),
    "too-few-stages": (_STAGES_UP,),
    "waiting": (_STAGES_UP, _WARPS_UP, _WARPS_DOWN),
    "first-iterations": (_STAGES_DOWN, _STAGES_UP),
    "prologue": (_WARPS_UP, _WARPS_DOWN),
    "epilogue": (_WARPS_UP, _WARPS_DOWN),
    "exposed-loads": (_LOOP_STAGES, _STAGES_UP, _WARPS_UP, _FEWER_REGISTERS),
    "barriers": (_WARPS_DOWN, _STAGES_UP),
    "low-fill": (_WARPS_UP, _STAGES_UP),
    "between-ctas": (_WARPS_DOWN, _FEWER_REGISTERS, _STAGES_DOWN),
    "tail": (_LAST_FIRST, _WARPS_UP, _WARPS_DOWN),
    "uneven-ctas": (_LAST_FIRST, *_COLUMNS, *_GROUPED),
    "imbalanced-warps": (_WARPS_DOWN,),
    "bank-conflicts": (_WARPS_UP, _WARPS_DOWN),
    "uncoalesced": (_WARPS_UP, _WARPS_DOWN),
    "small-ctas": (_WARPS_DOWN,),
    "few-warps": (_WARPS_UP, _LOOP_STAGES, _FEWER_REGISTERS, _STAGES_DOWN),
    "l2-reuse": (*_GROUPED, _LAST_FIRST),
    "loop-invariant": (_WARPS_UP, _WARPS_DOWN),
    "small-tiles": (_WARPS_UP, _STAGES_UP, _GROUPED[0]),
    "alternating-units": (_WARPS_UP, _FEWER_REGISTERS, _STAGES_DOWN),
    "special-functions": (_WARPS_UP, _STAGES_UP),
    "reduction-in-loop": (_WARPS_DOWN, _WARPS_UP),
    "atomics": (_WARPS_UP, _WARPS_DOWN),
    "spills": (_WARPS_UP, _MORE_REGISTERS, _STAGES_DOWN),
}

# Edits of the loops that each rule's finding may concern, too. They follow the edits of all findings, so that none of
# those is left out.
_ALSO_BY_RULE: Mapping[str, tuple[_Step, ...]] = {
    "not-pipelined": (_LOOP_STAGES,),
    "too-few-stages": (_LOOP_STAGES,),
    "waiting": (_LOOP_STAGES,),
    "first-iterations": (_LOOP_STAGES_DOWN,),
}

# The kinds of edits that do what a rule advises, so that its bound is theirs. Other edits only might help against it.
_REMEDIES: Mapping[str, tuple[str, ...]] = {
    "not-pipelined": ("num_stages", "loop_stages"),
    "too-few-stages": ("num_stages", "loop_stages"),
    "waiting": ("num_stages", "loop_stages"),
    "exposed-loads": ("num_stages", "loop_stages"),
    "few-warps": ("num_warps", "loop_stages", "num_stages"),
    "barriers": ("num_warps",),
    "spills": ("num_warps", "maxnreg"),
    "l2-reuse": ("program_order",),
    "uneven-ctas": ("program_order",),
}

_BY_UNIT: Mapping[str, tuple[_Step, ...]] = {
    DRAM: (_GROUPED[0],),
    L2: (_GROUPED[0], _WARPS_UP),
    L2_TO_SM: (_GROUPED[0], _WARPS_UP),
}
_NEIGHBOURHOOD: tuple[_Step, ...] = (_STAGES_UP, _WARPS_UP, _WARPS_DOWN, _STAGES_DOWN, _FEWER_REGISTERS)
_AT_LAST: _Step = ("env", _MORE)


def edits_for(
    findings: Sequence[Finding], limit: Limit | None, kernel: KernelToEdit, asked_for: Sequence[tuple[Edit, ...]] = ()
) -> list[Proposal]:
    """Return the edits to try first: those the user asked for alone, if any.

    Otherwise all values of constants that the user named, and at most ``MAX_BUILDS`` others: those that the findings
    propose, which are sorted by the largest possible gain; then those against the limit; then what else the findings
    propose; then the options next to the present ones.
    """
    if asked_for:
        each = [Proposal(edits, ASKED_FOR) for edits in asked_for]
        all_edits = tuple(edit for edits in asked_for for edit in edits)
        can_be_together = len(asked_for) > 1 and len({edit.kind for edit in all_edits}) == len(all_edits)
        return [*each, Proposal(all_edits, ASKED_FOR)] if can_be_together else each
    named = [Proposal((Edit(OTHER_CONSTANTS, one.text),), ASKED_FOR) for one in kernel.others]
    proposals: dict[Edit, Proposal] = {}
    for proposal in (
        *_by_findings(findings, kernel, _BY_RULE),
        *_by_limit(limit, kernel),
        *_by_findings(findings, kernel, _ALSO_BY_RULE),
        *_neighbours(kernel),
    ):
        proposals.setdefault(proposal.edits[0], proposal)
    return [*named, *list(proposals.values())[:MAX_BUILDS]]


def _by_findings(
    findings: Sequence[Finding], kernel: KernelToEdit, steps: Mapping[str, tuple[_Step, ...]]
) -> Iterator[Proposal]:
    for finding in findings:
        remedies = _REMEDIES.get(finding.rule, ())
        for step in steps.get(finding.rule, ()):
            for edit in _edits_of(step, kernel, _VALUES_OF_FINDING):
                yield Proposal((edit,), finding.rule, _promise(finding, edit) if edit.kind in remedies else None)


def _promise(finding: Finding, edit: Edit) -> float:
    """Return the gain that a finding promises at most: that of an edit's value if it knows it, or its share."""
    known = finding.figures.get(edit.value)
    return max(min(known if isinstance(known, float) else 1.0, finding.share, 1.0), 0.0)


def _by_limit(limit: Limit | None, kernel: KernelToEdit) -> Iterator[Proposal]:
    for unit in limit.units if limit is not None and limit.is_known else ():
        for step in _BY_UNIT.get(unit, ()):
            yield from (Proposal((edit,), f"limit {unit}") for edit in _edits_of(step, kernel))


def _neighbours(kernel: KernelToEdit) -> Iterator[Proposal]:
    for step in (*_NEIGHBOURHOOD, _AT_LAST):
        yield from (Proposal((edit,), NEIGHBOUR) for edit in _edits_of(step, kernel))


def _edits_of(step: _Step, kernel: KernelToEdit, max_count: int = 1) -> list[Edit]:
    """Return the edits of a step that the kernel allows, at most ``max_count``."""
    name, what = step
    kind = KINDS[name]
    if what == _FEWER:
        values = kind.fewer(kernel)
    elif what == _MORE:
        values = kind.more(kernel)
    else:
        values = [value for value in kind.more(kernel) if value == what]
    return [Edit(name, value) for value in values[:max_count]]


def edits_after(
    winners: Sequence[tuple[Edit, ...]], kernel: KernelToEdit, tried: Sequence[tuple[Edit, ...]]
) -> list[Proposal]:
    """Return the edits to try next, at most ``MAX_BUILDS``: those of winners together with others.

    ``winners`` are sorted, the best first; ``tried`` are not tried again.
    """
    known = set(map(frozenset, tried))
    found: dict[frozenset[Edit], Proposal] = {}
    # What moves on from the second best may pass what moves on from the best.
    for place, winner in enumerate(winners):
        for edits in (*_combined(winner, winners[place + 1 :]), *_moved(winner, kernel)):
            if frozenset(edits) not in known:
                found.setdefault(frozenset(edits), Proposal(edits, NEIGHBOUR))
    return list(found.values())[:MAX_BUILDS]


def _combined(best: tuple[Edit, ...], others: Sequence[tuple[Edit, ...]]) -> Iterator[tuple[Edit, ...]]:
    """Yield the best edits together with each of the others that change something else."""
    kinds = {edit.kind for edit in best}
    for other in others:
        if kinds.isdisjoint(edit.kind for edit in other):
            yield (*best, *other)


def _moved(best: tuple[Edit, ...], kernel: KernelToEdit) -> Iterator[tuple[Edit, ...]]:
    """Yield the best edits with one option moved further, or with another one changed."""
    try:
        edited = with_options(kernel, best)
    except EditRefused:
        return
    for step in _NEIGHBOURHOOD:
        for edit in _edits_of(step, edited):
            yield (*(one for one in best if one.kind != edit.kind), edit)
    for edit in best:
        if edit.kind == "program_order":  # it has no direction: all others are next
            rest = tuple(one for one in best if one is not edit)
            values = KINDS[edit.kind].more(kernel)
            yield from ((*rest, Edit(edit.kind, value)) for value in values if value != edit.value)
