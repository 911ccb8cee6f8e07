"""Special functions that are not needed: an equal expression has fewer of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.roofs.operation_work import work_of
from kprof_inject.analysis.roofs.unit_rates import ALU, FP32, ISSUE, SPECIAL
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import listed, percent
from kprof_inject.ttgir.dialect import DIVISIONS
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import definition_of, operand_names
from kprof_inject.ttgir.types import types_of

_EXP = frozenset(("math.exp", "math.exp2"))
_LOG = frozenset(("math.log", "math.log2"))
_SQRT = frozenset(("math.sqrt", "tt.precise_sqrt"))
# With the busiest of these units below, other things limit the launch.
_MIN_BUSY = 0.5
_ARITHMETIC = (SPECIAL, FP32, ALU, ISSUE)
# If memory is busier by more than this, fewer special functions hardly help; of other arithmetic, they are a part.
_MIN_OF_MEMORY = 0.85
# Less of the special functions, or of all instructions, is not worth an edit.
_MIN_REMOVED = 0.05
_MAX_NAMES = 3


class _Removable(Struct, frozen=True):
    """Operations that an equal expression does not need."""

    operations: tuple[Operation, ...]
    root: Operation
    edit: str
    """The edit, such as *exp(a) * exp(b) is exp(a + b)*."""


_Operands = Sequence[Operation | None]


def _both(operands: _Operands, names: frozenset[str], edit: str) -> str:
    is_fitting = len(operands) == 2 and all(one is not None and one.name in names for one in operands)
    return edit if is_fitting else ""


_PATTERNS: Mapping[str, Callable[[_Operands], str]] = {
    "arith.mulf": lambda operands: (
        _both(operands, _EXP, "exp(a) * exp(b) is exp(a + b)")
        or _both(operands, _SQRT, "sqrt(a) * sqrt(b) is sqrt(a * b)")
    ),
    "arith.addf": lambda operands: _both(operands, _LOG, "log(a) + log(b) is log(a * b)"),
    "arith.subf": lambda operands: _both(operands, _LOG, "log(a) - log(b) is log(a / b)"),
}


def special_functions(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield special functions that an equal expression would not need; else where a busy unit's work comes from."""
    busy = max((evidence.parts.get(unit, 0.0) for unit in _ARITHMETIC), default=0.0)
    if evidence.executed is None or busy < _MIN_BUSY:
        return
    aliases = evidence.executed.module.aliases
    counts = {
        one.operation: special * one.times
        for one in evidence.executed.operations
        if one.times and (special := work_of(one.operation, aliases).special)
    }
    whole = sum(counts.values())
    if not whole:
        return
    removable = list(_removable(evidence, counts))
    removed = {operation for one in removable for operation in one.operations}
    special = sum(counts.get(one, 0.0) for one in removed) / whole
    issued = evidence.issued_share_of(removed.union(one.root for one in removable)) if removable else 0.0
    share = evidence.max_gain({SPECIAL: special, **dict.fromkeys((FP32, ALU, ISSUE), issued)})
    if max(special, issued) >= _MIN_REMOVED and share >= MIN_SHARE:
        yield _finding(evidence, removable, special, share)
        return
    memory = max((part for unit, part in evidence.parts.items() if unit not in _ARITHMETIC), default=0.0)
    if evidence.parts.get(SPECIAL, 0.0) >= max(_MIN_BUSY, _MIN_OF_MEMORY * memory):
        yield _overview(evidence, counts, whole)


def _removable(evidence: Evidence, counts: Mapping[Operation, float]) -> Iterator[_Removable]:
    assert evidence.executed is not None
    divisions: dict[str, list[Operation]] = {}
    joined: dict[Operation, Operation | None] = {}  # products and sums of functions, with the function that they keep
    for one in (counted.operation for counted in evidence.executed.operations):
        may_match = one.name in _PATTERNS or one.name in DIVISIONS or one.traits.is_transcendental
        operands = [definition_of(name, one) for name in operand_names(one)] if may_match else []
        if one.name in _PATTERNS:
            functions = [joined.get(operand, operand) if operand is not None else None for operand in operands]
            if edit := _PATTERNS[one.name](functions):
                joined[one] = functions[0]
                yield _Removable(tuple(found for found in functions[1:] if found is not None), one, edit)
        if one.name in _EXP and (power := _of_power(one, operands)):
            yield power
        if one.name in DIVISIONS and len(operands) == 2:
            yield from _of_division(one, operands)
            if one in counts:
                divisions.setdefault(operand_names(one)[1], []).append(one)
        if one in counts and (smaller := _of_broadcast(one, operands)):
            yield smaller
    for same in divisions.values():
        if len(same) > 1:
            yield _Removable(tuple(same[1:]), same[0], "several divisions by one value: compute its reciprocal once")


