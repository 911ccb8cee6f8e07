"""Every fact about an operation of TTGIR that the program uses, by the operation's name.

``traits_of`` is the lookup. Add a new Triton's operations to the tables below: under each trait that they have, or
under ``_PLAIN`` if they have none.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache

from msgspec import Struct

from kprof_inject.ttgir.strings import STRING

FUNCTION = "tt.func"
CALL = "tt.call"
WARP_SPECIALIZE = "ttg.warp_specialize"
PARTITIONS = "ttg.warp_specialize.partitions"
"""The operation inside ``ttg.warp_specialize`` that holds the partitions' regions in the generic form."""
YIELD = "scf.yield"
RECORD = "proton.record"
RECORD_TAIL = re.compile(rf"\s*(?P<edge>start|end)\s+(?P<name>{STRING})")
"""What follows the name of a ``RECORD``; ``name`` is quoted."""
RECORDS = (RECORD, "proton.event", "proton.mark")
"""Operations that record: scopes, and the events (which need not nest) and instants of Proton's own language."""
MAKES_POINTERS = "tt.int_to_ptr"
EVENT = "proton.allocate_event"  # allocates the number that both events of a pair take; its ID is one of the record IDs
MODULES = ("module", "builtin.module")
LOOPS = ("scf.for", "scf.while")
WARP_GROUP_DOT = "ttng.warp_group_dot"
DOT_COMMIT = "ttng.tc_gen5_commit"
DOT_WAIT = "ttng.warp_group_dot_wait"
BARRIER_WAIT = "ttng.wait_barrier"
POLL = "tt.atomic_poll"
CACHE_MODIFIER = re.compile(r"\bcache(?:M|_m)odifier = (\w+)")
"""The cache modifier of a load or store; Triton 3.9 prints it in a ``cachePolicy``."""
CONDITION = "scf.condition"  # end of the part of an ``scf.while`` that decides whether it goes on
PROGRAM_ID = "tt.get_program_id"
DIVISIONS = ("arith.divf", "tt.approx_divf", "tt.precise_divf")  # divisions of floats
INTEGER_DIVISIONS = ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui")
"""Divisions of integers, and remainders, which are computed from the quotient."""
TENSOR_MEMORY = "ttng.tmem_"  # start of the names of operations on tensor memory
AXIS = re.compile(r"\baxis = (\d+)")  # the dimension that a reduction or scan combines
READ = "ttg.local_load"  # reads shared memory
COMMIT_GROUP = "ttg.async_commit_group"
ENDS_OF_COPIES = (COMMIT_GROUP, "amdg.async_copy_mbarrier_arrive", "ttng.async_copy_mbarrier_arrive")
"""Operations that make a barrier or a wait signal the completion of all earlier copies."""
TILE_REQUESTS = ("nvws.clc_try_cancel", "ttng.clc_try_cancel")
"""Cluster launch control: request the work of a CTA that has not begun."""


