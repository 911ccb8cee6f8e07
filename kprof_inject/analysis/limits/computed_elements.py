"""Part of an operation's elements that the machine code certainly computes.

An operation of TTGIR computes each element of a tensor; LLVM (InstCombine) and ptxas omit some of them, or compute two
by one instruction. ``tests/compiler/test_machine_code.py`` compiles kernels and compares.

* Elements that are equal by construction (a splat, a broadcast) are computed once for each thread.
* Values of 16 bits that are only used in 16 bits are computed in pairs.
* Operands of a select are computed under a predicate, which may be false for all lanes of a warp.
* Values that only a branch uses are computed in the branch.
* A comparison, a bound or a conversion merges with its neighbours: see ``_RULES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod

from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.ttgir.dialect import AXIS, DIVISIONS, FUNCTION, INTEGER_DIVISIONS
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import Leaf, ValueGraph
from kprof_inject.ttgir.types import types_of

Dims = frozenset[int]  # dimensions of a tensor

_PAIRED = 0.5
_NONE, _ALL = Dims(), Dims(range(16))  # Triton has no tensors of so many dimensions

_ARITHMETIC = ("arith.mulf", "arith.addf", "arith.subf", "math.fma")
_BOUNDS = ("arith.maximumf", "arith.maxnumf", "arith.minimumf", "arith.minnumf", "tt.clampf")
_COMPARISON, _SELECT, _NARROWING, _WIDENING = "arith.cmpf", "arith.select", "arith.truncf", "arith.extf"
_CONSTANT, _FROM_INTEGERS = "arith.constant", ("arith.sitofp", "arith.uitofp")
# Operations whose result has 16 bits if their operands do.
_KEEPS_WIDTH = (*_BOUNDS, _SELECT, "arith.negf", "math.absf")
_HALF_BITS = 16
_MAX_DEPTH = 8  # operations that are followed to see how many bits a value has


@lru_cache(maxsize=KERNELS_CACHED)
def computed_shares(module: Module) -> Mapping[Operation, float]:
    """Return the part of each operation's elements that is certain, if not all are."""
    shares: dict[Operation, float] = {}
    for function in module.walk():
        if function.name == FUNCTION:
            shares |= _ComputedFunction(ValueGraph(module, function)).shares()
    return shares


