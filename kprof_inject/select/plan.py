"""The plan: all records to insert into one module, each with its place and its name."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any

from kprof_inject.capture.schema import SCOPE_IDS, SCOPE_TABLE_VERSION
from kprof_inject.capture.scopes import Partition
from kprof_inject.errors import KprofError
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.selectors import Selector, parse_selector
from kprof_inject.select.sites import Found, InsertPoint, Site
from kprof_inject.select.spans import Spread
from kprof_inject.select.style import USUAL_STYLE, Style, two_records
from kprof_inject.select.tags import OPTION, PlacedTag, Tag, backend_of, scalar_of, together
from kprof_inject.ttgir.dialect import EVENT, RECORD, RECORDS
from kprof_inject.ttgir.locations import SourcePoint
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.strings import quote

_MARKERS = (parse_selector("marker"),)
_STRUCTURE = tuple(map(parse_selector, ("func", "loop", "iter")))


BODY_RECORD = "kernel body"
"""The record around the kernel's whole body where nobody selected it: its clock is fitted to that."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One scope of the plan."""

    record: str
    """Its name in the IR, unique in the module."""

    name: str
    """What the user calls it."""

    selector: str
    site: Site
    partition: int | None
    """The index in ``Plan.partitions`` of whose warps run it: None without partitions, and in a helper that several
    call."""

    parent: int
    """The index in ``Plan.scopes`` of the innermost scope of its partition around it, or -1."""

    lines: tuple[int, int]
    """The first and the last line of the module that it goes around, from 1; of an instant, the one that it stands
    before."""

    tags: tuple[PlacedTag, ...] = ()
    """The values that are recorded right before its start, in this order."""

    crosses: tuple[int, ...] = ()
    """The indices of the scopes that begin in this one and end behind it, or the other way round."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record to insert, and before it the operations that give it a value: those of a tag's start."""

    point: InsertPoint
    is_start: bool
    name: str
    before: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """Its line; with operations before it several, but for what ends the last."""
        own = f"{RECORD} {'start' if self.is_start else 'end'} {quote(self.name)}"
        return self.point.after.join(f"{self.point.indent}{operation}" for operation in (*self.before, own))


@dataclass(frozen=True, slots=True)
class Selection:
    """What one selector found in the module. A site that two selectors find belongs to the first that has a name for
    it, else to the first."""

    selector: Selector
    findings: Found


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is to be inserted into one module."""

    kernel: str
    scopes: tuple[Scope, ...]
    """From outside in, and in the order of the text."""

    records: tuple[Record, ...]
    """In the order of insertion."""

    selections: tuple[Selection, ...]
    """In the order of the selectors."""

    inlined: tuple[str, ...] = ()
    """The helpers that are calls in this module, and are inlined when it runs with records."""

    partitions: tuple[Partition, ...] = ()
    """Those of the kernel; none without ``ttg.warp_specialize``."""

    body_record: str = ""
    """The name of the records around the kernel's whole body, if no scope stands there; empty without any."""


