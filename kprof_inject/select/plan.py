"""The plan: all records to insert into a module, each with its place and its name."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from msgspec import structs

from kprof_inject.capture.schema import SCOPE_IDS, SCOPE_TABLE_VERSION, Partition
from kprof_inject.errors import KprofError
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.selectors import Selector, parse_selector
from kprof_inject.select.sites import Found, InsertPoint, Site
from kprof_inject.select.spans import Spread
from kprof_inject.select.style import USUAL_STYLE, Style, two_records
from kprof_inject.select.tags import OPTION, PlacedTag, Tag, backend_of, merge_tags, scalar_of
from kprof_inject.ttgir.dialect import EVENT, RECORD, RECORDS
from kprof_inject.ttgir.locations import SourcePoint
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.strings import quote

_MARKERS = (parse_selector("marker"),)
_STRUCTURE = tuple(map(parse_selector, ("func", "loop", "iter")))


BODY_RECORD = "kernel body"
"""Name of the record around the kernel's whole body if no scope is there: the clock fit needs it."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope of the plan."""

    record: str
    """The name in the IR, unique in the module."""

    name: str
    """The name that the user sees."""

    selector: str
    site: Site
    partition: int | None
    """The index in ``Plan.partitions`` of the partition that runs it.

    None if the module has no partitions, or if several partitions call its helper.
    """

    parent: int
    """The index in ``Plan.scopes`` of the innermost scope of its partition around it, or -1."""

    lines: tuple[int, int]
    """The first and the last line of the module that it covers, from 1; for an instant, the line after it."""

    tags: tuple[PlacedTag, ...] = ()
    """The values that are recorded right before its start, in this order."""

    crosses: tuple[int, ...] = ()
    """The indices of the scopes that begin in this one and end after it, or the other way round."""


@dataclass(frozen=True, slots=True)
class Record:
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


@dataclass(frozen=True, slots=True)
class Selection:
    """Everything that a selector found in the module.

    A site that two selectors find belongs to the first that names it, else to the first.
    """

    selector: Selector
    findings: Found


@dataclass(frozen=True, slots=True)
class Plan:
    """The insertions into a module."""

    kernel: str
    scopes: tuple[Scope, ...]
    """The scopes, outermost first, and in the order of the text."""

    records: tuple[Record, ...]
    """The records in the order of insertion."""

    selections: tuple[Selection, ...]
    """The selections in the order of the selectors."""

    inlined: tuple[str, ...] = ()
    """The helpers that this module calls; they are inlined when it runs with records."""

    partitions: tuple[Partition, ...] = ()
    """The kernel's partitions; none without ``ttg.warp_specialize``."""

    body_record: str = ""
    """The name of the records around the kernel's whole body, if no scope is there; empty without them."""


def make_plan(view: ModuleView, selectors: Sequence[Selector], style: Style = USUAL_STYLE) -> Plan:
    """Find every selector's sites in the module and lay out the records; without selectors, the default ones.

    The kernel's body is recorded in any case. The plan has no scopes if nothing matched: whether that is an error
    depends on the other modules. Raises ``KprofError`` if the module or a site cannot take records, or if they
    need more than 256 scope IDs.
    """
    selections = _select(view, selectors, style.spread) if selectors else _default_selections(view, style.spread)
    chosen = _choose(selections)
    starts = sorted(choice.site.start.offset for choice in chosen)
    found = [replace(choice, site=_with_records(choice.site, style, starts)) for choice in chosen]
    if found:
        _check_no_records(view.module)
    ids = _scope_ids(view, found)
    scopes = _nest(found, view)
    body = _unselected_body(view, scopes, SCOPE_IDS - ids)
    inlined = tuple(view.helper_names[function.symbol] for function in view.functions if not function.is_public)
    brackets = [*body, *(_Bracket(scope.record, scope.site, scope.tags) for scope in scopes)]
    records = tuple(_records(brackets, backend_of(view) if any(scope.tags for scope in scopes) else ""))
    return Plan(
        view.kernel,
        scopes,
        records,
        selections,
        inlined if scopes else (),
        view.partitions.all,
        body[0].record if body else "",
    )


def _with_records(site: Site, style: Style, starts: Sequence[int]) -> Site:
    """Return the site with the style's records, or with two if other sites begin between it and its next iteration.

    ``starts`` are the offsets at which all sites begin, ascending.
    """
    first, last = site.between
    if site.exit and bisect_left(starts, first) < bisect_left(starts, last):
        return two_records(site)
    return style.iteration_records(site)


