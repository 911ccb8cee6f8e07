"""What a compiler made of each source line: how its loads reach the SM and how far ahead, which instruction its dots
are, where layouts are converted, what goes through shared memory.

A pipelined operation stands in the text several times: in front of its loop, in it, and behind it. One feature stands
for all of them, and has the facts of those that run most often: the ones in the innermost loop.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kprof_inject.analysis.structure.layouts import access_bits, dot_instruction, lanes_dimension, layout_of
from kprof_inject.analysis.structure.prefetching import iterations_ahead
from kprof_inject.select.functions import Function, functions_of
from kprof_inject.select.python_source import is_library
from kprof_inject.ttgir.dialect import WARP_GROUP_DOT
from kprof_inject.ttgir.locations import Chain, LocationTable, SourcePoint
from kprof_inject.ttgir.misfits import if_misfit
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.types import PrintedType, factors_of, types_of


class Kind(StrEnum):
    """What a source line may do that costs time, in the order in which changes are told."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    DOT = "dot"
    REDUCTION = "reduction"
    SPECIAL = "special function"
    CONVERSION = "layout conversion"
    SHARED = "shared memory access"
    FENCE = "shared memory fence"


Fact = str | int
CodeOf = Callable[[SourcePoint], str]
"""What a source line says; empty if that is not known."""


@dataclass(frozen=True, slots=True)
class Line:
    """A source line, as it is called in a report, and what tells it from others: its text and that of the lines that
    call it, where they are known, else their numbers."""

    source: SourcePoint | None
    identity: tuple[str, ...]

    @property
    def own(self) -> tuple[str, ...]:
        """The same without the lines that call it: of a call over several lines, compilers name different ones."""
        return self.identity[:2]


@dataclass(frozen=True, slots=True)
class Feature:
    """``operand`` is the type that it moves or computes, without its layout. ``facts`` are by their names in ``FACTS``;
    what is not known is not there. ``operations`` are all of its occurrences; ``times`` is how many of them stand in
    ``loop`` (the selector of the innermost loop, empty outside of any)."""

    kind: Kind
    line: Line
    operand: str
    loop: str
    times: int
    facts: Mapping[str, Fact]
    operations: tuple[Operation, ...] = field(compare=False)


WAY, AHEAD, BITS, INSTRUCTION, PREDICATED = "way", "ahead", "bits", "instruction", "predicated"
ADDRESSES, LANES = "addresses", "lanes"

_COPY, _TMA, _PLAIN = "asynchronous copy", "TMA", "through registers"
_WAYS = {
    "ttg.async_copy_global_to_local": _COPY,
    "amdg.buffer_load_to_local": _COPY,
    "amdgpu.buffer_load_to_local": _COPY,
    **dict.fromkeys(
        ("ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather", "tt.descriptor_load", "tt.descriptor_gather"),
        _TMA,
    ),
    **dict.fromkeys(
        (
            "ttng.async_tma_copy_local_to_global",
            "ttng.async_tma_scatter",
            "tt.descriptor_store",
            "tt.descriptor_scatter",
        ),
        _TMA,
    ),
}
_POINTERS, _BUFFER = "by pointers", "by buffer instructions"
_BUFFER_ACCESS = re.compile(r"(?:amdg|amdgpu)\.buffer_")
_SHARED = ("ttg.local_alloc", "ttg.local_store", "ttg.local_load")
_FENCE = "ttng.fence_async_shared"


def features_of(module: Module, code_of: CodeOf) -> list[Feature]:
    """Of all functions of a module, in the order of the text."""
    found: list[Feature] = []
    for function in functions_of(module, LocationTable(module)):
        found += _FunctionFeatures(module, function, code_of).features()
    return found


def kind_of(operation: Operation) -> Kind | None:
    """What an operation does of these; None if none of them."""
    traits, name = operation.traits, operation.name
    if traits.is_dot:
        return Kind.DOT
    if traits.is_atomic:
        return Kind.ATOMIC
    if traits.writes_global:
        return Kind.STORE
    if traits.reads_global or (traits.starts_async and name in _WAYS):
        return Kind.LOAD
    if traits.combines_elements:
        return Kind.REDUCTION
    if traits.is_transcendental and _is_tensor(operation):
        return Kind.SPECIAL
    if name == "ttg.convert_layout":
        return Kind.CONVERSION
    if name == _FENCE:
        return Kind.FENCE
    if name in _SHARED and any(one.kind == "tensor" for one in types_of(operation)):
        return Kind.SHARED
    return None


def _is_tensor(operation: Operation) -> bool:
    return any(one.kind == "tensor" for one in types_of(operation))


_Key = tuple[Kind, tuple[str, ...], str]