class Traits(Struct, frozen=True):
    """Facts about all operations of one name; for a name that is in no table, every flag is false."""

    is_terminator: bool  # the last operation of a block: nothing may follow it
    leaves_region: bool  # a terminator after which control leaves the region that holds it
    is_branch: bool  # jumps from block to block, perhaps backwards
    # Pure, on scalars, indices, pointers, or the layout of a register or a view: it costs next to nothing, and the
    # compiler moves it at will.
    is_indexing: bool
    is_arithmetic: bool  # computes with each element, which counts as work on tensors of floats
    computes_integers: bool  # computes with integers, which may be data or addresses
    is_random: bool  # generators of random numbers use its result: the high halves of products
    is_transcendental: bool  # several instructions on floats, some of them on the special function units
    is_constant: bool
    is_allocation: bool  # only does something with an initial value to store: memory is laid out at compile time
    is_move: bool  # changes only the layout of its operand: an index remains an index
    keeps_elements: bool  # each element of the result is an element of an operand
    reads_memory: bool  # its result comes from memory; it is not computed from the operands
    reads_global: bool  # reads global memory; the warp waits where it uses the result
    writes_global: bool  # writes global memory itself or starts a write
    accesses_shared: bool  # threads read or write shared memory
    takes_addresses: bool  # takes addresses, indices or masks; data_operands_of gives its other operands
    combines_elements: bool  # has a region that Triton lowers once per element, and combines tensors with it
    is_wait: bool  # the warp pauses until other warps, or its own asynchronous work, are done
    starts_async: bool  # starts asynchronous work, or ends a group of it; ttng.warp_group_dot only with an attribute
    waits_for_async: bool  # a wait for asynchronous work; the other waits are for warps
    is_arrival: bool  # signals a barrier that this warp has arrived, and does not wait
    is_of_dot: bool  # a dot, or a wait for one
    is_dot: bool
    is_counted: bool  # a loop whose bounds are known before it starts
    is_atomic: bool  # reads or changes memory that others may change meanwhile
    makes_pointers: bool  # casts integers to pointers, so no argument identifies the memory
    is_foreign: bool  # its code is in another language; its attributes say whether it does more than compute
    is_output: bool  # its output is visible to the user
    regions: str
    """The kind of its regions: ``function``, ``body`` of a loop, ``branch`` or ``partition``.

    Empty if it has none, or if Triton lowers them once per element.
    """

    @property
    def is_loop(self) -> bool:
        """Whether the operation is a loop."""
        return self.regions == "body"


_DOTS = "tt.dot tt.dot_scaled ttng.warp_group_dot ttng.tc_gen5_mma ttng.tc_gen5_mma_scaled"
_WAITS_FOR_ASYNC = """
    amdg.async_tdm_intrinsic_wait amdg.async_tdm_wait amdg.async_wait amdg.memory_counter_wait amdg.wait_barrier
    amdgpu.async_wait nvws.aref.get.enter nvws.aref.put.enter nvws.consumer_wait nvws.producer_acquire rocdl.s.waitcnt
    ttg.async_wait ttng.async_tma_store_token_wait ttng.async_tma_store_wait ttng.tmem_wait ttng.wait_barrier
    ttng.warp_group_dot_wait
"""

