"""Calls of helper functions.

Triton has inlined some, which locations reveal; the others are inlined for Proton.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from msgspec import Struct

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.select.functions import Function
from kprof_inject.select.python_source import SourceFunction, Sources
from kprof_inject.select.sites import Found, Missed
from kprof_inject.ttgir.dialect import CALL, FUNCTION
from kprof_inject.ttgir.locations import Chain, SourcePoint
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.strings import SYMBOL, symbol_name

_NOINLINE = re.compile(r"(\bnoinline = )true\b")


def has_helpers(module: Module) -> bool:
    """Return whether the module has more than one function."""
    return sum(operation.name == FUNCTION for operation in module.walk()) > 1


def lowerable(module: Module) -> str:
    """Return the module's text without ``noinline`` at its helpers, so that Triton inlines them before lowering.

    Proton only lowers modules of one function ("only one function per module is supported"). From 3.6 on, Triton's own
    lowering begins with an inliner; ``runtime.versions`` adds one to 3.5. A module without helpers is returned as is.
    """
    if not has_helpers(module):
        return module.text
    functions = [operation for operation in module.walk() if operation.name == FUNCTION]
    pieces: list[str] = []
    done = 0
    for function in functions:
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
    """A call of an inlined helper and the operations that it left.

    ``name`` is the helper's or, without its source, ``file.py:57``, the first line left of it. ``path`` leads from the
    call out to the kernel. ``source`` is the beginning of the helper, as far as known.
    """

    name: str
    source: SourcePoint
    path: Chain
    operations: tuple[Operation, ...]


def inlined_calls(function: Function, sources: Sources) -> Iterator[InlinedCall]:
    """Yield every inlined call in a function, nested ones too, in the order of their first operations.

    Gluon's partitions have the kernel's own location as their call, except the default partition, which has none.
    """
    operations: dict[tuple[Chain, SourceFunction | str], dict[Operation, None]] = {}
    written: dict[tuple[Chain, SourceFunction | str], set[SourcePoint]] = {}
    own = function.source_of(function.operation)[:1]
    for operation in function.operations:
        for chain in function.chains_of(operation):
            if own and chain and not _is_in_function(chain[-1], own[0], sources):
                chain += own
            for depth in range(1, len(chain)):
                point = chain[depth - 1]
                called = chain[depth:], sources.function_at(point.file, point.line) or point.file
                operations.setdefault(called, {})[operation] = None
                written.setdefault(called, set()).add(point)
    for (path, function_or_file), found in operations.items():
        name, source = _helper(written[path, function_or_file], sources)
        yield InlinedCall(name, source, path, tuple(found))


def _is_in_function(point: SourcePoint, start: SourcePoint, sources: Sources) -> bool:
    """Return whether a position is in the function that begins at ``start``, or else in its file, as far as known."""
    found = sources.function_at(point.file, point.line)
    return found == sources.function_at(start.file, start.line) if found else point.file == start.file


def _helper(written: set[SourcePoint], sources: Sources) -> tuple[str, SourcePoint]:
    points = sorted(written, key=lambda point: (point.file, point.line, point.column))
    for point in points:
        helper = sources.function_at(point.file, point.line)
        if helper is not None:
            return helper.name, SourcePoint(helper.file, helper.def_line, 0)
    return f"{PurePath(points[0].file).name}:{points[0].line}", points[0]


_CALLEE = re.compile(rf"\s*@({SYMBOL})|.*?\bcallee = @({SYMBOL})", re.DOTALL)


class KeptCall(Struct, frozen=True):
    """A ``tt.call`` in ``function``; ``name`` is the helper's name in the source."""

    name: str
    function: Function
    operation: Operation

    def findings(self) -> Found:
        """Return the site around the call, labelled with its line."""
        if refusal := self.function.refusal(self.operation):
            return Found(missed=(Missed(self.operation, refusal),))
        site = self.function.operation_site(self.operation)
        label = f"{self.name}@{site.source.line}" if site.source else self.name
        return Found(
            (replace(site, kind=ScopeKind.FUNCTION, label=label),),
            covered=frozenset({self.operation.start}),
        )


def calls_in(function: Function) -> Iterator[Operation]:
    """Yield the calls that were not inlined."""
    return (operation for operation in function.operations if operation.name == CALL)


def callee_symbol(call: Operation) -> str:
    """Return the symbol of the function that a ``tt.call`` calls."""
    found = _CALLEE.match(call.tail)
    return symbol_name(found[1] or found[2]) if found else ""


def with_callers(functions: Sequence[Function]) -> tuple[Function, ...]:
    """Return the functions, with the caller that forbids records in each, if any.

    That is an operation that Triton lowers once per element and that calls the function, directly or not.
    """
    if len(functions) == 1:
        return tuple(functions)
    owners: dict[str, Operation] = {}
    before = -1
    while before < len(owners):
        before = len(owners)
        for function in functions:
            for call in calls_in(function):
                owner = function.illegal_owner(call) or owners.get(function.symbol)
                if owner is not None:
                    owners.setdefault(callee_symbol(call), owner)
    return tuple(f.called_in(owners[f.symbol]) if f.symbol in owners else f for f in functions)


def copies_when_inlined(functions: Sequence[Function]) -> dict[str, int]:
    """Return the number of copies of each function's body in the kernel once every call is inlined, by symbol."""
    if len(functions) == 1:
        return {functions[0].symbol: 1}
    callees = {function.symbol: Counter(map(callee_symbol, calls_in(function))) for function in functions}
    copies = {function.symbol: int(function.is_public) for function in functions}
    reached = dict(copies)
    for _ in functions:  # a chain of calls is at most as long as the number of functions
        calls: Counter[str] = Counter()
        for symbol, count in reached.items():
            for callee, number in callees[symbol].items():
                if callee in copies:
                    calls[callee] += count * number
        copies = {symbol: count + calls[symbol] for symbol, count in copies.items()}
        reached = dict(calls)
    return copies


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