def make_plan(view: ModuleView, selectors: Sequence[Selector], style: Style = USUAL_STYLE) -> Plan:
    """Find every selector's sites in the module and lay out the records; without selectors, the default ones.

    The kernel's body is recorded in any case. The plan has no scopes if nothing matched: whether that is an error
    depends on the module's neighbours. Raises ``KprofError`` if the module or a site cannot take records, or if they
    need more than 256 scope ids.
    """
    selections = _select(view, selectors, style.spread) if selectors else _default_selections(view, style.spread)
    chosen = _choose(selections)
    starts = sorted(one.site.start.offset for one in chosen)
    found = [replace(one, site=_with_records(one.site, style, starts)) for one in chosen]
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
    """An iteration in the style, but with two records where others begin between it and the next one. ``starts`` are
    the offsets at which all begin, ascending."""
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
    """Without ``--at``: the markers; the function and its loops where the source has none, or none is left of any."""
    marked = _select(view, _MARKERS, spread) if view.markers else ()
    if any(selection.findings.sites for selection in marked):
        return marked
    return (*marked, *_select(view, _STRUCTURE, spread))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A site, the selector that it belongs to, and the tags of all that found it."""

    site: Site
    selector: Selector
    tags: tuple[Tag, ...] = ()


def _choose(selections: Sequence[Selection]) -> list[_Chosen]:
    """Each site once."""
    found: dict[Site, _Chosen] = {}
    for selection in selections:
        selector = selection.selector
        for site in selection.findings.sites:
            before = found.get(site)
            is_named = bool(selector.name or site.name)
            if before is None or (is_named and not any((before.site.name, before.selector.name))):
                found[site] = _Chosen(site, selector, before.tags if before else ())
            found[site] = replace(found[site], tags=together(found[site].tags, selector.tags))
    return list(found.values())


def _check_no_records(module: Module) -> None:
    """Ours would pair with those that the module has already, and share the ids of its events."""
    for operation in module.walk():
        if operation.name in (EVENT, *RECORDS):
            raise KprofError(
                "this file already has records" + ("" if operation.name == RECORD else f" ({operation.name})"),
                where=module.position(operation.start),
                hint="remove them first: kprof-inject strip FILE -o CLEAN",
            )


def _scope_ids(view: ModuleView, found: Sequence[_Chosen]) -> int:
    """How many they take: each end in another block takes an id of its own, so does each tag, and so does each copy of
    an inlined helper. Raises ``KprofError`` if there are not so many."""
    shares: Counter[str] = Counter()
    for one in found:
        shares[one.selector.text] += _ids_of(view, one.site, len(one.tags))
    if shares.total() > SCOPE_IDS:
        listed = ", ".join(f"{text}: {count}" for text, count in shares.most_common())
        raise KprofError(
            f"{shares.total()} scope ids in {view.kernel}, but a record holds at most {SCOPE_IDS} ({listed})",
            where=view.module.position(min(one.site.start.offset for one in found)),
            hint=f"select less: {_less(view)}",
        )
    return shares.total()


def _less(view: ModuleView) -> str:
    """What finds something in this module."""
    if any(True for function in view.functions for _ in function.loops()):
        return "name the loops or lines that matter, such as --at 'loop[0]'"
    return "name the lines or operations that matter (see 'kprof-inject list')"


def _ids_of(view: ModuleView, site: Site, tags: int = 0) -> int:
    return (len(site.end_records) + tags) * view.copies_of_functions[site.function]


@dataclass(frozen=True, slots=True)
class _Bracket:
    """A site, what its records are called, and what is recorded before them."""

    record: str
    site: Site
    tags: tuple[PlacedTag, ...] = ()


def _unselected_body(view: ModuleView, scopes: Sequence[Scope], free_ids: int) -> list[_Bracket]:
    """What is to stand around the kernel's body, if nobody selected that: nothing where it has no end, where there is
    no id left for it, or where there are no scopes either."""
    kernel = next((function for function in view.functions if function.is_public), None)
    is_selected = any(scope.site.fills_block and scope.site.block == "function" for scope in scopes)
    if not scopes or is_selected or kernel is None:
        return []
    try:
        site = kernel.body_site()
    except KprofError:  # it is never left
        return []
    if _ids_of(view, site) > free_ids:
        return []
    taken = {scope.record for scope in scopes}
    names = (BODY_RECORD, *(f"{BODY_RECORD}#{number}" for number in range(len(taken))))
    return [_Bracket(next(name for name in names if name not in taken), site)]


def _nest(found: Sequence[_Chosen], view: ModuleView) -> tuple[Scope, ...]:
    ordered = sorted(found, key=lambda one: _order(one.site))
    first_lines = view.module.line_numbers([one.site.start.offset for one in ordered])
    last_lines = view.module.line_numbers([one.site.last_end_offset - 1 for one in ordered])
    totals = Counter(_name(one.site, one.selector) for one in ordered)
    numbers: Counter[str] = Counter()
    taken: set[str] = set()
    scopes: list[Scope] = []
    for one, first, last in zip(ordered, first_lines, last_lines, strict=True):
        site, selector = one.site, one.selector
        name = _name(site, selector)
        record = name
        while record in taken or (record == name and totals[name] > 1):
            record = f"{name}#{numbers[name]}"
            numbers[name] += 1
        taken.add(record)
        partition = view.partitions.at(site.function, site.start.offset)
        parent = _parent(scopes, site, partition)
        lines = first, max(first, last)
        tags = tuple(_placed_tags(one, record, view, taken))
        scopes.append(Scope(record, name, selector.text, site, partition, parent, lines, tags))
    return tuple(replace(scope, crosses=_crossed(scopes, scope)) for scope in scopes)


def _placed_tags(chosen: _Chosen, record: str, view: ModuleView, taken: set[str]) -> Iterator[PlacedTag]:
    """The tags of a scope whose records are called ``record``, with names that are not ``taken``, which they then are.
    Raises ``KprofError`` for a value that cannot be recorded there."""
    for tag in chosen.tags:
        name = f"{record} {OPTION} {tag.name}"
        taken.add(name)
        yield PlacedTag(tag.name, name, scalar_of(tag, view, chosen.site))


def _order(site: Site) -> tuple[int, bool, bool, int]:
    """Outer sites before inner ones. Where others begin, an instant comes before them, but inside its block's own."""
    return site.start.offset, not site.fills_block, not site.is_instant, -site.last_end_offset


def _name(site: Site, selector: Selector) -> str:
    return selector.name or site.name or site.label


def _parent(outer: Sequence[Scope], site: Site, partition: int | None) -> int:
    """The innermost of the partition's scopes that begin no later and end no earlier; one that ends here is over,
    unless it is that of the whole block. What stands around a partition's region is run by other warps."""
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
    """At one offset: inner ends before outer ones, then starts, outer before inner ones, then the end of the block's
    own scope. ``brackets`` go from outside in. The records of a scope's tags come right before its start.

    A scope of nothing (an instant, a loop with an empty body) ends where it starts, right behind its start."""
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
    """What each record name means, for the decoder and the reports: the plan's scopes as JSON values.

    ``docs/capture-format.md`` describes every key. Those of partitions are there only if the kernel has some."""
    partitions = [asdict(partition) for partition in plan.partitions]
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
