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
from kprof_inject.analysis.interpreter.axis_arrays import ALWAYS, AxisArray, IntegerExpr, Mask, Value, joined
from kprof_inject.capture.measurements import LoadedIntegersRecord
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import ValueGraph, reached
from kprof_inject.ttgir.types import bytes_of, types_of

Integers = NDArray[np.int64]

_INTEGERS = ("i8", "i16", "i32", "i64")


class Memory(Protocol):
    """Memory of a device when a launch begins, of which some may be known."""

    def read(self, addresses: Integers, size_bytes: int) -> Integers | None:
        """Return the signed integers of a size at some addresses; None unless all are known."""


class KnownRanges(Struct, frozen=True):
    """Known memory when a launch begins: ascending ranges, and the bytes of all of them."""

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
    deciding = [value for _, values in _conditions(graph) for value in values]
    for leaf in graph.leaves:
        deciding += deciding_operands(leaf.operation, leaf.values)
    needed = reached(deciding, graph.operands)
    loads = [leaf.operation for leaf in graph.leaves if leaf.node in needed and leaf.operation.name == "tt.load"]
    pointees = ((load, types_of(load)[0].pointee) for load in loads if types_of(load))
    return frozenset(load for load, one in pointees if one in _INTEGERS or one.startswith("!tt.ptr"))


# How many operands of an operation decide what is executed; the others are values that it passes on.
_CONDITIONS = {"scf.for": 3, "scf.if": 1, "cf.cond_br": 1, "scf.condition": 1}


def _conditions(graph: ValueGraph) -> Iterator[tuple[Operation | None, list[int]]]:
    """Yield operations with regions, and the values that decide what they execute."""
    for nest, values in graph.nests:
        yield nest, values[: _CONDITIONS.get(nest.name, 0)]
    for leaf in graph.leaves:
        yield next(leaf.operation.ancestors(), None), leaf.values[: _CONDITIONS.get(leaf.operation.name, 0)]


def data_dependent(module: Module, function: Operation) -> frozenset[Operation]:
    """Return the accesses to global memory whose addresses, masks or number depend on loaded data."""
    graph = ValueGraph(module, function)
    conditions = list(_conditions(graph))
    found = reached((leaf.node for leaf in graph.leaves if leaf.operation.traits.reads_memory), graph.uses)
    decided: set[Operation | None] = set()
    while new := {nest for nest, values in conditions if found.intersection(values)} - decided:
        decided |= new
        found |= reached((node for nest, nodes in graph.results if nest in new for node in nodes), graph.uses)
    accesses = ((leaf.operation, deciding_operands(leaf.operation, leaf.values)) for leaf in graph.leaves)
    return frozenset(
        access
        for access, operands in accesses
        if operands and (found.intersection(operands) or not decided.isdisjoint(access.ancestors()))
    )


def loaded(load: Operation, operands: Sequence[Value], when: Mask | None, memory: Memory) -> Value:
    """Return the integers that a load reads. Raises ``TooLarge``.

    Elements that the mask disables have the load's third operand, or 0, as no kernel depends on them without one; so do
    those that are not loaded, where ``when`` is false, if their addresses are outside of the known memory.
    """
    defaults = (None, ALWAYS, IntegerExpr.integer(0))
    address, mask, other = (*operands, *defaults[len(operands) :])[:3]
    if not isinstance(address, IntegerExpr) or not isinstance(mask, Mask) or not isinstance(other, IntegerExpr):
        return None
    found = None if mask.is_lower_bound else _read(load, address, mask, other, memory)
    if found is None and when is not None and when.parts:
        inside = mask & when
        found = None if inside.is_lower_bound else _read(load, address, inside, other, memory)
    return found


def _read(load: Operation, address: IntegerExpr, mask: Mask, other: IntegerExpr, memory: Memory) -> IntegerExpr | None:
    parts = address.joint(), mask.joint(), other.joint()
    places = joined(lambda place, _, __: place, *parts)
    inside = joined(lambda _, inside, __: inside, *parts).values
    values = joined(lambda _, __, value: value, *parts).values.astype(np.int64)
    found = memory.read(places.values[inside], bytes_of(types_of(load)[0].pointee))
    if found is None:
        return None
    values[inside] = found
    return IntegerExpr((AxisArray(places.axes, values),))
