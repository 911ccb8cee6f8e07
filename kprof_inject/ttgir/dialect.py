"""What an operation of TTGIR is: every fact about one that the rest of the program asks for, by the operation's name.

``traits_of`` is the lookup. A new Triton's operations go into the tables below: under each trait that they have, or
under ``_PLAIN`` if they have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

FUNCTION = "tt.func"
CALL = "tt.call"
WARP_SPECIALIZE = "ttg.warp_specialize"
PARTITIONS = "ttg.warp_specialize.partitions"
"""In the generic form, the operation inside ``ttg.warp_specialize`` that holds the partitions' regions."""
YIELD = "scf.yield"
RECORD = "proton.record"
MODULES = ("module", "builtin.module")
LOOPS = ("scf.for", "scf.while")
WARP_GROUP_DOT = "ttng.warp_group_dot"
DOT_COMMIT = "ttng.tc_gen5_commit"
DOT_WAIT = "ttng.warp_group_dot_wait"
BARRIER_INIT = "ttng.init_barrier"
BARRIER_ARRIVE = "ttng.arrive_barrier"
BARRIER_WAIT = "ttng.wait_barrier"
COMMIT_GROUP = "ttg.async_commit_group"


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of all operations of one name. Of one whose name is in no table, nothing is true."""

    is_terminator: bool
    """The last operation of a block: nothing may stand behind it."""

    leaves_region: bool
    """A terminator behind which control leaves the region that it stands in."""

    is_branch: bool
    """It leads from block to block, perhaps backwards."""

    is_indexing: bool
    """Pure, on scalars, indices, pointers, or the layout of a register or a view: it costs next to nothing, and the
    compiler moves it at will."""

    is_arithmetic: bool
    """It computes with each element; on tensors of floats that is work."""

    computes_integers: bool
    """It computes with integers, which may be data, or addresses."""

    is_random: bool
    """Random numbers are made of what it gives: the high halves of products."""

    is_transcendental: bool
    """A function of floats that takes several instructions, some of them of the special function units."""

    is_constant: bool
    is_allocation: bool
    """Memory is laid out at compile time; an allocation does something only when it is given a value to store."""

    is_move: bool
    """It gives what it takes, in another layout: an index stays an index."""

    keeps_elements: bool
    """Each element that it gives is one that it takes."""

    reads_memory: bool
    """What it gives is no function of the address that it was found at."""

    reads_global: bool
    """It reads global memory, and the warp waits where it uses what it gets."""

    writes_global: bool
    """It writes global memory, or has it written."""

    takes_addresses: bool
    """It takes addresses, indices or masks; see ``data_operands_of`` for what else."""

    combines_elements: bool
    """It has a region that is lowered once per element, and gives what that made of tensors."""

    is_wait: bool
    """The warp does nothing else until others, or its own asynchronous work, are done."""

    starts_async: bool
    """It asks for work, or ends a group of it, that goes on while the warp does; of ``ttng.warp_group_dot`` its
    attributes say whether it does."""

    waits_for_async: bool
    """A wait for such work; the other waits are for warps."""

    is_of_dot: bool
    """A dot, or a wait for one."""

    is_dot: bool

    is_counted: bool
    """A loop whose bounds are known before it begins."""

    is_atomic: bool
    """It changes memory that others may read and change meanwhile."""

    makes_pointers: bool
    """It casts integers to pointers, so that no argument tells what memory it leads to."""

    is_foreign: bool
    """What it does is written in another language; its attributes say whether it does more than compute."""

    is_output: bool
    """It writes where a user sees it."""

    regions: str
    """What its regions are: ``function``, ``body`` of a loop, ``branch`` or ``partition``. Empty if it has none, or if
    Triton lowers them once per element."""

    @property
    def is_loop(self) -> bool:
        return self.regions == "body"


_DOTS = "tt.dot tt.dot_scaled ttng.warp_group_dot ttng.tc_gen5_mma ttng.tc_gen5_mma_scaled"
_WAITS_FOR_ASYNC = """
    amdg.async_tdm_wait amdg.async_wait amdg.memory_counter_wait amdg.wait_barrier amdgpu.async_wait rocdl.s.waitcnt
    ttg.async_wait ttng.async_tma_store_token_wait ttng.async_tma_store_wait ttng.wait_barrier ttng.warp_group_dot_wait
