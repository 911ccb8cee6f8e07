"""Which operations a scope around source lines reaches for: those that do work, not those that compute addresses."""

from __future__ import annotations

import re

from kprof_inject.ttgir.nodes import Operation

TERMINATORS = frozenset(
    {
        "cf.br",
        "cf.cond_br",
        "cf.switch",
        "scf.condition",
        "scf.yield",
        "tt.map_elementwise.return",
        "tt.reduce.return",
        "tt.return",
        "tt.scan.return",
        "ttg.mask.return",
        "ttg.warp_return",
        "ttg.warp_specialize.partitions",
        "ttg.warp_yield",
        "ub.unreachable",
    }
)
"""The last operation of a block: nothing may stand behind it."""

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