def _of_division(one: Operation, operands: _Operands) -> Iterator[_Removable]:
    dividend, divisor = operands
    if divisor is None:
        return
    if divisor.name in _EXP:
        is_quotient = dividend is not None and dividend.name in _EXP
        edit = "exp(a) / exp(b) is exp(a - b)" if is_quotient else "x / exp(a) is x * exp(-a)"
        yield _Removable((one, divisor) if is_quotient else (one,), one, edit)
    elif divisor.name in _SQRT:
        yield _Removable((one,), one, "x / sqrt(a) is x * rsqrt(a)")


def _of_power(one: Operation, operands: _Operands) -> _Removable | None:
    """Return an exponential of a logarithm, or of a multiple of one, with the logarithm."""
    (inner,) = operands or (None,)
    if inner is None:
        return None
    if inner.name in _LOG:
        return _Removable((one, inner), one, "exp(log(a)) is a")
    factors = [definition_of(name, inner) for name in operand_names(inner)] if inner.name == "arith.mulf" else []
    logarithm = next((factor for factor in factors if factor is not None and factor.name in _LOG), None)
    if logarithm is None:
        return None
    return _Removable((one, logarithm), one, "exp(c * log(a)) is a ** c: multiplications, if c is whole")


def _of_broadcast(one: Operation, operands: _Operands) -> _Removable | None:
    """Return a function of elements that are copies of fewer: it could be computed before they are copied."""
    made, types = operands[0] if operands else None, types_of(one)
    if len(operands) != 1 or not types:
        return None
    while made is not None and made.traits.keeps_elements:
        if types_of(made)[0].elements < types[-1].elements:
            return _Removable(
                (one,), one, f"{one.name.rpartition('.')[2]} of a broadcast: compute it before the broadcast"
            )
        made = definition_of(operand_names(made)[0], made)
    return None


def _finding(evidence: Evidence, removable: Sequence[_Removable], special: float, share: float) -> Finding:
    edits = Counter(one.edit for one in removable)
    places: dict[str, str] = {}
    for one in removable:
        places.setdefault(one.edit, evidence.place_of(one.root))
    advice = listed([f"{edit} ({places[edit]})" for edit in edits], _MAX_NAMES)
    busiest = max(_ARITHMETIC, key=lambda unit: evidence.parts.get(unit, 0.0))
    return Finding(
        rule="special-functions",
        scope=None,
        share=share,
        text=f"{percent(special)} of the special functions are not needed; {busiest} at "
        f"{percent(evidence.parts[busiest])} of peak",
        advice=f"use fewer special functions: {advice}",
        figures={"removable": len(removable), "removable_share": special},
        lines=evidence.first_lines_of(operation for one in removable for operation in one.operations),
    )


def _overview(evidence: Evidence, counts: Mapping[Operation, float], whole: float) -> Finding:
    """Return where the special functions are, if the unit limits the launch and no expression is known to be equal."""
    found: Counter[str] = Counter()
    for one, count in counts.items():
        found[evidence.words_of(one)] += round(count)
    places = listed([f"{words} ({percent(count / whole)})" for words, count in found.most_common()], _MAX_NAMES)
    share = evidence.max_gain({SPECIAL: 1.0})
    return Finding(
        rule="special-functions",
        scope=None,
        share=share,
        text=f"the special function units are at {percent(evidence.parts[SPECIAL])} of peak: {places}",
        advice="use fewer special functions (exponentials, divisions, square roots): fold factors into exp2, compute a "
        "reciprocal once and multiply, compute on fewer elements, or replace some by polynomials of multiply-adds",
        figures={"removable": 0},
        likely=share / 2,
        lines=evidence.first_lines_of(counts),
    )