class _ComputedFunction:
    def __init__(self, graph: ValueGraph) -> None:
        self._graph = graph
        self._leaf_of = {leaf.node: leaf for leaf in graph.leaves}
        self._combined = [(one, nodes) for one, nodes in graph.results if one.traits.combines_elements]
        self._data_dims, self._index_dims = self._varying()

    def shares(self) -> dict[Operation, float]:
        found: dict[Operation, float] = {}
        seen: set[tuple[object, ...]] = set()
        for leaf in self._graph.leaves:
            if leaf.operation.traits.is_arithmetic and not leaf.operation.traits.is_constant:
                share = self._share(leaf)
                if key := self._key(leaf):
                    share = 0.0 if key in seen else share
                    seen.add(key)
                found[leaf.operation] = share
        found |= {operation: self._combined_share(operation, nodes) for operation, nodes in self._combined}
        return {operation: share for operation, share in found.items() if share < 1}

    def _share(self, leaf: Leaf) -> float:
        distinct = self._distinct(leaf)
        if not distinct or self._is_predicated(leaf):
            return 0.0
        rule = _RULES.get(leaf.operation.name)
        return distinct * (rule(self, leaf) if rule else 1.0)

    def _combined_share(self, operation: Operation, nodes: Sequence[int]) -> float:
        taken = types_of(operation)[:1]
        values = [one for node in nodes for one in self._graph.operands[node]]
        if not taken or not values:
            return 1.0
        if not all(_covers(self._data_dims[value] | self._index_dims[value], taken[0].shape) for value in values):
            return 0.0  # some combined values do not vary, such as the weights of a mean
        return _PAIRED if any(self._is_narrow(value) for value in values) else 1.0

    def _varying(self) -> tuple[list[Dims], list[Dims]]:
        """Return the dimensions along which each node's elements differ: by data, and by an element's index."""
        size = len(self._graph.operands)
        data, index = [_NONE] * size, [_NONE] * size
        combining = {node: one for one, nodes in self._combined for node in nodes}
        changed = True
        while changed:  # loops pass values back
            before = *data, *index
            for node in range(size):
                data[node], index[node] = self._varying_at(node, data, index, combining.get(node))
            changed = before != (*data, *index)
        return data, index

    def _varying_at(
        self, node: int, data: Sequence[Dims], index: Sequence[Dims], combining: Operation | None
    ) -> tuple[Dims, Dims]:
        leaf = self._leaf_of.get(node)
        operands = leaf.values if leaf else self._graph.operands[node]
        of_data, of_index = (_NONE.union(*(dims[one] for one in operands)) for dims in (data, index))
        if leaf is None:
            if not operands:
                return _ALL, _NONE
            axis = AXIS.search(combining.tail) if combining is not None and combining.name == "tt.reduce" else None
            return (_without(of_data, int(axis[1])), _without(of_index, int(axis[1]))) if axis else (of_data, of_index)
        traits = leaf.operation.traits
        match leaf.operation.name:
            case "tt.splat" | "arith.constant":
                return _NONE, _NONE
            case "tt.make_range":
                return _NONE, Dims([0])
            case name if name in _MOVES.split():
                return _moved(leaf.operation, of_data), _moved(leaf.operation, of_index)
            case "arith.cmpi" | "arith.cmpf":  # neighbouring indices mostly give the same result
                return of_data, _NONE
            case "arith.sitofp" | "arith.uitofp" if _is_of_bits(leaf.operation):
                return of_data, _NONE
            case "arith.select":
                return of_data, _NONE.union(*(index[one] for one in operands[1:]))
            case "tt.addptr" | "tt.bitcast":
                return of_data, of_index
        if traits.is_random:
            return of_data | of_index, of_index
        return (of_data, of_index) if traits.is_arithmetic or traits.is_foreign else (_ALL, _NONE)

    def _distinct(self, leaf: Leaf) -> float:
        types = types_of(leaf.operation)
        if not types:
            return 1.0
        # A division counts as the reciprocal of its divisor.
        taken = leaf.values[1:] if leaf.operation.name in DIVISIONS else leaf.values
        varying = _NONE.union(*(self._data_dims[one] | self._index_dims[one] for one in taken or [leaf.node]))
        return 1 / prod(size for dim, size in enumerate(types[-1].shape) if dim not in varying)

    def _users(self, node: int) -> list[Leaf] | None:
        """Return the operations that use a value in any layout; None if something else does."""
        users: list[Leaf] = []
        for use in self._graph.uses[node]:
            leaf = self._leaf_of.get(use)
            if leaf is None:
                return None
            further = self._users(use) if leaf.operation.traits.keeps_elements else [leaf]
            if further is None:
                return None
            users += further
        return users

    def _is_predicated(self, leaf: Leaf) -> bool:
        if leaf.operation.name not in (_COMPARISON, "arith.cmpi") and self._is_used_by(leaf, _SELECT):
            return True
        users, around = self._users(leaf.node), set(leaf.operation.ancestors())
        return bool(users) and all(
            any(one.traits.regions == "branch" and one not in around for one in user.operation.ancestors())
            for user in users or ()
        )

    def _is_used_by(self, leaf: Leaf, *names: str) -> bool:
        users = self._users(leaf.node)
        return bool(users) and all(user.operation.name in names for user in users or ())

    def _key(self, leaf: Leaf) -> tuple[object, ...] | None:
        """Return a key that operations share if one instruction may do all of them.

        These are the same operation in another layout, a comparison and its opposite, and reciprocals of a divisor.
        """
        operation = leaf.operation
        operands = [self._origin(value) for value in leaf.values]
        if operation.name in DIVISIONS and len(operands) > 1:
            return ("reciprocal", operands[1], operation.block)
        if operation.name in INTEGER_DIVISIONS:
            return ("quotient", *operands, operation.block)
        if operation.name == _COMPARISON:
            return (operation.name, *sorted(operands), operation.block)
        types = types_of(operation)
        if not operands or not types or "{" in operation.tail:
            return None
        return (operation.name, *operands, types[-1].element, types[-1].shape, operation.block)

    def _origin(self, node: int) -> int:
        while (leaf := self._leaf_of.get(node)) is not None and leaf.values:
            if not leaf.operation.traits.keeps_elements and leaf.operation.name != "tt.splat":
                break
            node = leaf.values[0]
        return node

    def _made_by(self, node: int) -> Leaf | None:
        return self._leaf_of.get(self._origin(node))

    def _makers(self, values: Iterable[int]) -> list[str]:
        return [made.operation.name if made else "" for made in map(self._made_by, values)]

    def _has_constant(self, leaf: Leaf, values: re.Pattern[str]) -> bool:
        made = map(self._made_by, leaf.values)
        return any(one and one.operation.name == _CONSTANT and values.search(one.operation.tail) for one in made)

    def _narrow_share(self, leaf: Leaf) -> float:
        """Return 0.5 for an operation on 16 bits, in pairs; 0 for one on 32 bits of 64, else 1."""
        if not self._all_narrow(leaf):
            return 1.0
        return 0.0 if _is_wide(leaf) else _PAIRED

    def _is_narrow(self, node: int, depth: int = _MAX_DEPTH) -> bool:
        """Return True if a value has 16 bits, or at most 32 of 64, whatever its type."""
        made = self._made_by(node)
        if made is None or not depth:
            return False
        if made.operation.name == _WIDENING:
            types = types_of(made.operation)
            return bool(types) and (types[0].bits == _HALF_BITS or types[-1].element == "f64")
        return made.operation.name in _KEEPS_WIDTH and self._all_narrow(made, depth - 1)

    def _all_narrow(self, leaf: Leaf, depth: int = _MAX_DEPTH) -> bool:
        values = leaf.values[1:] if leaf.operation.name == _SELECT else leaf.values
        others = [one for one, maker in zip(values, self._makers(values), strict=True) if maker != _CONSTANT]
        return bool(others) and all(self._is_narrow(one, depth) for one in others)

    def arithmetic(self, leaf: Leaf) -> float:
        """Return 0 if the compiler may remove the operation, 0.5 if it is computed in pairs, else 1."""
        name = leaf.operation.name
        if name != "math.fma" and self._has_constant(leaf, _ONE if name == "arith.mulf" else _ZERO):
            return 0.0  # a neutral operand
        if all(maker in (*_FROM_INTEGERS, _CONSTANT) for maker in self._makers(leaf.values)):
            return 0.0  # integers may be computed before their conversion
        if name == "arith.mulf" and _is_wide(leaf) and self._is_used_by(leaf, "arith.addf", "arith.subf"):
            return 0.0  # a part of the sum
        return self._narrow_share(leaf) if self._is_used_by(leaf, _NARROWING) else 1.0

    def bound(self, leaf: Leaf) -> float:
        """Return 0 if the bound may merge with others, 0.5 if it is computed in pairs, else 1."""
        # Newer devices compute several bounds at once; one at 0 or 1 may be part of arithmetic or a conversion.
        is_at_end = self._has_constant(leaf, _END) and (
            leaf.operation.name == "tt.clampf"
            or self._is_used_by(leaf, _NARROWING)
            or not set(_BOUNDS).isdisjoint(self._makers(leaf.values))
        )
        return 0.0 if is_at_end or self._is_used_by(leaf, *_BOUNDS) else self._narrow_share(leaf)

    def comparison(self, leaf: Leaf) -> float:
        """Return 0 if integers may be compared before their conversion, 0.5 for pairs, else 1."""
        return self._narrow_share(leaf) if set(_FROM_INTEGERS).isdisjoint(self._makers(leaf.values)) else 0.0

    def widening(self, leaf: Leaf) -> float:
        """Return 0 if everything that uses the value is done in 16 bits, else 1."""
        users = self._users(leaf.node)
        narrow = users and all(
            user.operation.name in (_SELECT, _NARROWING)
            or (user.operation.name in (*_BOUNDS, _COMPARISON) and self._all_narrow(user))
            or (user.operation.name in _ARITHMETIC and self.arithmetic(user) < 1)
            for user in users
        )
        return 0.0 if narrow else 1.0

    def from_integers(self, leaf: Leaf) -> float:
        """Return 0 if the conversion may become a select (of a bit) or follow the arithmetic, else 1."""
        made = self._made_by(leaf.values[0]) if leaf.values else None
        source = made if made and made.operation.name in ("arith.extui", "arith.extsi") else leaf
        if _is_of_bits(leaf.operation) or _is_of_bits(source.operation):
            return 0.0
        users = self._users(leaf.node)
        merged = users and all(
            user.operation.name in (_SELECT, _COMPARISON)
            or (user.operation.name in _ARITHMETIC and not self.arithmetic(user))
            for user in users
        )
        return 0.0 if merged else 1.0


