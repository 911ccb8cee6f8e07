"""A module as selectors see it: its functions, their source, and the connection of both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from kprof_inject.capture.schema import Partition
from kprof_inject.select.calls import (
    InlinedCall,
    KeptCall,
    callee_symbol,
    calls_in,
    copies_when_inlined,
    inlined_calls,
    with_callers,
)
from kprof_inject.select.functions import Function, functions_of, kernel_name
from kprof_inject.select.markers import Marker, markers_in
from kprof_inject.select.python_source import SourceFunction, Sources
from kprof_inject.ttgir.dialect import WARP_SPECIALIZE
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.nodes import Module, Region

# ``ttg.warp_specialize`` gives each of its regions to warps of its own.
#
# The default partition is the kernel's own warps. They run everything outside the partition regions, including the
# ``default`` regions; the warps of the other partitions wait from the kernel's start until their region is reached.

_DEFAULT = 0
_MAX_DIGITS = 10
_GENERIC_WARPS = re.compile(r"\bpartitionNumWarps = array<i32: (\d{1,9}(?:, \d{1,9})*)>")
_CLAUSE_WARPS = re.compile(r'\bnum_warps\((\d{1,9})\)[^"\n]*\{[ \t\r]*(?://[^\n]*)?\n')


class Partitions:
    """The partitions of a module: the default one first, the others in the order of the text.

    A module without ``ttg.warp_specialize`` has none.
    """

    all: tuple[Partition, ...]
    functions: dict[int, str]
    """Function that each region was written as, by where the region starts; empty if unknown."""

    def __init__(self, module: Module, functions: Sequence[Function], sources: Sources) -> None:
        """Find the partitions and the functions that each one calls."""
        found = list(_regions(module, functions, sources)) if WARP_SPECIALIZE in module.text else []
        self.functions = {region.start: region.function for region in found}
        # The warps that run an operation also run its default region.
        regions = [region for region in found if region.number is not None]
        defaults = {region.function for region in found if region.number is None}
        warps = module.attribute("ttg.num-warps")
        default = Partition(
            "default partition",
            int(warps) if warps.isdecimal() and len(warps) < _MAX_DIGITS else None,
            defaults.pop() if len(defaults) == 1 else "",
        )
        self.all = (default, *_partitions(regions)) if regions else ()
        self._regions = regions
        self._callers = self._partitions_of_functions(functions) if regions else {}

    def at(self, function: str, offset: int) -> int | None:
        """Return the index of the partition whose warps run the code at an offset of a function.

        None if the module has no partitions, or if several call the function.
        """
        found = self._around(function, offset)
        return next(iter(found)) if len(found) == 1 else None

    def _around(self, function: str, offset: int) -> frozenset[int]:
        around = [index for index, region in enumerate(self._regions, 1) if region.start <= offset <= region.end]
        if around:
            return frozenset({around[-1]})  # of nested regions, the inner one begins later
        return self._callers.get(function, frozenset())

    def _partitions_of_functions(self, functions: Sequence[Function]) -> Mapping[str, frozenset[int]]:
        self._callers = {f.symbol: frozenset({_DEFAULT} if f.is_public else ()) for f in functions}
        calls = [(f.symbol, callee_symbol(call), call.start) for f in functions for call in calls_in(f)]
        for _ in functions:  # a chain of calls is at most as long as the number of functions
            for caller, callee, offset in calls:
                if callee in self._callers:
                    self._callers[callee] |= self._around(caller, offset)
        return self._callers


class _PartitionRegion(Struct, frozen=True):
    """Region ``number`` of the module's ``ttg.warp_specialize`` number ``operation``, both from 0.

    A default region has no number.
    """

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
            generic = _GENERIC_WARPS.search(operation.tail)
            counts = [int(count) for count in generic[1].split(",")] if generic else []
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
    """Return the name of the function that all operations of a region were written in, or called from; empty if none.

    A region that the compiler made has none: its operations were written in the kernel.
    """
    own = [sources.function_at(point.file, point.line) for point in kernel.source_of(kernel.operation)]
    chains = {kernel.source_of(operation) for operation in region.walk() if not operation.traits.is_terminator}
    found: set[str] = set()
    for chain in filter(None, chains):
        outermost_first = (sources.function_at(point.file, point.line) for point in reversed(chain))
        called = next((candidate for candidate in outermost_first if candidate not in own), None)
        found.add(called.name if called else "")
    return found.pop() if len(found) == 1 else ""


def _partitions(regions: Sequence[_PartitionRegion]) -> Iterator[Partition]:
    several = len({region.operation for region in regions}) > 1
    for region in regions:
        suffix = f"#{region.operation}" if several else ""
        yield Partition(f"partition {region.number}{suffix}", region.warps, region.function)


# Triton mangles a helper's name: its module, its own name, and after two underscores the types of its arguments.
_MANGLED = re.compile(r"(?:\w+\.)*(\w+?)__")


class ModuleView:
    """Everything that selectors need to know about a module; costly parts are computed on first use."""

    def __init__(self, module: Module, sources: Sources) -> None:
        """Find the module's functions."""
        self.module = module
        self.sources = sources
        self.functions: tuple[Function, ...] = with_callers(functions_of(module, LocationTable(module)))
        self.kernel = kernel_name(self.functions)

    @cached_property
    def kernel_file(self) -> str:
        """The file that the kernel function was written in; empty if that is unknown."""
        kernels = (function for function in self.functions if function.symbol == self.kernel)
        return next((point.file for kernel in kernels for point in kernel.source_of(kernel.operation)), "")

    @cached_property
    def inlined_calls(self) -> tuple[tuple[Function, InlinedCall], ...]:
        """The calls of helpers that were inlined into each function."""
        return tuple((function, call) for function in self.functions for call in inlined_calls(function, self.sources))

    @cached_property
    def markers(self) -> tuple[Marker, ...]:
        """The marker comments in the functions that went into this module. Raises ``KprofError`` for a wrong one."""
        found = [marker for file in self.sources.texts for marker in markers_in(self.sources, file)]
        # Looking at every location only pays if there are markers at all.
        used = self._source_functions if found else frozenset()
        return tuple(marker for marker in found if marker.function in used)

    @cached_property
    def _source_functions(self) -> frozenset[SourceFunction]:
        points = {
            point
            for function in self.functions
            for operation in function.operation.walk()
            for chain in function.chains_of(operation)
            for point in chain
        }
        found = (self.sources.function_at(point.file, point.line) for point in points)
        return frozenset(function for function in found if function is not None)

    @cached_property
    def helper_names(self) -> dict[str, str]:
        """The source name of each function that was not inlined, by its symbol."""
        return {function.symbol: self._source_name(function) for function in self.functions}

    @cached_property
    def kept_calls(self) -> tuple[KeptCall, ...]:
        """The calls of helpers that were not inlined."""
        names = self.helper_names
        return tuple(
            KeptCall(names[callee_symbol(operation)], function, operation)
            for function in (self.functions if len(names) > 1 else ())
            for operation in calls_in(function)
            if callee_symbol(operation) in names
        )

    @cached_property
    def partitions(self) -> Partitions:
        """The partitions of the kernel."""
        return Partitions(self.module, self.functions, self.sources)

    @cached_property
    def copies_of_functions(self) -> dict[str, int]:
        """The number of copies of each function's body in the kernel once every call is inlined, by symbol."""
        return copies_when_inlined(self.functions)

    def _source_name(self, function: Function) -> str:
        for chain in function.chains_of(function.operation):
            written = self.sources.function_at(chain[0].file, chain[0].line)
            if written is not None:
                return written.name
        mangled = _MANGLED.match(function.symbol)
        return mangled[1] if mangled else function.symbol
