"""Lower bound of a kernel's integer work on data: values that were loaded, computed from floats, or are random.

Addresses and masks do not count, because the compiler computes many of them once for several elements. In the rest it
merges what one instruction does: three operands of bitwise logic, a test of bits, a sum and its minimum, a product and
a sum, a shift and a sum, the two shifts of a rotation. It extracts bits from a word by one instruction, and replaces
selects by predicates. So one of the operations that may be merged counts, and one half of a 64-bit word. The rules come
from the machine code that Triton makes for sm_90 (``tests/compiler/test_machine_code.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from kprof_inject.analysis.limits.operation_work import NO_WORK, Work
from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.select.functions import integer_work
from kprof_inject.ttgir.dialect import FUNCTION, INTEGER_DIVISIONS
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import Leaf, ValueGraph, constant_of
from kprof_inject.ttgir.types import types_of

_LOGIC, _PRODUCT = Work(logic=1), Work(integer_multiplications=1)
_WORD_BITS = 32

_EXTENSIONS = ("arith.extsi", "arith.extui")
_BITWISE = ("arith.andi", "arith.ori", "arith.xori")
_BOUNDS = ("arith.minsi", "arith.minui", "arith.maxsi", "arith.maxui")
_RIGHT_SHIFTS = ("arith.shrsi", "arith.shrui")
_SHIFTS = ("arith.shli", *_RIGHT_SHIFTS)
# Masks of all bits, of a half or of a byte of a word.
_SIMPLE = (-1, 0xFF, 0xFFFF, 0xFF00, 0xFF0000, -0x1000000, -0x10000)
_DIVISIONS = (*INTEGER_DIVISIONS, "arith.ceildivsi", "arith.ceildivui", "arith.floordivsi")
# Operations that may merge with an operation whose result only they use.
_MERGED_BY: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_BITWISE, _BITWISE),
    **dict.fromkeys(_BOUNDS, _BOUNDS),
    # A test of a range is one comparison, and what combines bits also tests them.
    "arith.cmpi": _BITWISE,
    # Bits are extracted without a shift.
    **dict.fromkeys(_RIGHT_SHIFTS, ("arith.cmpi", "arith.trunci")),
}


@lru_cache(maxsize=KERNELS_CACHED)
def work_with_integers(module: Module) -> Mapping[Operation, Work]:
    """Return the work of one execution by a CTA, for each operation on integers that does any."""
    found: dict[Operation, Work] = {}
    for function in module.walk():
        if function.name == FUNCTION and (on_data := integer_work(module, function)):
            counted = _IntegerFunction(ValueGraph(module, function))
            found |= {
                leaf.operation: work
                for leaf in counted.graph.leaves
                if leaf.operation.start in on_data and (work := counted.work(leaf)) != NO_WORK
            }
    return found


class _IntegerFunction:
    def __init__(self, graph: ValueGraph) -> None:
        self.graph = graph
        self._leaf_of = {leaf.node: leaf for leaf in graph.leaves}
        self._combined = {node for one, nodes in graph.results if one.traits.combines_elements for node in nodes}

    def work(self, leaf: Leaf) -> Work:
        """Return an operation's work, in proportion to the size of its elements.

        Bits are free, because they are predicates; elements narrower than a word may be packed.
        """
        count = _COUNTS.get(leaf.operation.name)
        types = types_of(leaf.operation)
        if count is None or not types or not leaf.values:
            return NO_WORK
        computed = types[0] if leaf.operation.name == "arith.cmpi" else types[-1]
        if not computed.shape or not computed.element.startswith("i") or computed.bits == 1:
            return NO_WORK
        bits = min(computed.bits, self._significant_bits(leaf), _WORD_BITS)
        return count(self, leaf) * (computed.elements * bits / _WORD_BITS)

    def _significant_bits(self, leaf: Leaf) -> int:
        """Return the size that the operands were extended from, as narrow integers may be computed in pairs."""
        made = [one for one in map(self._made_by, leaf.values) if not (one and one.operation.traits.is_constant)]
        sizes = [
            types_of(one.operation)[0].bits if one and one.operation.name in _EXTENSIONS else _WORD_BITS for one in made
        ]
        return max(sizes, default=_WORD_BITS)

    def bitwise(self, leaf: Leaf) -> Work:
        """Return the work of bitwise logic, which is none if other instructions may include it.

        These are rotations, bits taken from a known place, results of a reduction (the compiler may undo it), whole
        bytes (which are read in place), a complement (part of the instruction that uses it), and bits appended to
        others (by a sum).
        """
        shifts = [one for value in leaf.values if (one := self._made_by(value)) and one.operation.name in _SHIFTS]
        is_rotation = len(shifts) == len(leaf.values)
        takes_bits = leaf.operation.name == "arith.andi" and any(self._constant(one.values[-1]) for one in shifts)
        joins = leaf.operation.name == "arith.ori" and any(one.operation.name == "arith.shli" for one in shifts)
        is_undone = any(self._origin(value) in self._combined for value in leaf.values)
        is_simple = any(self._constant(value) in _SIMPLE for value in leaf.values)
        is_none = is_rotation or takes_bits or joins or is_undone or is_simple
        return NO_WORK if is_none or self._is_merged(leaf) else _LOGIC

    def bound(self, leaf: Leaf) -> Work:
        return NO_WORK if self._is_merged(leaf) else _LOGIC

    def shift(self, leaf: Leaf) -> Work:
        """Return the work of a shift, which is none by whole bytes: these are read in place."""
        by = self._constant(leaf.values[-1])
        return NO_WORK if (by is not None and by % 8 == 0) or self._is_merged(leaf) else _LOGIC

    def product(self, leaf: Leaf) -> Work:
        """Return the work of a product.

        By a constant of a few bits it may be shifts and sums; by a single bit, a select.
        """
        made = [one for one in map(self._made_by, leaf.values) if one and one.operation.name == "arith.andi"]
        is_bit = any(_is_power_of_two(self._constant(value)) for one in made for value in one.values)
        return NO_WORK if is_bit or any(map(_has_few_bits, map(self._constant, leaf.values))) else _PRODUCT

    def upper_half(self, _: Leaf) -> Work:
        return Work(integer_multiplications=1, upper_halves=1)

    def division(self, leaf: Leaf) -> Work:
        return NO_WORK if _is_power_of_two(self._constant(leaf.values[-1])) else _PRODUCT

    def comparison(self, leaf: Leaf) -> Work:
        """Return the work of a comparison, which is none of a former predicate or of combined bits."""
        made = [one.operation.name for one in map(self._made_by, leaf.values) if one]
        is_part = any(name in (*_EXTENSIONS, *_BITWISE, *_SHIFTS) for name in made)
        return NO_WORK if is_part or self._is_merged(leaf) else _LOGIC

    def _is_merged(self, leaf: Leaf) -> bool:
        uses = self.graph.uses[leaf.node]
        user = self._leaf_of.get(uses[0]) if len(uses) == 1 else None
        return user is not None and user.operation.name in _MERGED_BY[leaf.operation.name]

    def _origin(self, node: int) -> int:
        """Return the value that was computed, for one that was only passed on."""
        while (leaf := self._leaf_of.get(node)) is not None and leaf.operation.traits.keeps_elements:
            if not leaf.values:
                break
            node = leaf.values[0]
        return node

    def _made_by(self, node: int) -> Leaf | None:
        """Return what made a value; None for an argument and for results of operations with regions."""
        return self._leaf_of.get(self._origin(node))

    def _constant(self, node: int) -> int | None:
        made = self._made_by(node)
        return constant_of(made.operation) if made else None


def _has_few_bits(number: int | None) -> bool:
    """Return True for a sum or a difference of two powers of two."""
    return number is not None and (number ^ 3 * number).bit_count() <= 2


def _is_power_of_two(number: int | None) -> bool:
    return number is not None and abs(number).bit_count() <= 1


_COUNTS: Mapping[str, Callable[[_IntegerFunction, Leaf], Work]] = {
    **dict.fromkeys(_BITWISE, _IntegerFunction.bitwise),
    **dict.fromkeys(_BOUNDS, _IntegerFunction.bound),
    **dict.fromkeys(_RIGHT_SHIFTS, _IntegerFunction.shift),
    "arith.muli": _IntegerFunction.product,
    "tt.mulhiui": _IntegerFunction.upper_half,
    **dict.fromkeys(_DIVISIONS, _IntegerFunction.division),
    "arith.cmpi": _IntegerFunction.comparison,
}