# The operations that have each trait. A star matches any letters.
_TRAITS = {
    "is_terminator": """
        cf.br cf.cond_br cf.switch nvws.warp_group.return nvws.warp_group.yield scf.condition scf.forall.in_parallel
        scf.reduce scf.reduce.return scf.yield tt.map_elementwise.return tt.reduce.return tt.return tt.scan.return
        ttg.mask.return ttg.warp_return ttg.warp_specialize.partitions ttg.warp_yield ub.unreachable
    """,
    "leaves_region": """
        nvws.warp_group.return nvws.warp_group.yield scf.yield tt.return ttg.warp_return ttg.warp_yield
    """,
    "is_branch": "cf.*",
    "is_indexing": """
        amdg.concat amdg.extract_slice amdg.update_tensor_descriptor gluon.set_auto_layout gpu.block_id gpu.thread_id
        llvm.intr.assume nvws.aref.buffer nvws.aref.phi tt.addptr tt.advance tt.bitcast tt.broadcast tt.cat
        tt.expand_dims tt.get_num_programs tt.get_program_id tt.int_to_ptr tt.join tt.make_range tt.make_tensor_ptr
        tt.mulhiui tt.ptr_to_int tt.reshape tt.splat tt.split tt.trans tt.unsplat ttg.global_scratch_alloc
        ttg.local_dealloc ttg.memdesc_index ttg.memdesc_reinterpret ttg.memdesc_reshape ttg.memdesc_subslice
        ttg.memdesc_subview ttg.memdesc_trans ttg.predicate_stage ttg.warp_id ttng.clc_get_program_id
        ttng.clc_is_canceled ttng.reinterpret_tensor_descriptor ttng.tensor_desc_to_tma_ptr ttng.tmem_subslice
    """,
    "is_arithmetic": """
        amdg.scaled_downcast_fp* amdg.scaled_upcast_fp* amdg.upcast_mxfp arith.* math.* ub.* index.* tt.approx_divf
        tt.clampf tt.fp_to_fp tt.precise_divf tt.precise_sqrt ttg.fp4_to_fp ttng.packed_arith
    """,
    "computes_integers": "arith.* math.* tt.mulhiui",
    "is_random": "tt.mulhiui",
    "is_transcendental": """
        math.cos math.erf math.exp math.exp2 math.expm1 math.log math.log10 math.log1p math.log2 math.powf math.rsqrt
        math.sin math.sqrt math.tan math.tanh tt.extern_elementwise tt.precise_sqrt
    """,
    "is_constant": "arith.constant",
    "is_allocation": "ttg.local_alloc ttng.tmem_alloc",
    "is_move": "ttg.convert_layout",
    "keeps_elements": """
        amdg.concat amdg.extract_slice gluon.set_auto_layout tt.broadcast tt.expand_dims tt.reshape tt.trans
        ttg.convert_layout
    """,
    "reads_memory": """
        amdg.local_load_packed_tranposed amdg.local_load_packed_transposed amdg.masked_load ttg.local_load
        ttng.clc_load_result ttng.clc_try_cancel_sync ttng.tmem_load *load* *atomic* *gather* *alloc*
    """,
    "reads_global": """
        amdg.buffer_load amdg.masked_load amdgpu.buffer_load tt.atomic_load tt.atomic_poll tt.descriptor_gather
        tt.descriptor_load tt.load
    """,
    "writes_global": """
        amdg.async_copy_local_to_global amdg.async_tdm_copy_local_to_global amdg.async_tdm_scatter amdg.buffer_atomic*
        amdg.buffer_store amdg.masked_store amdgpu.buffer_atomic* amdgpu.buffer_store tt.atomic_cas tt.atomic_rmw
        tt.atomic_store tt.descriptor_reduce tt.descriptor_scatter tt.descriptor_store tt.store
        ttng.async_tma_copy_local_to_global ttng.async_tma_reduce ttng.async_tma_scatter
    """,
    "accesses_shared": """
        amdg.local_load_packed_tranposed amdg.local_load_packed_transposed tt.gather tt.histogram ttg.local_alloc
        ttg.local_atomic_scatter_rmw ttg.local_gather ttg.local_load ttg.local_scatter ttg.local_store
        ttng.async_shared_store
    """,
    "takes_addresses": """
        tt.addptr tt.advance tt.make_tensor_ptr tt.make_tensor_descriptor tt.int_to_ptr tt.gather tt.load tt.store
        tt.atomic_* tt.descriptor_* ttg.memdesc_* ttg.async_copy_* ttg.local_atomic_scatter_rmw ttg.local_gather
        ttg.local_scatter ttng.async_tma_* ttng.tmem_subslice amdg.async_copy_local_to_global amdg.async_tdm_*copy_*
        amdg.async_tdm_gather amdg.async_tdm_scatter amdg.buffer_* amdg.masked_* amdg.tdm_prefetch
        amdg.update_tensor_descriptor amdgpu.buffer_*
    """,
    "combines_elements": "tt.reduce tt.scan tt.map_elementwise",
    "is_wait": f"""
        {_WAITS_FOR_ASYNC} amdg.cluster_barrier_wait amdg.cond_barrier gpu.barrier rocdl.s.barrier tt.atomic_poll
        tt.grid_dependency_wait ttg.barrier ttg.local_barrier ttng.clc_try_cancel_sync ttng.cluster_barrier
        ttng.cluster_wait
    """,
    "starts_async": """
        amdg.async_copy_* amdg.async_tdm_copy_* amdg.async_tdm_fused_copy_* amdg.async_tdm_gather amdg.async_tdm_scatter
        amdg.buffer_load_to_local amdgpu.buffer_load_to_local nvws.clc_try_cancel nvws.descriptor_*
        ttg.async_commit_group ttg.async_copy_* ttng.async_copy_mbarrier_arrive ttng.async_shared_store
        ttng.async_tma_copy_* ttng.async_tma_gather ttng.async_tma_reduce ttng.async_tma_scatter ttng.clc_try_cancel
        ttng.tc_gen5_commit ttng.tc_gen5_mma ttng.tc_gen5_mma_scaled ttng.tmem_copy ttng.warp_group_dot
    """,
    "waits_for_async": _WAITS_FOR_ASYNC,
    "is_arrival": """
        amdg.arrive_barrier amdg.cluster_barrier_arrive nvws.aref.get.exit nvws.aref.put.exit nvws.consumer_release
        nvws.producer_commit ttng.arrive_barrier ttng.cluster_arrive
    """,
    "is_of_dot": f"{_DOTS} *dot* *mma*",
    "is_dot": _DOTS,
    "is_counted": "scf.for",
    "is_atomic": "*atomic*",
    "makes_pointers": MAKES_POINTERS,
    "is_foreign": "tt.elementwise_inline_asm tt.extern_elementwise ttg.inline_asm",
    "is_output": "tt.print",
}

