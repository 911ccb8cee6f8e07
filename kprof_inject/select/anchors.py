"""Which operations a scope around source lines reaches for: those that do work, not those that compute addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kprof_inject.ttgir.dialect import TERMINATORS
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.values import Leaf, ValueGraph, without_strings

# Pure operations on scalars, indices, pointers and layouts of a register or a view: they cost next to nothing, and the
# compiler moves them at will.
_INDEXING = frozenset(
    {
        "gpu.block_id",
        "gpu.thread_id",
        "llvm.intr.assume",
        "tt.addptr",
        "tt.advance",
        "tt.bitcast",
        "tt.broadcast",
        "tt.cat",
        "tt.expand_dims",
        "tt.get_num_programs",
        "tt.get_program_id",
        "tt.int_to_ptr",
        "tt.join",
        "tt.make_range",
        "tt.make_tensor_ptr",
        "tt.mulhiui",
        "tt.ptr_to_int",
        "tt.reshape",
        "tt.splat",
        "tt.split",
        "tt.trans",
        "tt.unsplat",
        "ttg.global_scratch_alloc",
        "ttg.local_dealloc",
        "ttg.memdesc_index",
        "ttg.memdesc_reinterpret",
        "ttg.memdesc_reshape",
        "ttg.memdesc_subslice",
        "ttg.memdesc_subview",
        "ttg.memdesc_trans",
        "ttg.warp_id",
        "ttng.reinterpret_tensor_descriptor",
        "ttng.tmem_subslice",
    }
)
_ARITHMETIC = ("arith.", "math.", "ub.", "index.")
_CONVERSIONS = frozenset({"tt.approx_divf", "tt.clampf", "tt.fp_to_fp", "tt.precise_divf", "tt.precise_sqrt"})
# Memory is laid out at compile time; an allocation does something only when it is given a value to store.
_ALLOCATIONS = frozenset({"ttg.local_alloc", "ttng.tmem_alloc"})
_FLOAT_TENSOR = re.compile(r"tensor<[^<>,]*x(?:bf|tf|f)[0-9]")


def is_anchor(operation: Operation) -> bool:
    """Whether the operation does work by itself: it has a region or an effect, moves data, or computes with tensors of
    floats. Of integers, what they are for decides (see ``integer_work``)."""
    if operation.regions:
        return True
    name = operation.name
    if name in _INDEXING or name in TERMINATORS or name == "arith.constant":
        return False
    if name in _ALLOCATIONS:
        return "%" in operation.tail
    if name.startswith(_ARITHMETIC) or name in _CONVERSIONS:
        return _FLOAT_TENSOR.search(operation.tail) is not None
    return True


# Which integer arithmetic is work on data, and not the computing of an address: told by where values come from and
# where they go.

_INTEGER_TENSOR = re.compile(r"tensor<[^<>,]*xi[0-9]")

# What takes addresses, indices and masks; and at which places of its printed and of its generic form it takes data.
_ADDRESSED = re.compile(
    r"tt\.(?:addptr|advance|make_tensor_ptr|make_tensor_descriptor|int_to_ptr|gather|load|store|atomic_\w+"
    r"|descriptor_\w+)|ttg\.(?:memdesc_\w+|async_copy_\w+|local_gather)|ttng\.(?:async_tma_\w+|tmem_subslice)"
    r"|amdg(?:pu)?\.buffer_\w+"
)
_DATA_OPERANDS = {
    "atomic_cas": ((1, 2), (1, 2)),
    "atomic_rmw": ((1,), (1,)),
    "buffer_atomic_cas": ((0, 1), (2, 3)),
    "buffer_atomic_rmw": ((0,), (2,)),
    "buffer_store": ((0,), (0,)),
    "descriptor_reduce": ((-1,), (1,)),
    "descriptor_scatter": ((-1,), (-1,)),
    "descriptor_store": ((-1,), (1,)),
    "gather": ((0,), (0,)),
    "store": ((1,), (1,)),
}
# An index stays an index in another layout.
_MOVES = frozenset({"ttg.convert_layout"})
# The high halves of products are what random numbers are made of.
_RANDOM = "tt.mulhiui"


def is_integer_arithmetic(operation: Operation) -> bool:
    """Whether the operation computes with tensors of integers alone."""
    is_arithmetic = operation.name.startswith(("arith.", "math.")) or operation.name == _RANDOM
    return (
        is_arithmetic
        and operation.name != "arith.constant"
        and _INTEGER_TENSOR.search(operation.tail) is not None
        and not is_anchor(operation)
    )


def integer_work(module: Module, function: Operation) -> frozenset[int]:
    """Where the integer arithmetic of a function begins that depends on data and that no address or mask depends on.

    Data is the tensors that other work gives: a load, an atomic, a reduction, arithmetic on floats; and what random
    numbers are made of. A scalar that was loaded is none: it is a length or an offset more often than not. The time
    that it takes is in proportion to the function's length."""
    graph = ValueGraph(module, function)
    of_data = _reached(_data(graph), graph.uses)
    of_addresses = _reached(_addresses(graph), graph.operands)
    return frozenset(
        leaf.operation.start
        for leaf in graph.leaves
        if leaf.node in of_data and leaf.node not in of_addresses and is_integer_arithmetic(leaf.operation)
    )


def _data(graph: ValueGraph) -> Iterator[int]:
    for leaf in graph.leaves:
        if _gives_data(leaf.operation):
            yield leaf.node
    for operation, results in graph.results:
        if operation.name.startswith("tt.") and _gives_tensor(operation.closing):
            yield from results


def _gives_data(operation: Operation) -> bool:
    if operation.name == _RANDOM:
        return is_integer_arithmetic(operation)
    return operation.name not in _MOVES and is_anchor(operation) and _gives_tensor(without_strings(operation.tail))


def _addresses(graph: ValueGraph) -> Iterator[int]:
    for leaf in graph.leaves:
        if _ADDRESSED.fullmatch(leaf.operation.name):
            yield from _without_data(leaf)


def _reached(begin: Iterable[int], following: Sequence[Sequence[int]]) -> set[int]:
    reached = set(begin)
    pending = list(reached)
    while pending:
        for node in following[pending.pop()]:
            if node not in reached:
                reached.add(node)
                pending.append(node)
    return reached


def _gives_tensor(types: str) -> bool:
    return "tensor<" in types.rpartition("->")[2]


def _without_data(leaf: Leaf) -> list[int]:
    operation, values = leaf.operation, leaf.values
    printed, generic = _DATA_OPERANDS.get(operation.name.partition(".")[2], ((), ()))
    places = generic if operation.tail.startswith("(") else printed
    data = {place % len(values) for place in places if values}
    return [value for place, value in enumerate(values) if place not in data]