def _select(view: ModuleView, selectors: Sequence[Selector], spread: Spread) -> tuple[Selection, ...]:
    return tuple(
        Selection(selector, selector.target.find(view, spread))
        for selector in selectors
        if selector.matches_kernel(view.kernel)
    )


def _default_selections(view: ModuleView, spread: Spread) -> tuple[Selection, ...]:
    """Return the selections without ``--at``: the markers, or else (no marker, or no code left) functions and loops."""
    marked = _select(view, _MARKERS, spread) if view.markers else ()
    if any(selection.findings.sites for selection in marked):
        return marked
    return (*marked, *_select(view, _STRUCTURE, spread))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A site, the selector that it belongs to, and the tags of all selectors that found it."""

    site: Site
    selector: Selector
    tags: tuple[Tag, ...] = ()


def _choose(selections: Sequence[Selection]) -> list[_Chosen]:
    """Return each site once."""
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
    """Raise ``KprofError`` if the module has records: ours would pair with them, and share the IDs of its events."""
    for operation in module.walk():
        if operation.name in (EVENT, *RECORDS):
            raise KprofError(
                "this file already has records" + ("" if operation.name == RECORD else f" ({operation.name})"),
                where=module.position(operation.start),
                hint="remove them first: kprof-inject strip FILE -o CLEAN",
            )


def _scope_ids(view: ModuleView, found: Sequence[_Chosen]) -> int:
    """Return the number of scope IDs needed: for each end in another block, each tag, each copy of an inlined helper.

    Raises ``KprofError`` if it is too large.
    """
    shares: Counter[str] = Counter()
    for choice in found:
        shares[choice.selector.text] += _ids_needed(view, choice.site, len(choice.tags))
    if shares.total() > SCOPE_IDS:
        listed = ", ".join(f"{text}: {count}" for text, count in shares.most_common())
        raise KprofError(
            f"{shares.total()} scope ids in {view.kernel}, but a record holds at most {SCOPE_IDS} ({listed})",
            where=view.module.position(min(choice.site.start.offset for choice in found)),
            hint=f"select less: {_narrower_selection(view)}",
        )
    return shares.total()


def _narrower_selection(view: ModuleView) -> str:
    """Suggest selectors that find something in this module."""
    if any(True for function in view.functions for _ in function.loops()):
        return "name the loops or lines that matter, such as --at 'loop[0]'"
    return "name the lines or operations that matter (see 'kprof-inject list')"


def _ids_needed(view: ModuleView, site: Site, tags: int = 0) -> int:
    return (len(site.end_records) + tags) * view.copies_of_functions[site.function]


@dataclass(frozen=True, slots=True)
class _Bracket:
    """A site, the name of its records, and the tags recorded before them."""

    record: str
    site: Site
    tags: tuple[PlacedTag, ...] = ()


def _unselected_body(view: ModuleView, scopes: Sequence[Scope], free_ids: int) -> list[_Bracket]:
    """Return the bracket around the kernel's body if the user has not selected that.

    Empty if the body has no end, if no ID is left for it, or if there are no scopes.
    """
    kernel = next((function for function in view.functions if function.is_public), None)
    is_selected = any(scope.site.fills_block and scope.site.block == "function" for scope in scopes)
    if not scopes or is_selected or kernel is None:
        return []
    try:
        site = kernel.body_site()
    except KprofError:  # the body has no end
        return []
    if _ids_needed(view, site) > free_ids:
        return []
    taken = {scope.record for scope in scopes}
    names = (BODY_RECORD, *(f"{BODY_RECORD}#{number}" for number in range(len(taken))))
    return [_Bracket(next(name for name in names if name not in taken), site)]


def _nest(found: Sequence[_Chosen], view: ModuleView) -> tuple[Scope, ...]:
    ordered = sorted(found, key=lambda choice: _order(choice.site))
    first_lines = view.module.line_numbers([choice.site.start.offset for choice in ordered])
    last_lines = view.module.line_numbers([choice.site.last_end_offset - 1 for choice in ordered])
    totals = Counter(_name(choice.site, choice.selector) for choice in ordered)
    numbers: Counter[str] = Counter()
    taken: set[str] = set()
    scopes: list[Scope] = []
    for choice, first, last in zip(ordered, first_lines, last_lines, strict=True):
        site, selector = choice.site, choice.selector
        name = _name(site, selector)
        record = name
        while record in taken or (record == name and totals[name] > 1):
            record = f"{name}#{numbers[name]}"
            numbers[name] += 1
        taken.add(record)
        partition = view.partitions.at(site.function, site.start.offset)
        parent = _parent(scopes, site, partition)
        lines = first, max(first, last)
        tags = tuple(_placed_tags(choice, record, view, taken))
        scopes.append(Scope(record, name, selector.text, site, partition, parent, lines, tags))
    return tuple(replace(scope, crosses=_crossed(scopes, scope)) for scope in scopes)


def _placed_tags(chosen: _Chosen, record: str, view: ModuleView, taken: set[str]) -> Iterator[PlacedTag]:
    """Yield the tags of the scope that ``record`` names, and add their new names to ``taken``.

    Raises ``KprofError`` for a value that cannot be recorded there.
    """
    for tag in chosen.tags:
        name = f"{record} {OPTION} {tag.name}"
        taken.add(name)
        yield PlacedTag(tag.name, name, scalar_of(tag, view, chosen.site))


def _order(site: Site) -> tuple[int, bool, bool, int]:
    """Sort outer sites before inner ones; at one offset, a block's own site comes first, then instants, then others."""
    return site.start.offset, not site.fills_block, not site.is_instant, -site.last_end_offset