_REGIONS = {
    FUNCTION: "function",
    **dict.fromkeys(LOOPS, "body"),
    **dict.fromkeys(("scf.if", "scf.execute_region", "scf.index_switch"), "branch"),
    WARP_SPECIALIZE: "partition",
    PARTITIONS: "partition",
}

# Operations without any of these traits.
_PLAIN = """
    amdg.in_thread_transpose amdg.init_barrier amdg.instruction_sched_hint amdgpu.in_thread_transpose nvws.aref.create
    nvws.create_token nvws.warp_group rocdl.s.setprio rocdl.sched.barrier scf.forall scf.parallel tt.assert
    tt.grid_dependency_launch_dependents tt.histogram ttg.local_store ttg.mask ttng.barrier_expect
    ttng.fence_async_shared ttng.fence_mbarrier_init_release_cluster ttng.init_barrier ttng.inval_barrier
    ttng.tensormap_create ttng.tensormap_fenceproxy_acquire ttng.tmem_store
"""

_INSTRUMENTATION = "tti."  # the prefix of the operations that Triton's sanitizers insert; their semantics are unknown

# The positions of data operands in operations that take addresses: in the printed form, and in the generic form.
_DATA_OPERANDS = {
    "amdg*.buffer_atomic_cas": ((0, 1), (2, 3)),
    "amdg*.buffer_atomic_rmw": ((0,), (2,)),
    "amdg*.buffer_store": ((0,), (0,)),
    "amdg.masked_store": ((1,), (1,)),
    "tt.atomic_cas": ((1, 2), (1, 2)),
    "tt.atomic_poll": ((1,), (1,)),
    "tt.atomic_rmw": ((1,), (1,)),
    "tt.atomic_store": ((1,), (1,)),
    "tt.descriptor_reduce": ((-1,), (1,)),
    "tt.descriptor_scatter": ((-1,), (-1,)),
    "tt.descriptor_store": ((-1,), (1,)),
    "tt.gather": ((0,), (0,)),
    "tt.store": ((1,), (1,)),
    "ttg.local_atomic_scatter_rmw": ((2,), (1,)),
    "ttg.local_scatter": ((2,), (1,)),
}

_NAMES = {trait: frozenset(text.split()) for trait, text in _TRAITS.items()}


@cache
def traits_of(name: str) -> Traits:
    """Return the traits of the operations of this name."""
    traits = {
        trait: name in names or any(fnmatchcase(name, pattern) for pattern in names if "*" in pattern)
        for trait, names in _NAMES.items()
    }
    return Traits(**traits, regions=_REGIONS.get(name, ""))


def data_operands_of(name: str, *, is_generic: bool) -> tuple[int, ...]:
    """Return the positions of the data operands of an operation that takes addresses; negative from the end."""
    for pattern, (printed, generic) in _DATA_OPERANDS.items():
        if fnmatchcase(name, pattern):
            return generic if is_generic else printed
    return ()


def is_listed(name: str) -> bool:
    """Return whether a table lists this name; a pattern that begins with a star does not count."""
    if name in (*_REGIONS, *MODULES, CALL, EVENT, *RECORDS, *_PLAIN.split()) or name.startswith(_INSTRUMENTATION):
        return True
    return any(fnmatchcase(name, listed) for names in _NAMES.values() for listed in names if listed[0] != "*")
