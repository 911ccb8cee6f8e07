"""Removal of costly arithmetic: a function of one operand becomes that operand, a division the larger of its two."""

from __future__ import annotations

from kprof_inject.pipeline.removals.replacing import RemovalRefused, operand_type, replaced
from kprof_inject.rewrite import Replacement
from kprof_inject.ttgir.dialect import DIVISIONS
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import operand_names

_OF_TWO = frozenset((*DIVISIONS, "math.powf"))
_OF_MATH = "cos erf exp exp2 expm1 log log10 log1p log2 rsqrt sin sqrt tan tanh"
_FUNCTIONS = frozenset(("tt.precise_sqrt", *(f"math.{name}" for name in _OF_MATH.split())))
ARITHMETIC = _OF_TWO | _FUNCTIONS


def without_arithmetic(module: Module, operation: Operation) -> list[Replacement]:
    """Return the edit that removes an operation of ``ARITHMETIC``.

    A maximum is one instruction, keeps both operands alive, and is never fused with others, unlike a multiplication.
    """
    names, kind = operand_names(operation), operand_type(operation)
    if operation.name in _OF_TWO and len(names) == 2:
        return [replaced(module, operation, [f"arith.maxnumf {names[0]}, {names[1]} : {kind}"])]
    if operation.name in _FUNCTIONS and len(names) == 1:
        return [replaced(module, operation, [f"tt.bitcast {names[0]} : {kind} -> {kind}"])]
    raise RemovalRefused(f"{operation.name} is printed in a form that cannot be edited")
