"""A function of a module, the operations in it that do work, and the sites in it.

A scope around source lines is meant for operations that do work, not for those that compute addresses. For integer
arithmetic, the origin and the uses of its values decide.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from msgspec import Struct

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.errors import KprofError
from kprof_inject.select.sites import Found, InsertPoint, Missed, Site
from kprof_inject.ttgir.dialect import FUNCTION, PARTITIONS, WARP_SPECIALIZE
from kprof_inject.ttgir.locations import Chain, LocationTable
from kprof_inject.ttgir.nodes import Module, Operation, Region
from kprof_inject.ttgir.polling import polling_loops, polls
from kprof_inject.ttgir.ssa_values import ValueGraph, reached, without_strings
from kprof_inject.ttgir.strings import STRING, SYMBOL, symbol_name, unquote

_SIGNATURE = re.compile(rf"\s*(?:(?:public|private|nested)\s+)?@({SYMBOL})")
_PRIVATE = re.compile(r'\A\s*private\s|\bsym_visibility = "private"')
_SYMBOL_NAME = re.compile(rf"sym_name = ({STRING})")
_FLOAT_TENSOR = re.compile(r"tensor<[^<>,]*x(?:bf|tf|f)[0-9]")


def is_anchor(operation: Operation) -> bool:
    """Return whether the operation has a region or an effect, moves data, or computes with tensors of floats.

    For integers, their purpose decides (see ``integer_work``).
    """
    if operation.regions:
        return True
    traits = operation.traits
    if traits.is_indexing or traits.is_terminator or traits.is_constant:
        return False
    if traits.is_allocation:
        return "%" in operation.tail
    return not traits.is_arithmetic or _FLOAT_TENSOR.search(operation.tail) is not None


_INTEGER_TENSOR = re.compile(r"tensor<[^<>,]*xi[0-9]")


def _is_integer_arithmetic(operation: Operation) -> bool:
    return (
        operation.traits.computes_integers
        and not operation.traits.is_constant
        and _INTEGER_TENSOR.search(operation.tail) is not None
        and not is_anchor(operation)
    )


def integer_work(module: Module, function: Operation) -> frozenset[int]:
    """Return the offsets of a function's integer arithmetic that depends on data and that no address or mask uses.

    Data is every tensor that other work produces (a load, an atomic, a reduction, arithmetic on floats) and the
    operands of random numbers. A loaded scalar is not: it usually is a length or an offset.
    """
    graph = ValueGraph(module, function)
    from_data = reached(_data(graph), graph.uses)
    addresses = (value for leaf in graph.leaves if leaf.operation.traits.takes_addresses for value in leaf.addresses)
    for_addresses = reached(addresses, graph.operands)
    return frozenset(
        leaf.operation.start
        for leaf in graph.leaves
        if leaf.node in from_data and leaf.node not in for_addresses and _is_integer_arithmetic(leaf.operation)
    )


def _data(graph: ValueGraph) -> Iterator[int]:
    for leaf in graph.leaves:
        one = leaf.operation
        if one.traits.is_random:
            gives_data = _is_integer_arithmetic(one)
        else:
            gives_data = not one.traits.is_move and is_anchor(one) and _gives_tensor(without_strings(one.tail))
        if gives_data:
            yield leaf.node
    for operation, results in graph.results:
        if operation.traits.combines_elements and _gives_tensor(operation.closing):
            yield from results


def _gives_tensor(types: str) -> bool:
    return "tensor<" in types.rpartition("->")[2]


def block_kind(operation: Operation) -> str:
    """Return the kind of block that holds an operation: ``body`` of a loop, ``branch``, ``partition``, ``function``."""
    owner = next(operation.owners(), None)
    return owner.traits.regions or "branch" if owner else "function"


class Loop(Struct, frozen=True):
    """A loop; ``path`` has its index in each loop around it, outermost first: ``(0, 2)`` is the third in the first."""

    operation: Operation
    path: tuple[int, ...]
    polls: bool = False  # true if it does nothing but wait until memory changes

    @property
    def subscript(self) -> str:
        """The loop's index in selectors: ``[0.2]``."""
        return f"[{'.'.join(map(str, self.path))}]"


def symbol_of(function: Operation) -> str:
    """Return a function's name, from its printed or its generic form; empty if it has none."""
    if found := _SIGNATURE.match(function.tail):
        return symbol_name(found[1])
    found = _SYMBOL_NAME.search(function.tail)
    return unquote(found[1]) if found else ""


