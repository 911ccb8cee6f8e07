"""Features of each source line in the compiled kernel: its loads, dots, layout conversions and shared memory.

They say how loads reach the SM and how far ahead, and which instruction a dot is. A pipelined operation occurs several
times in the text: before its loop, in it, and after it. One feature represents all of them, with the facts of those
that run most often: the ones in the innermost loop.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from kprof_inject.analysis.structure import layouts
from kprof_inject.capture.source_text import without_folders
from kprof_inject.quantities import counted
from kprof_inject.select.functions import Function, functions_of
from kprof_inject.select.python_source import is_library
from kprof_inject.ttgir.dialect import AXIS, DOT_WAIT, READ, TENSOR_MEMORY, WARP_GROUP_DOT
from kprof_inject.ttgir.locations import Chain, SourcePoint
from kprof_inject.ttgir.loops import (
    GROUP_WAITS,
    awaited_dot,
    body_of,
    is_asynchronous_dot,
    is_for_the_next,
    iterations_ahead,
)
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.types import PrintedType, factors_of, if_misfit, types_of


class Kind(StrEnum):
    """Things in a source line that may cost time, in the order in which changes are reported."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    DOT = "dot"
    REDUCTION = "reduction"
    SPECIAL = "special function"
    CONVERSION = "layout conversion"
    SHARED = "shared memory access"
    TENSOR_MEMORY = "tensor memory access"
    FENCE = "shared memory fence"
    SYNCHRONIZATION = "synchronization"


Fact = str | int
_Facts = dict[str, Fact]

CodeOf = Callable[[SourcePoint], str]  # returns the text of a source line; empty if it is unknown


class Line(Struct, frozen=True):
    """A source line as named in a report."""

    source: SourcePoint | None
    identity: tuple[str, ...]
    """Its text and that of the lines that call it, if known, else their files' names and their numbers."""

    @property
    def own(self) -> tuple[str, ...]:
        """Identity without the lines that call it: for a call of several lines, compilers name different ones."""
        return self.identity[:2]


@dataclass(frozen=True, slots=True)
class Feature:
    """A source line's work of one kind on one type of operand."""

    kind: Kind
    line: Line
    operand: str  # the type that it moves or computes, without its layout
    loop: str  # selector of the innermost loop around it; empty outside of any
    times: int  # number of ``operations`` in ``loop``
    facts: Mapping[str, Fact]
    """Properties by their names, which are those of their changes (``structural_changes``), without unknown ones."""
    operations: tuple[Operation, ...] = field(compare=False)


_COPY, _TMA, _TDM, _PLAIN = "asynchronous copy", "TMA", "TDM", "through registers"
_OPERATIONS = {
    _COPY: """ttg.async_copy_global_to_local amdg.buffer_load_to_local amdgpu.buffer_load_to_local
        amdg.async_copy_local_to_global""",
    _TMA: """ttng.async_tma_copy_global_to_local ttng.async_tma_gather ttng.async_tma_copy_local_to_global
        ttng.async_tma_scatter ttng.async_tma_reduce tt.descriptor_load tt.descriptor_gather tt.descriptor_store
        tt.descriptor_scatter""",
    _TDM: """amdg.async_tdm_copy_global_to_local amdg.async_tdm_copy_local_to_global amdg.async_tdm_gather
        amdg.async_tdm_fused_copy_global_to_local amdg.async_tdm_scatter""",
}
_WAYS = {operation: way for way, names in _OPERATIONS.items() for operation in names.split()}
_FENCE = "ttng.fence_async_shared"
_SCHEDULING = ("amdg.instruction_sched_hint", "rocdl.s.setprio", "rocdl.sched.barrier")


def kind_of(operation: Operation) -> Kind | None:
    """Return the kind of an operation; None if it has none of these."""
    traits, name, in_tensor_memory = operation.traits, operation.name, operation.name.startswith(TENSOR_MEMORY)
    # Other waits show in what they wait for.
    is_wait = traits.is_wait and name not in (*GROUP_WAITS, DOT_WAIT)
    kinds = {
        Kind.DOT: traits.is_dot,
        Kind.ATOMIC: traits.is_atomic,
        Kind.STORE: traits.writes_global,
        Kind.LOAD: traits.reads_global or (traits.starts_async and name in _WAYS),
        Kind.REDUCTION: traits.combines_elements,
        Kind.SPECIAL: traits.is_transcendental and _tensors_of(operation),
        Kind.CONVERSION: name == "ttg.convert_layout",
        Kind.FENCE: name == _FENCE,
        Kind.TENSOR_MEMORY: in_tensor_memory and (traits.starts_async or _tensors_of(operation)),
        Kind.SHARED: not in_tensor_memory and traits.accesses_shared and _tensors_of(operation),
        Kind.SYNCHRONIZATION: not in_tensor_memory and (is_wait or traits.is_arrival or name in _SCHEDULING),
    }
    return next((kind for kind, applies in kinds.items() if applies), None)