_RULES: Mapping[str, Callable[[_ComputedFunction, Leaf], float]] = {
    **dict.fromkeys(_ARITHMETIC, _ComputedFunction.arithmetic),
    **dict.fromkeys(_BOUNDS, _ComputedFunction.bound),
    _COMPARISON: _ComputedFunction.comparison,
    _WIDENING: _ComputedFunction.widening,
    **dict.fromkeys(_FROM_INTEGERS, _ComputedFunction.from_integers),
}

_ZERO = re.compile(r"-?\b0\.0+e\+00\b")
_ONE = re.compile(r"-?\b1\.0+e\+00\b")
_END = re.compile(r"-?\b[01]\.0+e\+00\b")
_ORDER = re.compile(r"\border = array<i32: ([\d, ]+)>")


def _is_wide(leaf: Leaf) -> bool:
    return any(one.element == "f64" for one in types_of(leaf.operation)[:1])


def _is_of_bits(operation: Operation) -> bool:
    return any(one.bits == 1 for one in types_of(operation)[:1])


def _covers(dims: Dims, shape: Sequence[int]) -> bool:
    return all(size == 1 or dim in dims for dim, size in enumerate(shape))


def _without(dims: Dims, axis: int) -> Dims:
    return Dims(dim - (dim > axis) for dim in dims if dim != axis)


# Operations whose results vary along other dimensions than their operands.
_MOVES = "tt.expand_dims tt.broadcast ttg.convert_layout tt.trans tt.reshape tt.join tt.split tt.cat"


def _moved(operation: Operation, dims: Dims) -> Dims:
    if operation.name in ("tt.broadcast", "ttg.convert_layout"):
        return dims
    if operation.name == "tt.expand_dims":
        axis = AXIS.search(operation.tail)
        place = int(axis[1]) if axis else 0
        return Dims(dim + (dim >= place) for dim in dims)
    if operation.name == "tt.trans" and (order := _ORDER.search(operation.tail)):
        return Dims(new for new, old in enumerate(order[1].split(",")) if int(old) in dims)
    # All dimensions or none: which elements are equal is not tracked.
    types = types_of(operation)
    return _ALL if types and _covers(dims, types[0].shape) else _NONE
