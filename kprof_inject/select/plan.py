"""The plan: all records to insert into a module, each with its place and its name."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from math import prod
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.capture.encoding import encode
from kprof_inject.capture.schema import SCOPE_IDS
from kprof_inject.capture.scopes import PointRecord, Scope, ScopeKind, ScopeTable, TagRecord
from kprof_inject.errors import KprofError
from kprof_inject.select.functions import Function
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.selectors import Selector, parse_selector
from kprof_inject.select.sites import Found, InsertPoint, Site
from kprof_inject.select.spans import SPREADS, USUAL_STYLE, Spread, Style
from kprof_inject.select.tags import OPTION, WIDE, PlacedTag, Tag, backend_of, merge_tags, scalar_of
from kprof_inject.select.targets import SitePattern, find_loops
from kprof_inject.ttgir.dialect import EVENT, RECORD, RECORDS
from kprof_inject.ttgir.loops import iterations_of_loops
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.strings import quote

_MARKERS = (parse_selector("marker"),)
_SPINS = (parse_selector("spin"),)
# Each round of a loop that polls would be a record, and change how often it polls.
_ITERATIONS = replace(parse_selector("iter"), target=SitePattern(find_loops, (Function.iteration_site, None, False)))
_STRUCTURE = (parse_selector("func"), parse_selector("loop"), _ITERATIONS)


BODY_RECORD = "kernel body"
"""Name of the record around the kernel's whole body if no scope is there: the clock fit needs it."""


class Record(Struct, frozen=True):
    """A record to insert, after the operations that compute its value if it is the start of a tag."""

    point: InsertPoint
    is_start: bool
    name: str
    before: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The record's line, after those of the operations before it; without the last line end."""
        own = f"{RECORD} {'start' if self.is_start else 'end'} {quote(self.name)}"
        return self.point.after.join(f"{self.point.indent}{operation}" for operation in (*self.before, own))


class Selection(Struct, frozen=True):
    """Everything that a selector found; a site that two find belongs to the first that names it, else to the first."""

    selector: Selector
    findings: Found