class _FunctionFeatures:
    def __init__(self, module: Module, function: Function, code_of: CodeOf) -> None:
        self._module = module
        self._function = function
        self._code_of = code_of
        self._loops = {loop.operation: f"loop{loop.subscript}" for loop in function.loops()}
        self._lines: dict[Chain, Line] = {}
        # A kernel may be renamed; a helper's name goes on with the types that it is called with.
        self._owner = "" if function.is_public else function.symbol.partition("__")[0]

    def features(self) -> Iterator[Feature]:
        groups: dict[_Key, list[Operation]] = {}
        lines: dict[_Key, Line] = {}
        for operation in self._function.operations:
            kind = kind_of(operation)
            if kind is None or self._function.illegal_owner(operation):
                continue
            line = self._line(operation)
            key = (kind, line.identity, _operand(kind, operation))
            groups.setdefault(key, []).append(operation)
            lines.setdefault(key, line)
        for key, operations in groups.items():
            yield self._feature(key, lines[key], operations)

    def _feature(self, key: _Key, line: Line, operations: Sequence[Operation]) -> Feature:
        loops = [self._loop(operation) for operation in operations]
        depths = [0 if loop is None else self._loops[loop].count(".") + 1 for loop in loops]
        place = depths.index(max(depths))
        loop = loops[place]
        facts = _facts(key[0], self._module, operations[place])
        if key[0] == Kind.LOAD and loop is not None:
            ahead = iterations_ahead(loop, operations[place], operations)
            facts |= {} if ahead is None else {AHEAD: ahead}
        if _is_predicated(operations[place]):
            facts[PREDICATED] = 1
        times = Counter(loops)[loop]
        return Feature(key[0], line, key[2], "" if loop is None else self._loops[loop], times, facts, tuple(operations))

    def _loop(self, operation: Operation) -> Operation | None:
        return next((owner for owner in operation.owners() if owner.traits.is_loop), None)

    def _line(self, operation: Operation) -> Line:
        chain = _users_lines(self._function.source_of(operation))
        if chain not in self._lines:
            texts = [self._code_of(point) or f"{point.file}:{point.line}" for point in chain]
            self._lines[chain] = Line(next(iter(chain), None), (self._owner, *texts))
        return self._lines[chain]


def _users_lines(chain: Chain) -> Chain:
    """Without Triton's own library, whose lines are the same for all who call it."""
    own = next((depth for depth, point in enumerate(chain) if not is_library(point.file)), 0)
    return chain[own:]


def _is_predicated(operation: Operation) -> bool:
    return any(owner.name == "scf.if" for owner in operation.owners())


def _operand(kind: Kind, operation: Operation) -> str:
    """What tells two of a kind in one line apart: the type that they are about."""
    types = [one for one in types_of(operation) if one.shape] or list(types_of(operation))
    if not types:
        return ""
    one = types[-1] if kind in (Kind.LOAD, Kind.REDUCTION, Kind.SPECIAL, Kind.CONVERSION) else types[0]
    if kind == Kind.DOT:
        return " * ".join(map(_short, factors_of(operation)))
    if kind == Kind.CONVERSION and one.is_pointer:
        return "x".join([*map(str, one.shape), "pointer"])
    return _short(one)


def _short(printed: PrintedType) -> str:
    return "x".join([*map(str, printed.shape), printed.pointee])


_MutableFacts = dict[str, Fact]


def _access(module: Module, operation: Operation) -> _MutableFacts:
    facts: _MutableFacts = {WAY: _WAYS.get(operation.name, _PLAIN)}
    if facts[WAY] != _TMA:
        facts[ADDRESSES] = _BUFFER if _BUFFER_ACCESS.match(operation.name) else _POINTERS
    tensors = [one for one in types_of(operation) if one.kind == "tensor" and (one.is_pointer or one.shape)]
    if facts[WAY] != _TMA and tensors:
        one = next((tensor for tensor in tensors if tensor.is_pointer), tensors[0])
        told = {BITS: access_bits(one, module.aliases), LANES: lanes_dimension(one, module.aliases)}
        facts |= {name: fact for name, fact in told.items() if fact is not None}
    return facts


def _dot(module: Module, operation: Operation) -> _MutableFacts:
    if operation.name.startswith("ttng.tc_gen5"):
        return {INSTRUCTION: "tcgen05"}
    results = [one for one in types_of(operation) if one.kind == "tensor"]
    instruction = dot_instruction(layout_of(results[-1], module.aliases)) if results else ""
    facts: _MutableFacts = {INSTRUCTION: instruction} if instruction else {}
    if operation.name == WARP_GROUP_DOT:
        facts[WAY] = "asynchronous" if "isAsync = true" in operation.tail else "synchronous"
    return facts


def _nothing(module: Module, operation: Operation) -> _MutableFacts:
    return {}


_FACTS_OF: Mapping[Kind, Callable[[Module, Operation], _MutableFacts]] = {
    Kind.LOAD: _access,
    Kind.STORE: _access,
    Kind.ATOMIC: _access,
    Kind.DOT: _dot,
    Kind.REDUCTION: _nothing,
    Kind.SPECIAL: _nothing,
    Kind.CONVERSION: _nothing,
    Kind.SHARED: _nothing,
    Kind.FENCE: _nothing,
}


@if_misfit({})
def _facts(kind: Kind, module: Module, operation: Operation) -> _MutableFacts:
    return _FACTS_OF[kind](module, operation)