def _name(site: Site, selector: Selector) -> str:
    return selector.name or site.name or site.label


def _parent(outer: Sequence[Scope], site: Site, partition: int | None) -> int:
    """Return the index of the innermost scope around a site, or -1.

    It is the last of the partition's scopes that begin no later and end no earlier. A scope that ends where the
    site begins is over, unless it spans the whole block. Other warps run the code around a partition's region.
    """
    start, end = site.start.offset, site.last_end_offset
    around = (
        index
        for index, scope in enumerate(outer)
        if scope.partition == partition
        and scope.site.start.offset <= start <= end <= scope.site.last_end_offset
        and (start < scope.site.last_end_offset or scope.site.fills_block)
    )
    return max(around, default=-1)


def _crossed(scopes: Sequence[Scope], scope: Scope) -> tuple[int, ...]:
    start, end = scope.site.start.offset, scope.site.last_end_offset
    return tuple(
        index
        for index, other in enumerate(scopes)
        if start < other.site.start.offset < end < other.site.last_end_offset
        or other.site.start.offset < start < other.site.last_end_offset < end
    )


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
            value = tag.lines(next(carriers), backend)
            placed.append((start, Record(site.start, True, tag.record, value)))
            placed.append((start, Record(site.start, False, tag.record)))
        placed.append((start, Record(site.start, True, bracket.record)))
        for end in site.end_records:
            if end.offset == site.start.offset:
                key = end.offset, 1, order, 1
            else:
                key = end.offset, 2 if site.fills_block and end is not site.exit else 0, -order, 0
            placed.append((key, Record(end, False, bracket.record)))
    return (record for _, record in sorted(placed, key=lambda item: item[0]))


def scope_table(plan: Plan) -> dict[str, Any]:
    """Return the plan's scopes as JSON values, by which the decoder and the reports interpret record names.

    ``docs/capture-format.md`` describes every key. Keys about partitions are only present if the kernel has some.
    """
    partitions = [structs.asdict(partition) for partition in plan.partitions]
    return {
        "version": SCOPE_TABLE_VERSION,
        "kernel": plan.kernel,
        **({"partitions": partitions} if partitions else {}),
        **({"body_record": plan.body_record} if plan.body_record else {}),
        "scopes": [
            {
                "record": scope.record,
                "name": scope.name,
                "kind": scope.site.kind,
                "label": scope.site.label,
                "selector": scope.selector,
                "function": scope.site.function,
                "source": _point(scope.site.source),
                "called_from": [_point(point) for point in scope.site.called_from],
                "parent": scope.parent,
                **({"partition": scope.partition} if partitions else {}),
                "crosses": list(scope.crosses),
                "block": scope.site.block,
                "operations": scope.site.operations,
                "other_operations": scope.site.other_operations,
                "lines": list(scope.lines),
                **({"ended_by_next": True} if scope.site.exit else {}),
                **({"tags": [_tag(tag) for tag in scope.tags]} if scope.tags else {}),
            }
            for scope in plan.scopes
        ],
    }


def _tag(tag: PlacedTag) -> dict[str, str]:
    return {"name": tag.name, "record": tag.record, "value": tag.value.name}


def _point(point: SourcePoint | None) -> dict[str, Any] | None:
    if point is None:
        return None
    return {"file": point.file, "line": point.line, "column": point.column}