class Function:
    """A ``tt.func`` with a body. ``symbol`` is its name in the IR; without one, ``KprofError`` is raised."""

    called_in: Operation | None = None
    """An operation that Triton lowers once per element and that calls the function: no record is allowed in it."""

    def __init__(self, module: Module, operation: Operation, locations: LocationTable) -> None:
        self.symbol = symbol_of(operation)
        if not self.symbol:
            hint = "give a .ttgir file as Triton writes it (see 'kprof-inject dump')"
            raise KprofError("this tt.func has no name", where=module.position(operation.start), hint=hint)
        self.is_public = _PRIVATE.search(operation.tail) is None
        self.operation = operation
        self._module = module
        self.chains_of = locations.chains_of

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """The operations of the body, nested ones too, in the order of the text."""
        return tuple(self.operation.walk())[1:]

    def illegal_owner(self, operation: Operation) -> Operation | None:
        """Return the outermost operation that prevents records here because Triton lowers it once per element."""
        owners = (owner for owner in reversed([*operation.owners()]) if not owner.traits.regions)
        return self.called_in or next(owners, None)

    def refusal(self, operation: Operation) -> str:
        """Return why no record is allowed around this operation; empty if one is."""
        if owner := self.illegal_owner(operation):
            return f"inside {owner.name}, which Triton lowers once per element"
        return "the end of its block" if operation.traits.is_terminator else ""

    def does_work(self, operation: Operation) -> bool:
        """Return whether a scope around source lines is meant for this operation (see ``is_anchor``)."""
        return is_anchor(operation) or (_is_integer_arithmetic(operation) and operation.start in self._integer_work)

    @cached_property
    def _integer_work(self) -> frozenset[int]:
        return integer_work(self._module, self.operation)

    def source_of(self, operation: Operation) -> Chain:
        """Return the line that the operation was written on, then the calls, if known."""
        return next(iter(self.chains_of(operation)), ())

    def findings(self, sites: Sequence[Site], missed: Sequence[Missed] = ()) -> Found:
        """Return sites around structures, which cover all operations inside them."""
        covered = {one.start for site in sites for one in self._between(site.start.offset, site.last_end_offset)}
        return Found(tuple(sites), tuple(missed), frozenset(covered))

    def _between(self, start: int, end: int) -> tuple[Operation, ...]:
        begin, past = (bisect_left(self.operations, offset, key=lambda one: one.start) for offset in (start, end))
        return self.operations[begin:past]

    def before(self, operation: Operation) -> InsertPoint:
        """Return the point before an operation."""
        return self._point(operation.start, self._module.indent_at(operation.start))

    def after(self, operation: Operation) -> InsertPoint:
        """Return the point after an operation."""
        return self._point(operation.end, self._module.indent_at(operation.start))

    def _point(self, offset: int, indent: str) -> InsertPoint:
        # Above its line, or within the line if other text precedes it.
        text, line = self._module.text, self._module.line_start(offset)
        if not text[line:offset].strip():
            return InsertPoint(line, indent, self._module.newline)
        return InsertPoint(offset, "", " ") if text[offset - 1].isspace() else InsertPoint(offset, " ", "")

    def body_site(self) -> Site:
        """Return the site of the whole body: from its first operation to each of its returns."""
        return self.region_site(ScopeKind.FUNCTION, "func", self.operation, self.operation.regions[0], "function")

    def loop_site(self, loop: Loop) -> Site:
        """Return the site around a loop: from its entry to its exit."""
        kind, word = (ScopeKind.SPIN, "spin") if loop.polls else (ScopeKind.LOOP, "loop")
        return self._around(kind, f"{word}{loop.subscript}", loop.operation)

    def iteration_site(self, loop: Loop) -> Site:
        """Return the site of each iteration: the body of ``scf.for``, the ``do`` region of ``scf.while``.

        The start of the next iteration ends it, unless a ``scf.while``'s condition does work in between.
        """
        operation, (*conditions, body) = loop.operation, loop.operation.regions
        site = self.region_site(ScopeKind.ITERATION, f"iter{loop.subscript}", operation, body, "body")
        if any(self.does_work(inside) for region in conditions for inside in region.walk()):
            return site
        between = conditions[0].blocks[0].start if conditions else body.blocks[0].start, body.blocks[0].start
        return replace(site, exit=self.after(operation), between=between)

    def operation_site(self, operation: Operation) -> Site:
        """Return the site around one operation."""
        kind = ScopeKind.SPIN if polls(operation) else ScopeKind.OPERATION
        return self._around(kind, operation.name, operation)

    def _around(self, kind: str, label: str, operation: Operation) -> Site:
        chain, block = self.source_of(operation), block_kind(operation)
        return self.site(kind, label, self.before(operation), (self.after(operation),), chain, block)

    def region_site(self, kind: str, label: str, operation: Operation, region: Region, block: str) -> Site:
        """Return the site of a region of ``operation``: from its entry to each operation that leaves it."""
        module = self._module
        last_ones = (block.operations[-1] for block in region.blocks if block.operations)
        leaving = [last for last in last_ones if last.traits.leaves_region]
        entry = region.blocks[0]
        if leaving:
            ends = tuple(self.before(last) for last in leaving)
        elif region is operation.regions[-1] and operation.traits.is_loop:  # the printer omits a yield without values
            last = entry.operations[-1] if entry.operations else None
            indent = module.indent_at(last.start) if last else module.indent_at(region.end) + "  "
            ends = (self._point(region.end, indent),)
        else:
            what = f"{label} of {self.symbol} never exits, so it has no end to record"
            hint = "select a loop in it instead: --at loop"
            raise KprofError(what, where=module.position(operation.start), hint=hint)
        indent = module.indent_at(entry.operations[0].start) if entry.operations else ends[0].indent
        start = self._point(entry.start, indent)
        return self.site(kind, label, start, ends, self.source_of(operation), block, fills_block=True)

    @cached_property
    def _nests(self) -> tuple[Operation, ...]:
        # The operations with regions are few, and enough to find loops.
        return tuple(operation for operation in self.operations if operation.regions)

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Loops in the order of the text, including those where no record is allowed."""
        polling = polling_loops(self._module, self.operation)
        paths: dict[Operation | None, tuple[int, ...]] = {None: ()}
        inside: Counter[Operation | None] = Counter()
        for operation in self._nests:
            if operation.traits.is_loop:
                outer = operation.loop
                paths[operation] = (*paths[outer], inside[outer])
                inside[outer] += 1
        return tuple(Loop(operation, path, operation in polling) for operation, path in paths.items() if operation)

    def warp_specializations(self) -> Iterator[tuple[Operation, Region, tuple[Region, ...]]]:
        """Yield each ``ttg.warp_specialize``, with its default region and those of its partitions."""
        for operation in self._nests:
            if operation.name != WARP_SPECIALIZE:
                continue
            default, *partitions = operation.regions
            holder = partitions[0].blocks[0].operations[:1] if partitions else ()
            if holder and holder[0].name == PARTITIONS:
                partitions = list(holder[0].regions)
            yield operation, default, tuple(partitions)

    def partitions(self) -> Iterator[tuple[str, Operation, Region]]:
        """Yield the regions of each ``ttg.warp_specialize``: the selector's word, the operation, the region."""
        for operation, default, partitions in self.warp_specializations():
            if owner := self.illegal_owner(operation):
                what = f"no record is allowed inside {owner.name}: Triton lowers its region once per element"
                hint = "select the loop or the function around it"
                raise KprofError(what, where=self._module.position(owner.start), hint=hint)
            yield "default", operation, default
            for number, region in enumerate(partitions):
                yield f"partition[{number}]", operation, region

    def partition_of(self, operation: Operation) -> str:
        """Return the selector's word for the ``ttg.warp_specialize`` region that holds an operation; empty outside."""
        labels = {region: label for label, _, region in self.partitions()}
        blocks = (around.block for around in (operation, *operation.owners()))
        return next((labels[block.region] for block in blocks if block and block.region in labels), "")

    def site(
        self,
        kind: str,
        label: str,
        start: InsertPoint,
        ends: tuple[InsertPoint, ...],
        chain: Chain,
        block: str,
        *,
        own: int | None = None,
        fills_block: bool = False,
    ) -> Site:
        """Return the site from ``start`` to ``ends``, whose code comes from ``chain``.

        ``own`` is the number of operations there that the selector meant, by default all of them.
        """
        count = len(self._between(start.offset, max(end.offset for end in ends)))
        operations = count if own is None else own
        return Site(
            kind=kind,
            label=label,
            function=self.symbol,
            start=start,
            ends=ends,
            fills_block=fills_block,
            source=chain[0] if chain else None,
            called_from=chain[1:],
            block=block,
            operations=operations,
            other_operations=count - operations,
        )


def functions_of(module: Module) -> tuple[Function, ...]:
    """Return the module's functions that have a body, in the order of the text."""
    locations = LocationTable(module)
    found = (operation for operation in module.walk() if operation.name == FUNCTION and operation.regions)
    return tuple(Function(module, operation, locations) for operation in found)
