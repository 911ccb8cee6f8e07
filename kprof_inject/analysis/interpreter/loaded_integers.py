"""Integers that a kernel loads from memory, and what depends on them.

Loaded tables of indices, lengths and pointers decide how often a kernel's loops iterate, which branches it takes, and
which memory it accesses. They are known if the memory is that of a saved launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.accesses import deciding_operands
from kprof_inject.analysis.interpreter.axis_arrays import AxisArray, IntegerExpr, Mask, Value, constant, joined
from kprof_inject.capture.measurements import LoadedIntegersRecord
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import ValueGraph, reached
from kprof_inject.ttgir.types import bytes_of, types_of

Integers = NDArray[np.int64]

_LOAD = "tt.load"
_INTEGERS = ("i8", "i16", "i32", "i64")


class Memory(Protocol):
    """Memory of a device when a launch begins, of which some may be known."""

    def read(self, addresses: Integers, size_bytes: int) -> Integers | None:
        """Return the signed integers of a size at some addresses; None unless all are known."""


class KnownRanges(Struct, frozen=True):
    """Memory that is known in some ranges: ``starts`` and ``ends`` of each, ascending, and the bytes of all of them."""

    starts: Integers
    ends: Integers
    data: NDArray[np.uint8]

    @classmethod
    def of(cls, record: LoadedIntegersRecord) -> KnownRanges:
        """Return the memory of a file; nothing is known if the file is damaged."""
        starts, sizes = np.array(record.starts, np.int64), np.array(record.sizes, np.int64)
        data = np.frombuffer(record.memory, np.uint8)
        is_whole = data.size == sizes.sum()
        return cls(starts, starts + sizes, data) if is_whole else cls(starts[:0], starts[:0], data[:0])

    def read(self, addresses: Integers, size_bytes: int) -> Integers | None:
        """Implement ``Memory.read``."""
        places = np.searchsorted(self.starts, addresses, "right") - 1
        if not self.starts.size or places.min(initial=0) < 0 or (addresses + size_bytes > self.ends[places]).any():
            return None
        offsets = np.concatenate(([0], np.cumsum(self.ends - self.starts)))[:-1]
        return integers_at(self.data, offsets[places] + addresses - self.starts[places], size_bytes)


def integers_at(data: NDArray[np.uint8], offsets: Integers, size_bytes: int) -> Integers:
    """Return the signed little-endian integers of a size at some offsets of bytes."""
    each = data[np.add.outer(offsets, np.arange(size_bytes))]
    return np.ascontiguousarray(each).view(f"<i{size_bytes}").reshape(offsets.shape).astype(np.int64)


def deciding_loads(module: Module, function: Operation) -> frozenset[Operation]:
    """Return the loads of integers on which control flow or the addresses of other accesses depend."""
    graph = ValueGraph(module, function)
    deciding = reached(_deciding(graph), graph.operands)
    loads = [leaf.operation for leaf in graph.leaves if leaf.node in deciding and leaf.operation.name == _LOAD]
    pointees = ((load, types_of(load)[0].pointee) for load in loads if types_of(load))
    return frozenset(load for load, one in pointees if one in _INTEGERS or one.startswith("!tt.ptr"))


# How many operands of an operation with regions decide what it executes; the others are values that it passes on.
_CONDITIONS = {"scf.for": 3, "scf.if": 1}
_BRANCHES = {"cf.cond_br": 1, "scf.condition": 1}


def _deciding(graph: ValueGraph) -> Iterator[int]:
    """Yield the values that decide what is executed, and which memory is accessed."""
    for operation, values in graph.nests:
        yield from values[: _CONDITIONS.get(operation.name, 0)]
    for leaf in graph.leaves:
        yield from leaf.values[: _BRANCHES.get(leaf.operation.name, 0)]
        yield from deciding_operands(leaf.operation, leaf.values)


def data_dependent(module: Module, function: Operation) -> frozenset[Operation]:
    """Return the accesses to global memory whose addresses, masks or number depend on loaded data."""
    graph = ValueGraph(module, function)
    found = reached((leaf.node for leaf in graph.leaves if leaf.operation.traits.reads_memory), graph.uses)
    decided: set[Operation] = set()
    while True:
        nests = {nest for nest, values in graph.nests if found.intersection(values[: _CONDITIONS.get(nest.name, 0)])}
        for leaf in graph.leaves:
            if found.intersection(leaf.values[: _BRANCHES.get(leaf.operation.name, 0)]):
                nests.update(list(leaf.operation.ancestors())[:1])
        if nests <= decided:
            break
        decided |= nests
        found |= reached((node for nest, nodes in graph.results if nest in decided for node in nodes), graph.uses)
    return frozenset(
        leaf.operation
        for leaf in graph.leaves
        if found.intersection(deciding_operands(leaf.operation, leaf.values))
        or (deciding_operands(leaf.operation, leaf.values) and not decided.isdisjoint(leaf.operation.ancestors()))
    )


def loaded(load: Operation, operands: Sequence[Value], when: Mask | None, memory: Memory) -> Value:
    """Return the integers that a load reads, or None if they are unknown. Raises ``TooLarge``.

    Elements for which the mask is false have the load's third operand, or 0: no kernel depends on them without one. So
    do those that are not loaded, where ``when`` is false, if their addresses are outside of the known memory.
    """
    address, mask, other = (*operands, *_DEFAULTS[len(operands) :])[:3]
    if not isinstance(address, IntegerExpr) or not isinstance(mask, Mask) or not isinstance(other, IntegerExpr):
        return None
    found = None if mask.is_lower_bound else _read(load, address, mask, other, memory)
    if found is None and when is not None and when.parts:
        inside = mask & when
        found = None if inside.is_lower_bound else _read(load, address, inside, other, memory)
    return found


def _read(load: Operation, address: IntegerExpr, mask: Mask, other: IntegerExpr, memory: Memory) -> IntegerExpr | None:
    where, elsewhere = mask.joint(), other.joint()
    places = joined(lambda place, inside, _: np.where(inside, place, 0), address.joint(), where, elsewhere)
    is_inside = np.broadcast_to(where.over(places.axes), places.values.shape)
    values = np.array(np.broadcast_to(elsewhere.over(places.axes), places.values.shape), np.int64)
    found = memory.read(places.values[is_inside], bytes_of(types_of(load)[0].pointee))
    if found is None:
        return None
    values[is_inside] = found
    return IntegerExpr((AxisArray(places.axes, values),))


_DEFAULTS: tuple[Value, ...] = (None, Mask(), IntegerExpr((constant(0),)))