class Plan(Struct, frozen=True):
    """The insertions into a module."""

    table: ScopeTable  # the scopes, outermost first, and in the order of the text
    sites: tuple[Site, ...]  # the site of each scope
    records: tuple[Record, ...]  # in the order of insertion
    selections: tuple[Selection, ...]  # in the order of the selectors
    inlined: tuple[str, ...] = ()  # the helpers that this module calls, inlined when it runs with records

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes of the table."""
        return self.table.scopes


def make_plan(view: ModuleView, selectors: Sequence[Selector], style: Style = USUAL_STYLE) -> Plan:
    """Find every selector's sites in the module and lay out the records; without selectors, the default ones.

    The kernel's body is recorded in any case. The plan has no scopes if nothing matched: whether that is an error
    depends on the other modules. Raises ``KprofError`` if the module or a site cannot take records, or if they
    need more than 256 scope IDs.
    """
    spread = SPREADS[style.split]
    if selectors:
        selections = _select(view, selectors, spread)
    else:
        marked = _select(view, _MARKERS, spread) if view.markers else ()
        spins = (found for found in _select(view, _SPINS, spread) if found.findings != Found())
        # Without a marker, or if no code is left of any.
        structure = () if any(selection.findings.sites for selection in marked) else _select(view, _STRUCTURE, spread)
        selections = (*marked, *spins, *structure)
    chosen = _choose(selections)
    starts = sorted(choice.site.start.offset for choice in chosen)
    found = []
    for choice in chosen:
        first, last = choice.site.between
        others_begin = bisect_left(starts, first) < bisect_left(starts, last)
        if style.iteration_records == "two" or others_begin:
            choice = replace(choice, site=dataclasses.replace(choice.site, exit=None))
        found.append(choice)
    if found:
        _check_no_records(view.module)
    ids = _scope_ids(view, found)
    scopes, brackets = _nest(found, view)
    body = _unselected_body(view, brackets, SCOPE_IDS - ids)
    body_record = body.record if body else ""
    table = ScopeTable(kernel=view.kernel, partitions=view.partitions.all, scopes=scopes, body_record=body_record)
    helpers = (view.helper_names[function.symbol] for function in view.functions if not function.is_public)
    backend = backend_of(view) if any(bracket.tags for bracket in brackets) else ""
    records = _records([*([body] if body else []), *brackets], backend)
    sites = tuple(bracket.site for bracket in brackets)
    return Plan(table, sites, tuple(records), selections, tuple(helpers) if scopes else ())


def _select(view: ModuleView, selectors: Sequence[Selector], spread: Spread) -> tuple[Selection, ...]:
    matching = (selector for selector in selectors if selector.matches_kernel(view.kernel))
    return tuple(Selection(selector, selector.target.find(view, spread)) for selector in matching)


class _Chosen(Struct, frozen=True):
    site: Site
    selector: Selector
    tags: tuple[Tag, ...] = ()

    @property
    def name(self) -> str:
        return self.selector.name or self.site.name or self.site.label


def _choose(selections: Sequence[Selection]) -> list[_Chosen]:
    found: dict[Site, _Chosen] = {}
    for selection in selections:
        selector = selection.selector
        for site in selection.findings.sites:
            before = found.get(site)
            is_named = bool(selector.name or site.name)
            if before is None or (is_named and not any((before.site.name, before.selector.name))):
                found[site] = _Chosen(site, selector, before.tags if before else ())
            found[site] = replace(found[site], tags=merge_tags(found[site].tags, selector.tags))
    return list(found.values())


def _check_no_records(module: Module) -> None:
    # Our records would pair with the module's, and share the IDs of its events.
    names = (EVENT, *RECORDS)
    # Most modules have none: their text shows that in less time than their operations.
    operations = module.walk() if any(name in module.text for name in names) else ()
    found = next((operation for operation in operations if operation.name in names), None)
    if found is not None:
        what, hint = f"this file already has records ({found.name})", "remove it from the kernel"
        if found.name == RECORD:
            what, hint = "this file already has records", "remove them first: kprof-inject strip FILE -o CLEAN"
        raise KprofError(what, where=module.position(found.start), hint=hint)


def _scope_ids(view: ModuleView, found: Sequence[_Chosen]) -> int:
    shares: Counter[str] = Counter()
    for choice in found:
        shares[choice.selector.text] += _ids_needed(view, choice.site, len(choice.tags))
    if shares.total() > SCOPE_IDS:
        needed = ", ".join(f"{text}: {count}" for text, count in shares.most_common())
        what = f"they need {shares.total()} scope IDs, but there are only {SCOPE_IDS} ({needed})"
        less = "name the lines or operations that matter (see 'kprof-inject list')"
        if any(function.loops for function in view.functions):
            less = "name the loops or lines that matter, such as --at 'loop[0]'"
        where = view.module.position_of_word(min(choice.site.start.offset for choice in found))
        raise KprofError(f"too many scopes in {view.kernel}: {what}", where=where, hint=f"select less: {less}")
    return shares.total()


def _ids_needed(view: ModuleView, site: Site, tags: int = 0) -> int:
    # One for each end in another block and each tag, in each copy of a helper.
    return (len(site.end_records) + tags) * view.copies_of_functions[site.function]


class _Bracket(Struct, frozen=True):
    record: str
    site: Site
    tags: tuple[PlacedTag, ...] = ()


def _unselected_body(view: ModuleView, scopes: Sequence[_Bracket], free_ids: int) -> _Bracket | None:
    kernel = next((function for function in view.functions if function.is_public), None)
    is_selected = any(scope.site.fills_block and scope.site.block == "function" for scope in scopes)
    if not scopes or is_selected or kernel is None:
        return None
    try:
        site = kernel.body_site()
    except KprofError:  # the body has no end
        return None
    if _ids_needed(view, site) > free_ids:
        return None
    taken = {scope.record for scope in scopes}
    names = (BODY_RECORD, *(f"{BODY_RECORD}#{number}" for number in range(len(taken))))
    return _Bracket(next(name for name in names if name not in taken), site)


def _nest(found: Sequence[_Chosen], view: ModuleView) -> tuple[tuple[Scope, ...], list[_Bracket]]:
    # Outer sites come before inner ones; at one offset, a block's own site comes first, then instants, then others.
    def order(choice: _Chosen) -> tuple[int, bool, bool, int]:
        site = choice.site
        return site.start.offset, not site.fills_block, site.kind != ScopeKind.INSTANT, -site.last_end_offset

    ordered = sorted(found, key=order)
    sites = [choice.site for choice in ordered]
    partitions = [view.partitions.at(site.function, site.start.offset) for site in sites]
    parents, crossed = _relations(sites, partitions)
    first_lines = view.module.line_numbers([site.start.offset for site in sites])
    last_lines = view.module.line_numbers([site.last_end_offset - 1 for site in sites])
    totals = Counter(choice.name for choice in ordered)
    numbers: Counter[str] = Counter()
    taken: set[str] = set()
    scopes: list[Scope] = []
    brackets: list[_Bracket] = []
    for index, choice in enumerate(ordered):
        site, name = choice.site, choice.name
        record = name
        while record in taken or (record == name and totals[name] > 1):
            record = f"{name}#{numbers[name]}"
            numbers[name] += 1
        taken.add(record)
        tags = []
        for tag in choice.tags:
            named = f"{record} {OPTION} {tag.name}"
            taken.add(named)
            tags.append(PlacedTag(tag.name, named, scalar_of(tag, view, site)))
        brackets.append(_Bracket(record, site, tuple(tags)))
        scope = Scope(
            record=record,
            name=name,
            kind=site.kind,
            label=site.label,
            selector=choice.selector.text,
            function=site.function,
            place=PointRecord(*site.source) if site.source else None,
            calls=tuple(PointRecord(*point) for point in site.called_from),
            parent=parents[index],
            partition=partitions[index],
            crosses=tuple(crossed[index]),
            block=site.block,
            operations=site.operations,
            other_operations=site.other_operations,
            lines=(first_lines[index], max(first_lines[index], last_lines[index])),
            ended_by_next=site.exit is not None,
            tags=tuple(TagRecord(tag.name, tag.record, tag.value.name, tag.value.type == WIDE) for tag in tags),
        )
        scopes.append(scope)
    return tuple(scopes), brackets


def _relations(sites: Sequence[Site], partitions: Sequence[int | None]) -> tuple[list[int], list[list[int]]]:
    """Return for each site the innermost one around it, or -1, and those that it crosses; all by their indices.

    The sites are in order. The innermost one around a site is the last of its partition that ends no earlier. A scope
    that ends where the site begins is over, unless it spans the whole block. Other warps run the code around a
    partition's region. Of two that cross, one begins in the other and ends after it.
    """
    parents: list[int] = []
    crossed: list[list[int]] = [[] for _ in sites]
    ends = [site.last_end_offset for site in sites]
    around: list[int] = []
    for index, (site, end) in enumerate(zip(sites, ends, strict=True)):
        start = site.start.offset
        around = [one for one in around if start < ends[one] or (start == ends[one] and sites[one].fills_block)]
        inside = (one for one in reversed(around) if partitions[one] == partitions[index] and end <= ends[one])
        parents.append(next(inside, -1))
        for one in around:
            if sites[one].start.offset < start < ends[one] < end:
                crossed[one].append(index)
                crossed[index].append(one)
        around.append(index)
    return parents, crossed


def _records(brackets: Sequence[_Bracket], backend: str) -> Iterator[Record]:
    """Yield the records in the order of insertion.

    At one offset, inner ends come before outer ones, then starts, outer before inner, then the end of the block's own
    scope. ``brackets`` go from the outermost to the innermost. The records of a scope's tags come right before its
    start. An empty scope (an instant, a loop with an empty body) ends right after its start.
    """
    placed: list[tuple[tuple[int, int, int, int], Record]] = []
    carriers = count()
    for order, bracket in enumerate(brackets):
        site = bracket.site
        start = site.start.offset, 1, order, 0
        for tag in bracket.tags:
            for is_start, before in zip((True, False), tag.lines(next(carriers), backend), strict=True):
                placed.append((start, Record(site.start, is_start, tag.record, before)))
        placed.append((start, Record(site.start, True, bracket.record)))
        for end in site.end_records:
            if end.offset == site.start.offset:
                key = end.offset, 1, order, 1
            else:
                key = end.offset, 2 if site.fills_block and end is not site.exit else 0, -order, 0
            placed.append((key, Record(end, False, bracket.record)))
    return (record for _, record in sorted(placed, key=lambda item: item[0]))


def max_records(view: ModuleView, plan: Plan) -> int | None:
    """Return the maximum number of records that a warp writes in one launch, as far as the module's text shows it.

    None if a loop has no constant bounds, if the module calls a helper, or if it branches between blocks, perhaps
    backwards. Only one of a scope's ends is passed each time.
    """
    operations = list(view.module.walk())
    if len(view.functions) > 1 or any(operation.traits.is_branch for operation in operations):
        return None
    times = [(loop.start, loop.end, iterations) for loop, iterations in iterations_of_loops(operations).items()]
    total = 0
    # The first end of each scope counts.
    for record in {(one.name, one.is_start): one for one in reversed(plan.records)}.values():
        around = [iterations for start, end, iterations in times if start < record.point.offset < end]
        if None in around:
            return None
        total += prod(iterations or 0 for iterations in around)
    return total


def table_json(table: ScopeTable) -> dict[str, Any]:
    """Return a plan's scope table as JSON values (``docs/file-formats.md``), without rare keys that have no value."""
    values: dict[str, Any] = msgspec.json.decode(encode(table))
    if table.relaunch is None:  # of a plan without its kernel
        del values["relaunch"], values["most_records"]
    if not table.body_record:
        del values["body_record"]
    if not table.partitions:
        del values["partitions"]
    for scope in values["scopes"]:
        if not table.partitions:
            del scope["partition"]
        for key in ("ended_by_next", "tags"):
            if not scope[key]:
                del scope[key]
    return values
