"""Which partition an operation belongs to: ``ttg.warp_specialize`` gives each of its regions to warps of its own.

The default partition is the kernel's own warps. They run everything outside of the partition regions, the ``default``
regions too; the warps of the other partitions wait from the kernel's start until their region is reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kprof_inject.capture.scopes import Partition
from kprof_inject.select.calls import callee_symbol, calls_in
from kprof_inject.select.functions import Function
from kprof_inject.select.python_source import Sources
from kprof_inject.ttgir.dialect import WARP_SPECIALIZE
from kprof_inject.ttgir.nodes import Module, Region

_DEFAULT = 0
_DEFAULT_WARPS = re.compile(r'"ttg\.num-warps" = (\d+)')
_GENERIC_WARPS = re.compile(r"\bpartitionNumWarps = array<i32: ([\d, ]+)>")
_CLAUSE_WARPS = re.compile(r'\bnum_warps\((\d+)\)[^"\n]*\{[ \t\r]*(?://[^\n]*)?\n')


@dataclass(frozen=True, slots=True)
class _Span:
    """The text of one partition's region, and the partition's index."""

    start: int
    end: int
    partition: int


class Partitions:
    """The partitions of one module: the default one first, the others in the order of the text. There are none in a
    module without ``ttg.warp_specialize``."""

    all: tuple[Partition, ...]

    def __init__(self, module: Module, functions: Sequence[Function], sources: Sources) -> None:
        found = list(_regions(module, functions, sources)) if WARP_SPECIALIZE in module.text else []
        # A default region is run by whoever runs the operation that it belongs to.
        regions = [region for region in found if region.number is not None]
        defaults = {region.function for region in found if region.number is None}
        default = Partition("default partition", _default_warps(module), defaults.pop() if len(defaults) == 1 else "")
        self.all = (default, *_partitions(regions)) if regions else ()
        self._spans = [_Span(region.start, region.end, 1 + index) for index, region in enumerate(regions)]
        self._callers = self._partitions_of_functions(functions) if regions else {}

    def at(self, function: str, offset: int) -> int | None:
        """The index of the partition whose warps run what stands at an offset of a function; None if the module has no
        partitions, or if several call the function."""
        found = self._around(function, offset)
        return next(iter(found)) if len(found) == 1 else None

    def _around(self, function: str, offset: int) -> frozenset[int]:
        # Of regions in each other the inner one begins later.
        spans = [span for span in self._spans if span.start <= offset <= span.end]
        if spans:
            return frozenset({max(spans, key=lambda span: span.start).partition})
        return self._callers.get(function, frozenset())

    def _partitions_of_functions(self, functions: Sequence[Function]) -> Mapping[str, frozenset[int]]:
        """For each function, by its symbol, the partitions that call it, however indirectly."""
        self._callers = {f.symbol: frozenset({_DEFAULT} if f.is_public else ()) for f in functions}
        calls = [(f.symbol, callee_symbol(call), call.start) for f in functions for call in calls_in(f)]
        for _ in functions:  # a chain of calls is no longer than there are functions
            for caller, callee, offset in calls:
                if callee in self._callers:
                    self._callers[callee] |= self._around(caller, offset)
        return self._callers


@dataclass(frozen=True, slots=True)
class _PartitionRegion:
    """Region ``number`` of the module's ``ttg.warp_specialize`` number ``operation``, both from 0; a default region has
    no number."""

    operation: int
    number: int | None
    warps: int | None
    function: str
    start: int
    end: int


def _regions(module: Module, functions: Sequence[Function], sources: Sources) -> Iterator[_PartitionRegion]:
    count = 0
    for function in functions:
        for operation, default, partitions in function.warp_specializations():
            told = _GENERIC_WARPS.search(operation.tail)
            counts = [int(count) for count in told[1].split(",")] if told else []
            before = operation.start
            for number, region in enumerate((default, *partitions), -1):
                start = region.blocks[0].start
                clause = list(_CLAUSE_WARPS.finditer(module.text, before, start))
                warps = counts[number] if 0 <= number < len(counts) else int(clause[-1][1]) if clause else None
                written_as = _function_of(region, function, sources)
                yield _PartitionRegion(count, None if number < 0 else number, warps, written_as, start, region.end)
                before = region.end
            count += 1


def _function_of(region: Region, kernel: Function, sources: Sources) -> str:
    """The function that all of a region's operations were written in, or in functions that it calls. None of a region
    that the compiler made is: its operations were written in the kernel."""
    own = [sources.function_at(point.file, point.line) for point in kernel.source_of(kernel.operation)]
    found: set[str] = set()
    for operation in region.walk():
        chain = () if operation.traits.is_terminator else kernel.source_of(operation)
        if chain:
            outermost_first = (sources.function_at(point.file, point.line) for point in reversed(chain))
            called = next((one for one in outermost_first if one not in own), None)
            found.add(called.name if called else "")
    return found.pop() if len(found) == 1 else ""


def _partitions(regions: Sequence[_PartitionRegion]) -> Iterator[Partition]:
    several = len({region.operation for region in regions}) > 1
    for region in regions:
        of_operation = f"#{region.operation}" if several else ""
        yield Partition(f"partition {region.number}{of_operation}", region.warps, region.function)


def _default_warps(module: Module) -> int | None:
    """Of the module itself; the generic form has its attributes behind its region."""
    lines = (text for operation in module.operations for text in (operation.tail, operation.closing))
    return next((int(found[1]) for found in map(_DEFAULT_WARPS.search, lines) if found), None)