"""

# By the trait, the operations that have it. A star stands for any letters.
_TRAITS = {
    "is_terminator": """
        cf.br cf.cond_br cf.switch scf.condition scf.yield tt.map_elementwise.return tt.reduce.return tt.return
        tt.scan.return ttg.mask.return ttg.warp_return ttg.warp_specialize.partitions ttg.warp_yield ub.unreachable
    """,
    "leaves_region": "scf.yield tt.return ttg.warp_return ttg.warp_yield",
    "is_branch": "cf.*",
    "is_indexing": """
        gpu.block_id gpu.thread_id llvm.intr.assume tt.addptr tt.advance tt.bitcast tt.broadcast tt.cat tt.expand_dims
        tt.get_num_programs tt.get_program_id tt.int_to_ptr tt.join tt.make_range tt.make_tensor_ptr tt.mulhiui
        tt.ptr_to_int tt.reshape tt.splat tt.split tt.trans tt.unsplat ttg.global_scratch_alloc ttg.local_dealloc
        ttg.memdesc_index ttg.memdesc_reinterpret ttg.memdesc_reshape ttg.memdesc_subslice ttg.memdesc_subview
        ttg.memdesc_trans ttg.warp_id ttng.reinterpret_tensor_descriptor ttng.tmem_subslice
    """,
    "is_arithmetic": """
        arith.* math.* ub.* index.* tt.approx_divf tt.clampf tt.fp_to_fp tt.precise_divf tt.precise_sqrt
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
    "keeps_elements": "tt.broadcast tt.expand_dims tt.reshape tt.trans ttg.convert_layout",
    "reads_memory": "ttg.local_load ttng.tmem_load *load* *atomic* *gather* *alloc*",
    "reads_global": "tt.load tt.descriptor_load tt.descriptor_gather amdg.buffer_load amdgpu.buffer_load",
    "writes_global": """
        tt.store tt.atomic_* tt.descriptor_store tt.descriptor_reduce tt.descriptor_scatter amdg.buffer_store
        amdg.buffer_atomic* amdgpu.buffer_store amdgpu.buffer_atomic* ttng.async_tma_copy_local_to_global
        ttng.async_tma_reduce ttng.async_tma_scatter amdg.async_tdm_copy_local_to_global
    """,
    "takes_addresses": """
        tt.addptr tt.advance tt.make_tensor_ptr tt.make_tensor_descriptor tt.int_to_ptr tt.gather tt.load tt.store
        tt.atomic_* tt.descriptor_* ttg.memdesc_* ttg.async_copy_* ttg.local_gather ttng.async_tma_*
        ttng.tmem_subslice amdg.buffer_* amdgpu.buffer_*
    """,
    "combines_elements": "tt.reduce tt.scan tt.map_elementwise",
    "is_wait": f"{_WAITS_FOR_ASYNC} gpu.barrier rocdl.s.barrier ttg.barrier ttg.local_barrier ttng.cluster_wait",
    "starts_async": """
        amdg.async_tdm_copy_* amdg.buffer_load_to_local amdgpu.buffer_load_to_local ttg.async_commit_group
        ttg.async_copy_* ttng.async_tma_copy_* ttng.async_tma_gather ttng.async_tma_reduce ttng.async_tma_scatter
        ttng.tc_gen5_commit ttng.tc_gen5_mma ttng.tc_gen5_mma_scaled ttng.warp_group_dot
    """,
    "waits_for_async": _WAITS_FOR_ASYNC,
    "is_of_dot": f"{_DOTS} *dot* *mma*",
    "is_dot": _DOTS,
    "is_counted": "scf.for",
    "is_atomic": "*atomic*",
    "makes_pointers": "tt.int_to_ptr",
    "is_foreign": "tt.elementwise_inline_asm tt.extern_elementwise",
    "is_output": "tt.print",
}

_REGIONS = {
    FUNCTION: "function",
    **dict.fromkeys(LOOPS, "body"),
    **dict.fromkeys(("scf.if", "scf.execute_region", "scf.index_switch"), "branch"),
    WARP_SPECIALIZE: "partition",
    PARTITIONS: "partition",
}

# Work of which nothing more is asked than that it is none of the above.
_PLAIN = """
    amdg.in_thread_transpose amdgpu.in_thread_transpose rocdl.s.setprio rocdl.sched.barrier tt.assert
    tt.histogram ttg.async_commit_group ttg.local_store ttng.arrive_barrier
    ttng.barrier_expect ttng.fence_async_shared ttng.init_barrier ttng.inval_barrier ttng.tc_gen5_commit
    ttng.tensormap_create ttng.tensormap_fenceproxy_acquire ttng.tmem_store
"""

# Of what takes addresses: at which places of its printed and of its generic form it takes data instead.
_DATA_OPERANDS = {
    "amdg*.buffer_atomic_cas": ((0, 1), (2, 3)),
    "amdg*.buffer_atomic_rmw": ((0,), (2,)),
    "amdg*.buffer_store": ((0,), (0,)),
    "tt.atomic_cas": ((1, 2), (1, 2)),
    "tt.atomic_rmw": ((1,), (1,)),
    "tt.descriptor_reduce": ((-1,), (1,)),
    "tt.descriptor_scatter": ((-1,), (-1,)),
    "tt.descriptor_store": ((-1,), (1,)),
    "tt.gather": ((0,), (0,)),
    "tt.store": ((1,), (1,)),
}


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of operations, some of which are patterns."""

    exact: frozenset[str]
    patterns: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> _Names:
        names = text.split()
        return cls(frozenset(names), tuple(name for name in names if "*" in name))

    def __contains__(self, name: str) -> bool:
        return name in self.exact or any(fnmatchcase(name, pattern) for pattern in self.patterns)


_NAMES = {trait: _Names.of(text) for trait, text in _TRAITS.items()}

WAITS = _NAMES["is_wait"].exact


@cache
def traits_of(name: str) -> Traits:
    """What is known of the operations of this name."""
    return Traits(**{trait: name in names for trait, names in _NAMES.items()}, regions=_REGIONS.get(name, ""))


def data_operands_of(name: str, *, is_generic: bool) -> tuple[int, ...]:
    """The places at which an operation that takes addresses takes data; from the end where they are negative."""
    for pattern, (printed, generic) in _DATA_OPERANDS.items():
        if fnmatchcase(name, pattern):
            return generic if is_generic else printed
    return ()


def is_listed(name: str) -> bool:
    """Whether an operation of this name is meant by any of the tables, and not only by a pattern of its middle."""
    if name in _REGIONS or name in MODULES or name in (CALL, RECORD) or name in _PLAIN.split():
        return True
    return any(
        name in names.exact or any(fnmatchcase(name, pattern) for pattern in names.patterns if pattern[0] != "*")
        for names in _NAMES.values()
    )
