"""A module as selectors see it: its functions, their source, the connection of both, and calls of helpers.

Triton has inlined some helpers, which locations reveal; the others are inlined for Proton.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import PurePath

from msgspec import Struct

from kprof_inject.capture.scopes import Partition, ScopeKind
from kprof_inject.select.functions import Function, functions_of
from kprof_inject.select.markers import Marker, markers_in
from kprof_inject.select.python_source import SourceFunction, Sources
from kprof_inject.select.sites import Found, Missed
from kprof_inject.ttgir.dialect import CALL, FUNCTION
from kprof_inject.ttgir.locations import Chain, SourcePoint
from kprof_inject.ttgir.nodes import Module, Operation, Region
from kprof_inject.ttgir.strings import SYMBOL, symbol_name

_NOINLINE = re.compile(r"(\bnoinline = )true\b")


def has_helpers(module: Module) -> bool:
    """Return True if the module has more than one function."""
    return sum(operation.name == FUNCTION for operation in module.walk()) > 1


def lowerable(module: Module) -> str:
    """Return the module's text without ``noinline`` at its helpers, so that Triton inlines them before lowering.

    Proton only lowers modules of one function ("only one function per module is supported"). From 3.6 on, Triton's own
    lowering begins with an inliner; ``runtime.versions`` adds one to 3.5. A module without helpers is returned as is.
    """
    if not has_helpers(module):
        return module.text
    pieces: list[str] = []
    done = 0
    for function in (operation for operation in module.walk() if operation.name == FUNCTION):
        # The generic form has a function's attributes after its region.
        for start, length in (
            (module.text.index(function.tail.rstrip("\n"), function.start), len(function.tail)),
            (function.end - len(function.closing), len(function.closing)),
        ):
            pieces += [module.text[done:start], _NOINLINE.sub(r"\1false", module.text[start : start + length])]
            done = start + length
    pieces.append(module.text[done:])
    return "".join(pieces)


class InlinedCall(Struct, frozen=True):
    """A call of an inlined helper and the operations that it left."""

    name: str  # the helper's or, without its source, the first line left of it: ``file.py:57``
    source: SourcePoint  # the beginning of the helper, as far as known
    path: Chain  # from the call out to the kernel
    operations: tuple[Operation, ...]


def inlined_calls(function: Function, sources: Sources) -> Iterator[InlinedCall]:
    """Yield every inlined call in a function, nested ones too, in the order of their first operations."""
    calls: dict[tuple[Chain, SourceFunction | str], list[tuple[Operation, SourcePoint]]] = {}
    own = function.source_of(function.operation)[:1]
    for operation in function.operations:
        for chain in function.chains_of(operation):
            if own and chain:
                # Gluon's partitions have the kernel's own location as their call, except the default partition, which
                # has none. If the kernel's end is unknown, the whole file counts as part of it.
                outermost = sources.function_at(chain[-1].file, chain[-1].line)
                kernel = sources.function_at(own[0].file, own[0].line)
                if (outermost != kernel) if outermost else (chain[-1].file != own[0].file):
                    chain += own
            for depth in range(1, len(chain)):
                point = chain[depth - 1]
                called = chain[depth:], sources.function_at(point.file, point.line) or point.file
                calls.setdefault(called, []).append((operation, point))
    for (path, helper), found in calls.items():
        if isinstance(helper, SourceFunction):
            name, source = helper.name, SourcePoint(helper.file, helper.def_line, 0)
        else:
            source = min(point for _, point in found)
            name = f"{PurePath(source.file).name}:{source.line}"
        yield InlinedCall(name, source, path, tuple(dict.fromkeys(operation for operation, _ in found)))


_CALLEE = re.compile(rf"\s*@({SYMBOL})|.*?\bcallee = @({SYMBOL})", re.DOTALL)


def calls_in(function: Function) -> Iterator[Operation]:
    """Yield the calls that were not inlined."""
    return (operation for operation in function.operations if operation.name == CALL)


def callee_symbol(call: Operation) -> str:
    """Return the symbol of the function that a ``tt.call`` calls."""
    found = _CALLEE.match(call.tail)
    return symbol_name(found[1] or found[2]) if found else ""


def called_only_by(functions: Sequence[Function], operations: Iterable[Operation]) -> list[Function]:
    """Return the functions that nothing but these operations calls, directly or not."""
    inside = {one for top in operations for one in top.walk()}
    calls = [call for function in functions for call in calls_in(function)]
    calls_of = {function: [one for one in calls if callee_symbol(one) == function.symbol] for function in functions}
    found: list[Function] = []
    for _ in functions:  # a chain of calls is at most as long as the number of functions
        for function, its_calls in calls_of.items():
            if function not in found and its_calls and inside.issuperset(its_calls):
                found.append(function)
                inside.update(function.operations)
    return found


_DEFAULT = 0
_MAX_DIGITS = 10
_GENERIC_WARPS = re.compile(r"\bpartitionNumWarps = array<i32: (\d{1,9}(?:, \d{1,9})*)>")
_CLAUSE_WARPS = re.compile(r'\bnum_warps\((\d{1,9})\)[^"\n]*\{[ \t\r]*(?://[^\n]*)?\n')


class Partitions:
    """The partitions of a module: the default one first, the others in the order of the text.

    ``ttg.warp_specialize`` gives each of its regions to warps of its own; a module without it has no partitions. The
    default partition is the kernel's own warps. They run everything outside the partition regions, including the
    ``default`` regions; the warps of the other partitions wait from the kernel's start until their region is reached.
    """

    all: tuple[Partition, ...]
    functions: dict[int, str]  # function that each region was written as, by where the region starts; empty if unknown

    def __init__(self, module: Module, functions: Sequence[Function], sources: Sources) -> None:
        self.functions = {}
        self._regions: list[tuple[int, int]] = []
        self._callers: dict[str, frozenset[int]] = {}
        partitions: list[Partition] = []
        # The warps that run an operation also run its default region.
        defaults: set[str] = set()
        found = [(f, *one) for f in functions for one in f.warp_specializations()]
        is_numbered = sum(bool(regions) for *_, regions in found) > 1
        for operation_number, (function, operation, default_region, regions) in enumerate(found):
            generic = _GENERIC_WARPS.search(operation.tail)
            counts = [int(count) for count in generic[1].split(",")] if generic else []
            before = default_region.end
            defaults.add(self._written_as(default_region, function, sources))
            for number, region in enumerate(regions):
                start = region.blocks[0].start
                clause = list(_CLAUSE_WARPS.finditer(module.text, before, start))
                warps = counts[number] if number < len(counts) else int(clause[-1][1]) if clause else None
                suffix = f"#{operation_number}" if is_numbered else ""
                written_as = self._written_as(region, function, sources)
                partitions.append(Partition(f"partition {number}{suffix}", warps, written_as))
                self._regions.append((start, region.end))
                before = region.end
        if partitions:
            warps_text = module.attribute("ttg.num-warps")
            default_warps = int(warps_text) if warps_text.isdecimal() and len(warps_text) < _MAX_DIGITS else None
            default_function = defaults.pop() if len(defaults) == 1 else ""
            partitions.insert(_DEFAULT, Partition("default partition", default_warps, default_function))
            self._callers = {f.symbol: frozenset({_DEFAULT} if f.is_public else ()) for f in functions}
            calls = [(f.symbol, callee_symbol(call), call.start) for f in functions for call in calls_in(f)]
            for _ in functions:  # a chain of calls is at most as long as the number of functions
                for caller, callee, offset in calls:
                    if callee in self._callers:
                        self._callers[callee] |= self._around(caller, offset)
        self.all = tuple(partitions)

    def _written_as(self, region: Region, kernel: Function, sources: Sources) -> str:
        # A region that the compiler made has no function of its own: its operations were written in the kernel.
        own = [sources.function_at(point.file, point.line) for point in kernel.source_of(kernel.operation)]
        chains = {kernel.source_of(operation) for operation in region.walk() if not operation.traits.is_terminator}
        found: set[str] = set()
        for chain in filter(None, chains):
            outermost_first = (sources.function_at(point.file, point.line) for point in reversed(chain))
            called = next((candidate for candidate in outermost_first if candidate not in own), None)
            found.add(called.name if called else "")
        written_as = self.functions[region.blocks[0].start] = found.pop() if len(found) == 1 else ""
        return written_as

    def at(self, function: str, offset: int) -> int | None:
        """Return the index of the partition whose warps run the code at an offset of a function, if it is only one."""
        found = self._around(function, offset)
        return next(iter(found)) if len(found) == 1 else None

    def _around(self, function: str, offset: int) -> frozenset[int]:
        around = [index for index, (start, end) in enumerate(self._regions, 1) if start <= offset <= end]
        if around:
            return frozenset({around[-1]})  # of nested regions, the inner one begins later
        return self._callers.get(function, frozenset())


# Triton mangles a helper's name: its module, its own name, and after two underscores the types of its arguments.
_MANGLED = re.compile(r"(?:\w+\.)*(\w+?)__")


class ModuleView:
    """Everything that selectors need to know about a module; costly parts are computed on first use."""

    def __init__(self, module: Module, sources: Sources) -> None:
        self.module = module
        self.sources = sources
        self.functions = functions_of(module)
        # No record is allowed in what an operation calls, directly or not, that Triton lowers once per element.
        owners: dict[str, Operation] = {}
        calls = [(function, call) for function in self.functions for call in calls_in(function)]
        for _ in self.functions:  # a chain of calls is at most as long as the number of functions
            for function, call in calls:
                if owner := function.illegal_owner(call) or owners.get(function.symbol):
                    owners.setdefault(callee_symbol(call), owner)
        for function in self.functions:
            function.called_in = owners.get(function.symbol)
        launched = [function for function in self.functions if function.is_public] or self.functions
        self.kernel = launched[0].symbol if launched else ""

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
        if not found:  # looking at every location would not pay
            return ()
        points = {
            point
            for function in self.functions
            for operation in function.operation.walk()
            for chain in function.chains_of(operation)
            for point in chain
        }
        used = {self.sources.function_at(point.file, point.line) for point in points}
        return tuple(marker for marker in found if marker.function in used)

    @cached_property
    def helper_names(self) -> dict[str, str]:
        """The source name of each function that was not inlined, by its symbol."""
        names = {}
        for function in self.functions:
            places = (chain[0] for chain in function.chains_of(function.operation))
            written = next(filter(None, (self.sources.function_at(one.file, one.line) for one in places)), None)
            mangled = _MANGLED.match(function.symbol)
            names[function.symbol] = written.name if written else mangled[1] if mangled else function.symbol
        return names

    @cached_property
    def kept_calls(self) -> tuple[tuple[str, Found], ...]:
        """The calls of helpers that were not inlined: the helper's name in the source, and the site around the call."""
        found = []
        for function in self.functions if len(self.functions) > 1 else ():
            for call in calls_in(function):
                if (name := self.helper_names.get(callee_symbol(call))) is None:
                    continue
                if refusal := function.refusal(call):
                    found.append((name, Found(missed=(Missed(call, refusal),))))
                    continue
                site = function.operation_site(call)
                label = f"{name}@{site.source.line}" if site.source else name
                site = replace(site, kind=ScopeKind.FUNCTION, label=label)
                found.append((name, Found((site,), covered=frozenset({call.start}))))
        return tuple(found)

    @cached_property
    def partitions(self) -> Partitions:
        """The kernel's partitions."""
        return Partitions(self.module, self.functions, self.sources)

    @cached_property
    def copies_of_functions(self) -> dict[str, int]:
        """The number of copies of each function's body in the kernel once every call is inlined, by symbol."""
        if len(self.functions) == 1:
            return {self.functions[0].symbol: 1}
        callees = {function.symbol: Counter(map(callee_symbol, calls_in(function))) for function in self.functions}
        copies = {function.symbol: int(function.is_public) for function in self.functions}
        reached = dict(copies)
        for _ in self.functions:  # a chain of calls is at most as long as the number of functions
            calls: Counter[str] = Counter()
            for symbol, count in reached.items():
                for callee, number in callees[symbol].items():
                    if callee in copies:
                        calls[callee] += count * number
            copies = {symbol: count + calls[symbol] for symbol, count in copies.items()}
            reached = dict(calls)
        return copies
