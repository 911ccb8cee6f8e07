"""Offsets of elements that are computed in 64 bits, although 32 would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.saved_instructions import may_gain, saving_of
from kprof_inject.analysis.interpreter.axis_arrays import IntegerExpr, dimension
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.machine_code.instructions import Instruction, InstructionSet, MachineFunction
from kprof_inject.machine_code.units import Pipeline, pipeline_of
from kprof_inject.quantities import listed, percent
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import definition_of, operand_names
from kprof_inject.ttgir.types import types_of

_COMPARISON, _PRODUCT = "arith.cmpi", "arith.muli"
# Divisions are not among them: how many instructions 32 bits save there is not known.
_COMPUTING = frozenset(("arith.extsi", "arith.extui", _PRODUCT, "arith.addi", "arith.subi", "arith.shli"))
# Modifiers of instructions that compute the upper half of 64 bits: with a carry, or of a shift.
_UPPER = frozenset(("X", "EX", "U64"))
_EXTENSION, _SIGN = "SHF.R.S32.HI", "0x1f"
# A product of 64 bits is that of the lower halves, which 32 bits need, and up to three instructions for the upper ones.
_LOWER_PRODUCT = "IMAD.WIDE.U32"
_UPPER_PRODUCTS = frozenset(("IMAD", "IMAD.IADD", "IMAD.X", "IADD3"))
_MAX_UPPER = 3
_INTEGER = (Pipeline.ALU, Pipeline.FMA)
_WIDE = "i64"
_MAX_OFFSET = (1 << 31) - 1
_MAX_NAMES = 3


def wide_addresses(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield offsets of elements that have 64 bits and fit into 32, if these take a part of the instructions.

    The part of an offset that is the same for all elements of a tensor may be larger: it belongs to a scalar pointer.
    """
    code = evidence.code
    if evidence.ran is None or code is None or not may_gain(evidence):
        return
    if code.instruction_set is not InstructionSet.NVIDIA:
        return
    offsets = {one.operation: _wide_offset(one) for one in evidence.ran.operations}
    makers = {one: _makers(one) for one, offset in offsets.items() if offset is not None}
    # Constants and values that are only repeated take no instructions for each element.
    sums = {one: offset for one, offset in offsets.items() if offset is not None and makers[one]}
    if not sums or max(map(_largest_within, sums.values())) > _MAX_OFFSET:
        return
    wide = list(dict.fromkeys(maker for one in sums for maker in makers[one]))
    saving = saving_of(evidence, _removed(evidence, code, [*wide, *_comparisons(evidence, wide)]))
    if saving is None:
        return
    operations = list(sums)
    largest = max(map(_largest, sums.values()))
    names = listed(list(dict.fromkeys(map(evidence.place_of, operations))), _MAX_NAMES)
    yield evidence.at(
        operations,
        Finding(
            rule="wide-addresses",
            scope=None,
            share=saving.bound,
            text=f"the offset of each element is computed in 64 bits ({names}): in 32 bits, the kernel would issue "
            f"about {percent(saving.issued_share)} fewer instructions; the largest offset of this launch is {largest}",
            advice=_IN_32_BITS if largest <= _MAX_OFFSET else _BY_SCALAR,
            figures={"offsets": len(sums), "largest_offset": largest, "issued_share": saving.issued_share},
            likely=saving.likely,
        ),
    )


_BY_SCALAR = (
    "add what is the same for all elements, such as tl.program_id(0).to(tl.int64) * stride, to the pointer as a scalar "
    "of 64 bits, and compute what differs between elements in int32"
)
_IN_32_BITS = (
    "compute offsets in int32: remove .to(tl.int64), and convert strides that are int64; where a tensor may have 2 ** "
    "31 elements or more, add what is the same for all elements to the pointer as a scalar of 64 bits"
)


def _wide_offset(one: CountedOperation) -> IntegerExpr | None:
    """Return the offsets of an operation that adds 64 bits to each of several pointers; None if they are unknown."""
    if one.operation.name != "tt.addptr" or not one.times or len(one.executed.operands) != 2:
        return None
    types, offset = types_of(one.operation), one.executed.operands[1]
    is_wide = bool(types) and bool(types[-1].shape) and types[-1].element == _WIDE
    return offset if is_wide and isinstance(offset, IntegerExpr) else None


def _makers(addition: Operation) -> list[Operation]:
    """Return the operations on tensors of 64-bit integers that compute an offset."""
    found: list[Operation] = []
    pending = [(name, addition) for name in operand_names(addition)[1:]]
    while pending:
        name, user = pending.pop()
        made = definition_of(name, user)
        if made is None or made in found or not _is_wide(made):
            continue
        found.append(made)
        pending += [(operand, made) for operand in operand_names(made)]
    return [one for one in found if one.name in _COMPUTING]


def _comparisons(evidence: Evidence, wide: Sequence[Operation]) -> list[Operation]:
    """Return the comparisons of such offsets, for masks."""
    assert evidence.ran is not None
    compared = [
        one.operation
        for one in evidence.ran.operations
        if one.operation.name == _COMPARISON and _is_wide(one.operation)
    ]
    return [one for one in compared if any(definition_of(name, one) in wide for name in operand_names(one))]


def _is_wide(made: Operation) -> bool:
    types = types_of(made)
    return bool(types) and bool(types[-1].shape) and types[-1].element == _WIDE


def _removed(evidence: Evidence, code: MachineFunction, wide: Sequence[Operation]) -> dict[int, float]:
    """Return, by its address, the part of each instruction that 32 bits save: what computes upper halves.

    The compiler may replace products by sums, or multiply extended values by one instruction: what the machine code
    lacks cannot be saved.
    """
    assert evidence.ran is not None
    by_line = dict(zip(evidence.ran.module.line_numbers([one.start for one in wide]), wide, strict=True))
    lines: dict[int, list[Instruction]] = {}
    for one in code.instructions:
        if one.line in by_line and pipeline_of(one) in _INTEGER:
            lines.setdefault(one.line, []).append(one)
    return {
        address: part for line, found in lines.items() for address, part in _upper_halves(by_line[line].name, found)
    }


def _upper_halves(name: str, instructions: Sequence[Instruction]) -> Iterator[tuple[int, float]]:
    lower = sum(one.opcode == _LOWER_PRODUCT for one in instructions)
    products = [one for one in instructions if name == _PRODUCT and one.opcode in _UPPER_PRODUCTS]
    if products:
        part = min(_MAX_UPPER * lower / len(products), 1.0)
        yield from ((one.address, part) for one in products)
    for one in instructions:
        is_extension = one.opcode == _EXTENSION and _SIGN in one.operands
        is_upper = is_extension or not _UPPER.isdisjoint(one.opcode.split("."))
        if is_upper and one not in products:
            yield one.address, 1.0


def _largest(offset: IntegerExpr) -> int:
    low, high = offset.bounds()
    return max(-low, high)


def _largest_within(offset: IntegerExpr) -> int:
    """Return the largest part of an offset that differs between elements."""
    ranks = dimension(0).rank
    parts = tuple(part for part in offset.parts if any(axis.rank == ranks for axis in part.axes))
    return _largest(IntegerExpr(parts))