def _tensors_of(operation: Operation) -> list[PrintedType]:
    return [one for one in types_of(operation) if one.kind == "tensor"]


def features_of(module: Module, code_of: CodeOf, *, by_line: bool = True) -> list[Feature]:
    """Return the features of all functions, in the order of the text, each function as one line unless ``by_line``."""
    return [one for function in functions_of(module) for one in _features_in(module, function, code_of, by_line)]


def _features_in(module: Module, function: Function, code_of: CodeOf, by_line: bool) -> Iterator[Feature]:
    # A kernel may be renamed; a helper's name continues with the types of its arguments.
    owner = "" if function.is_public else function.symbol.partition("__")[0]
    loops: dict[Operation | None, str] = {None: ""}
    loops |= {loop.operation: f"loop{loop.subscript}" for loop in function.loops}
    depths = {loop: name.count(".") + bool(name) for loop, name in loops.items()}
    groups: defaultdict[tuple[Kind, tuple[str, ...], str], list[Operation]] = defaultdict(list)
    lines: dict[tuple[str, ...], Line] = {}
    for one in function.operations:
        kind = kind_of(one)
        if kind is not None and not function.illegal_owner(one):
            chain = function.source_of(one)
            users = _users_lines(chain)
            codes = (code_of(point) or without_folders(f"{point.file}:{point.line}") for point in users if by_line)
            line = Line(next(iter(users or chain), None), (owner, *codes))
            lines.setdefault(line.identity, line)
            groups[kind, line.identity, _operand_of(kind, one)].append(one)
    for (kind, identity, operand), group in groups.items():
        one = max(group, key=lambda other: depths[other.loop])
        inside = [other for other in group if other.loop is one.loop]
        facts = _printed_facts(kind, one, module.aliases) | _facts_in_loop(module, kind, inside, group)
        dots = [other for other in one.block.operations if other.traits.is_dot] if one.block else []
        if kind == Kind.SYNCHRONIZATION and dots:
            facts["place"] = f"{sum(other.start < one.start for other in dots)} of {counted(len(dots), 'dot')}"
        facts["predicated"] = any(holder.name == "scf.if" for holder in one.owners())
        yield Feature(kind, lines[identity], operand, loops[one.loop], len(inside), facts, tuple(group))


# If USE_IR_LOC is set, Triton's locations are lines of its own dumps; so are those of modules printed without locations
# and read again. They change with every edit, and from stage to stage.
_COMPILER_SUFFIXES = (".ttir", ".ttgir", ".mlir")


def has_source_lines(module: Module) -> bool:
    """Return True if any operation's location is a line of the program."""
    functions = functions_of(module)
    return any(_users_lines(function.source_of(one)) for function in functions for one in function.operations)


def _users_lines(chain: Chain) -> Chain:
    # Triton's own library has the same lines for all callers.
    chain = tuple(point for point in chain if not point.file.endswith(_COMPILER_SUFFIXES))
    own = next((depth for depth, point in enumerate(chain) if not is_library(point.file)), 0)
    return chain[own:]


_WORK = frozenset(Kind) - {Kind.CONVERSION, Kind.FENCE, Kind.SYNCHRONIZATION}


def _facts_in_loop(module: Module, kind: Kind, inside: Sequence[Operation], group: Sequence[Operation]) -> _Facts:
    one = inside[0]
    if one.loop is None:
        return {}
    if kind == Kind.LOAD:
        ahead = iterations_ahead(module, one.loop, one, group)
        return {} if ahead is None else {"ahead": ahead}
    if kind == Kind.SHARED and one.name == READ:
        return {"ahead": int(any(is_for_the_next(one.loop, other) for other in inside))}
    found = awaited_dot(module, one.loop, one) if kind == Kind.DOT else None
    if found is None:
        return {}
    if found.iterations_ago:
        return {"awaited": f"{counted(found.iterations_ago, 'iteration')} later"}
    between = [other for other in body_of(one.loop) if one.start < other.start < found.wait.start]
    does_work = any(kind_of(other) in _WORK or (other.traits.is_arithmetic and _tensors_of(other)) for other in between)
    return {"awaited": "later in its iteration" if does_work else "at once"}


def _operand_of(kind: Kind, operation: Operation) -> str:
    # The type distinguishes two operations of a kind in one line.
    if kind == Kind.SYNCHRONIZATION:
        return operation.name.partition(".")[2]
    if kind == Kind.DOT and types_of(operation):
        return " * ".join(_short(one.shape, one.pointee) for one in factors_of(operation))
    moved = _moved(kind, operation)
    if moved is None:
        return ""
    return _short(moved.shape, "pointer" if kind == Kind.CONVERSION and moved.is_pointer else moved.pointee)


def _short(shape: Sequence[int], element: str) -> str:
    return "x".join([*map(str, shape), element])


_GIVES_LAST = (Kind.LOAD, Kind.ATOMIC, Kind.REDUCTION, Kind.SPECIAL, Kind.CONVERSION)


