"""Masks of loads, stores and copies that are true for every element in every CTA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.saved_instructions import may_gain, saving_of
from kprof_inject.analysis.interpreter.accesses import Access, mask_name
from kprof_inject.analysis.interpreter.axis_arrays import Mask, TooLarge, dimension
from kprof_inject.analysis.interpreter.executed_operation import asks_for_iteration
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.roofs.coalescing import widest_bytes
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.machine_code.accesses import global_access
from kprof_inject.machine_code.dead_code import dead_without_predicates
from kprof_inject.quantities import percent
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import definition_of, operand_names


def full_masks(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield masks that never disable an element, if what computes them takes a part of the instructions.

    Without them, instructions that only compute masks vanish, and accesses are as wide as their addresses allow.
    """
    if evidence.ran is None or evidence.code is None or not may_gain(evidence):
        return
    known = {one.operation: one for one in evidence.ran.operations}
    full = [
        one for one in evidence.ran.operations if one.access and one.times and _has_full_mask(one, one.access, known)
    ]
    if not full:
        return
    narrow = _narrow(evidence, full)
    dead = dead_without_predicates(evidence.code, evidence.lines_of(one.operation for one in full))
    removed = {**narrow, **{evidence.code.instructions[index].address: 1.0 for index in dead}}
    saving = saving_of(evidence, removed)
    if saving is None:
        return
    operations = [one.operation for one in full]
    names = evidence.names_of(operations)
    wider = ", as accesses would be as wide as their addresses allow" if narrow else ""
    yield evidence.at(
        operations,
        Finding(
            rule="full-masks",
            scope=None,
            share=saving.bound,
            text=f"masks are true for every element of this launch ({names}): without them, the kernel "
            f"would issue {percent(saving.issued_share)} fewer instructions{wider}",
            advice=_ADVICE + (_WIDER if narrow else ""),
            figures={
                "accesses": len(full),
                "narrow_instructions": len(narrow),
                "issued_share": saving.issued_share,
            },
            likely=saving.likely,
        ),
    )


_ADVICE = (
    "leave masks out where the sizes are multiples of the tile: branch on a tl.constexpr flag, such as EVEN_K that "
    "the caller sets, or triton.heuristics"
)
_WIDER = "; or let the compiler know that the bound of the mask is a multiple of 16 (tl.multiple_of)"


def _has_full_mask(one: CountedOperation, access: Access, known: Mapping[Operation, CountedOperation]) -> bool:
    """Return whether a mask disables no element, besides those of iterations that there are not.

    The compiler's pipeliner adds conditions to masks: the same for all elements, they remain without the masks.
    """
    name, when = mask_name(one.operation), one.executed.when
    if name is None or when is None or access.places is None:
        return False
    conditions = list(_conditions(name, one.operation))
    scalars = [condition for condition in conditions if _is_of_scalar(*condition)]
    if len(scalars) == len(conditions):
        return False
    for condition, user in scalars:
        if asks_for_iteration(condition, user):
            value = _value(condition, known.get(user))
            if value is None:
                return False
            when = when & value
    sizes = {**one.executed.sizes, **{dimension(number): size for number, size in enumerate(access.shape)}}
    try:
        return not when.is_lower_bound and access.places == when.count(sizes) > 0
    except TooLarge:
        return False


def _conditions(name: str, user: Operation) -> Iterator[tuple[str, Operation]]:
    """Yield the conditions whose conjunction is a mask, each with an operation that takes it."""
    made = definition_of(name, user)
    if made is not None and made.name == "arith.andi":
        for operand in operand_names(made):
            yield from _conditions(operand, made)
    else:
        yield name, user


def _is_of_scalar(name: str, user: Operation) -> bool:
    made = definition_of(name, user)
    return made is not None and (made.name == "tt.splat" or made.traits.is_constant)


def _value(name: str, user: CountedOperation | None) -> Mask | None:
    if user is None:
        return None
    values = dict(zip(operand_names(user.operation), user.executed.operands, strict=False))
    value = values.get(name)
    return value if isinstance(value, Mask) else None


def _narrow(evidence: Evidence, full: Sequence[CountedOperation]) -> dict[int, float]:
    """Return, by its address, the part of each access that wider accesses would save.

    The layout has as many adjacent elements in a thread as the compiler knows the addresses of, so a narrower access
    follows from the mask.
    """
    assert evidence.ran is not None
    assert evidence.code is not None
    widest = {one.line: widest_bytes(one, evidence.ran.module) for one in full}
    found = {}
    for instruction in evidence.code.instructions:
        access = global_access(instruction)
        if access and access[1] < widest.get(instruction.line, 0):
            found[instruction.address] = 1 - access[1] / widest[instruction.line]
    return found
