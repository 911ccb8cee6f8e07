"""The plan: all records to insert into one module, each with its place and its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kprof_inject.errors import KprofError
from kprof_inject.select.functions import Function, functions_of
from kprof_inject.select.legality import MAX_SCOPES, check_module
from kprof_inject.select.selectors import Selector
from kprof_inject.select.sites import InsertPoint, Site
from kprof_inject.ttgir.nodes import Module


@dataclass(frozen=True, slots=True)
class Scope:
    """One scope of the plan. ``record`` is its name in the IR, unique in the module; ``name`` the user's.

    ``parent`` is the index of the innermost scope around it in ``Plan.scopes``, or -1.
    """

    record: str
    name: str
    selector: str
    site: Site
    parent: int


@dataclass(frozen=True, slots=True)
class Record:
    """One line to insert."""

    point: InsertPoint
    is_start: bool
    name: str

    @property
    def line(self) -> str:
        return f'{self.point.indent}proton.record {"start" if self.is_start else "end"} "{self.name}"'


@dataclass(frozen=True, slots=True)
class Plan:
    """``scopes`` from outside in and in the order of the text; ``records`` in the order of insertion.

    ``sites_by_selector`` counts what each selector found, by its text; two selectors may find one site.
    """

    kernel: str
    scopes: tuple[Scope, ...]
    records: tuple[Record, ...]
    sites_by_selector: dict[str, int]


def make_plan(module: Module, selectors: Sequence[Selector]) -> Plan:
    """Find every selector's sites in the module and lay out the records.

    The plan has no scopes if nothing matched: whether that is an error depends on the module's neighbours.
    Raises ``KprofError`` if the module or a site cannot take records, or there are more than 256 scopes.
    """
    functions = functions_of(module)
    kernel = kernel_name(functions)
    every = [
        (selector, site)
        for selector in selectors
        if selector.matches_kernel(kernel)
        for function in functions
        for site in selector.target.find(function)
    ]
    # Two selectors may find one site; the first keeps it.
    found = [(selector, site) for site, selector in {site: s for s, site in reversed(every)}.items()]
    if found:
        check_module(module)
    if len(found) > MAX_SCOPES:
        shares = Counter(selector.text for selector, _ in found)
        listed = ", ".join(f"{text}: {count}" for text, count in shares.most_common())
        raise KprofError(
            f"{len(found)} scopes in {kernel}, but a record holds at most {MAX_SCOPES} ids ({listed})",
            hint="name the loops that matter, such as --at 'loop[0]'",
        )
    scopes = _nest(found)
    counts = Counter(selector.text for selector, _ in every)
    return Plan(kernel, scopes, tuple(_records(scopes)), dict(counts))


def kernel_name(functions: Sequence[Function]) -> str:
    """The name of the function that is launched."""
    return next((f.name for f in functions if f.is_public), functions[0].name if functions else "")


def candidates(module: Module) -> tuple[str, ...]:
    """Selectors that would match in this module, for a hint."""
    functions = functions_of(module)
    loops = [loop for function in functions for loop in function.loops()]
    return ("func", *(f"loop{loop.subscript}" for loop in loops), *(f"iter{loop.subscript}" for loop in loops))


def _nest(found: Sequence[tuple[Selector, Site]]) -> tuple[Scope, ...]:
    ordered = sorted(
        found,
        key=lambda item: (item[1].start.offset, -item[1].last_end_offset, not item[1].fills_block),
    )
    totals = Counter(selector.name or site.label for selector, site in ordered)
    numbers: Counter[str] = Counter()
    taken: set[str] = set()
    scopes: list[Scope] = []
    enclosing: list[int] = []
    for selector, site in ordered:
        while enclosing and scopes[enclosing[-1]].site.last_end_offset <= site.start.offset:
            enclosing.pop()
        name = selector.name or site.label
        record = name
        while record in taken or (record == name and totals[name] > 1):
            record = f"{name}#{numbers[name]}"
            numbers[name] += 1
        taken.add(record)
        scopes.append(Scope(record, name, selector.text, site, enclosing[-1] if enclosing else -1))
        enclosing.append(len(scopes) - 1)
    return tuple(scopes)


def _records(scopes: Sequence[Scope]) -> Iterator[Record]:
    """At one offset: inner ends before outer ones, then scopes of nothing, then outer starts before inner ones."""
    placed: list[tuple[tuple[int, int, int, int], Record]] = []
    for order, scope in enumerate(scopes):
        start = scope.site.start
        # A function whose entry is only a return begins and ends at one offset, and has other ends elsewhere.
        begins_empty = any(end.offset == start.offset for end in scope.site.ends)
        placed.append(((start.offset, 1 if begins_empty else 2, order, 0), Record(start, True, scope.record)))
        for end in scope.site.ends:
            key = (end.offset, 1, order, 1) if end.offset == start.offset else (end.offset, 0, -order, 0)
            placed.append((key, Record(end, False, scope.record)))
    return (record for _, record in sorted(placed, key=lambda item: item[0]))