def _moved(kind: Kind, operation: Operation) -> PrintedType | None:
    # The generic form also prints the types of offsets and masks: before the result's, and after those of the values to
    # store and of the memory to copy to.
    shaped = [one for one in types_of(operation) if one.shape] or list(types_of(operation))
    if kind == Kind.LOAD:
        shaped = [one for one in shaped if one.kind == "memdesc"] or shaped
    if not shaped:
        return None
    return shaped[-1] if kind in _GIVES_LAST else shaped[0]


# AMD's newest layouts have the bases of the warps' numbers.
_WARPS = re.compile(r"\bwarpsPerCTA = (\[[^\]]*\])|\bctaLayout = \{warp = (\[(?:\[[^\]]*\](?:, )?)*\])")
# Of the layouts of shared memory: swizzled_shared, nvmma_shared and padded_shared.
_SWIZZLE = re.compile(r"\b(vec|perPhase|maxPhase|swizzlingByteWidth|transposed) = (\w+)|(\d+:\+\d+)")
_ORDERS = ("", "relaxed", "acquire", "release", "acq_rel")  # numbers in the generic form: MemSemantic
_ORDER = re.compile(r"\b(relaxed|acquire|release|acq_rel)\b|\bsem = (\d)")
_PENDING = re.compile(r"\bpendings = (\d+)")


@if_misfit({})
def _printed_facts(kind: Kind, operation: Operation, aliases: Mapping[str, str]) -> _Facts:
    tensors = _tensors_of(operation)
    if kind in (Kind.LOAD, Kind.STORE):
        return _access(kind, operation, aliases)
    if kind == Kind.ATOMIC:
        order = _ORDER.search(operation.tail)
        known = {"memory-order": order[1] or _ORDERS[int(order[2]) % len(_ORDERS)]} if order else {}
        return _access(kind, operation, aliases) | known
    if kind == Kind.DOT:
        return _dot(operation, aliases)
    if kind == Kind.REDUCTION and (axis := AXIS.search(operation.tail)):
        spread = layouts.lanes_and_warps_along(types_of(operation)[0], int(axis[1]), aliases)
        if spread is None:
            return {}
        parts = [counted(count, word) for count, word in zip(spread, ("thread", "warp"), strict=True) if count > 1]
        return {"threads": f"over {' and '.join(parts)}" if parts else "within each thread"}
    if kind == Kind.CONVERSION:
        before, after = (layouts.linear_layout(one, aliases) for one in (tensors[0], tensors[-1]))
        if before is None or after is None:
            return {}
        within = "within each thread" if before.lanes == after.lanes else "between threads of a warp"
        return {"exchange": within if before.warps == after.warps else "between warps"}
    if kind == Kind.SHARED:
        return _shared(operation, aliases)
    if kind == Kind.SYNCHRONIZATION and (pending := _PENDING.search(operation.tail)):
        return {"pending": int(pending[1])}
    return {}


def _access(kind: Kind, operation: Operation, aliases: Mapping[str, str]) -> _Facts:
    way = _WAYS.get(operation.name, _PLAIN)
    if way in (_TMA, _TDM):
        return {"way": way}
    is_buffer = operation.name.startswith(("amdg.buffer_", "amdgpu.buffer_"))
    facts: _Facts = {"way": way, "addresses": "by buffer instructions" if is_buffer else "by pointers"}
    tensors, moved = [one for one in _tensors_of(operation) if one.is_pointer or one.shape], _moved(kind, operation)
    if tensors:
        first = moved if moved is not None and moved.kind == "tensor" else tensors[0]
        one = next((tensor for tensor in tensors if tensor.is_pointer), first)
        known = {"bits": layouts.access_bits(one, aliases), "lanes": layouts.lanes_dimension(one, aliases)}
        facts |= {name: fact for name, fact in known.items() if fact is not None}
    return facts


def _dot(operation: Operation, aliases: Mapping[str, str]) -> _Facts:
    if operation.name.startswith("ttng.tc_gen5"):
        return {"instruction": "tcgen05"}
    facts: _Facts = {}
    if results := _tensors_of(operation)[-1:]:
        layout = layouts.layout_of(results[0], aliases)
        if instruction := layouts.dot_instruction(layout):
            facts["instruction"] = instruction
        if warps := _WARPS.search(layout):
            facts["warps"] = warps[1] or warps[2]
    if operation.name == WARP_GROUP_DOT:
        facts["way"] = "asynchronous" if is_asynchronous_dot(operation) else "synchronous"
    return facts


def _shared(operation: Operation, aliases: Mapping[str, str]) -> _Facts:
    facts: _Facts = {}
    for memory in [one for one in types_of(operation) if one.kind == "memdesc"][:1]:
        found = _SWIZZLE.findall(layouts.layout_of(memory, aliases))
        facts["swizzle"] = ", ".join(f"{name} {value}".strip() + padding for name, value, padding in found) or "plain"
    if cycles := layouts.shared_cycles(operation, aliases):
        facts["conflicts"] = f"{cycles.cycles / cycles.least:.2g}"
    return facts
