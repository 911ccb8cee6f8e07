"""Plans for tests: a text and selectors in, a plan out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from golden import FIXTURES

from kprof_inject.insertion import Insertion, insert_module
from kprof_inject.select.candidates import outline
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.plan import Plan, make_plan
from kprof_inject.select.python_source import Sources
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import USUAL_STYLE, Style
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.scalars import scalars_at
from kprof_inject.ttgir.strings import source_files

# What scripts/fixtures writes for the folder of this checkout.
_CHECKOUT = "/kprof-inject/ttgir_fixtures/"


def view_of_text(text: str, sources: Mapping[str, str] | None = None) -> ModuleView:
    return ModuleView(parse(text), Sources(sources or {}))


def fixture_view(text: str) -> ModuleView:
    """A fixture with the kernel sources that it was made from."""
    return view_of_text(text, fixture_sources(text))


def fixture_sources(text: str) -> dict[str, str]:
    ours = [file for file in source_files(text) if file.startswith(_CHECKOUT)]
    return {file: Path(FIXTURES, file.removeprefix(_CHECKOUT)).read_text(encoding="utf-8") for file in ours}


def plan_of(text: str, *selectors: str, sources: Mapping[str, str] | None = None, style: Style = USUAL_STYLE) -> Plan:
    """The plan, whether or not each selector finds something."""
    return make_plan(view_of_text(text, sources), parse_selectors(selectors), style)


def insertion_of(
    text: str, *selectors: str, sources: Mapping[str, str] | None = None, style: Style = USUAL_STYLE
) -> Insertion:
    """The plan and the instrumented text, as ``insert`` makes them."""
    return insert_module(view_of_text(text, sources), parse_selectors(selectors), style)


def tagged_loops(text: str) -> list[str]:
    """A selector for each loop, with a tag whose value is visible there."""
    view = view_of_text(text)
    selectors = []
    for function in view.functions:
        for loop in function.loops:
            visible = scalars_at(view.module, loop.operation)
            value = next(one.name for one in visible if one.type in ("i1", "i32", "index"))
            selectors.append(f"loop{loop.subscript} --tag value={value}")
    return selectors


def counts(plan: Plan) -> dict[str, int]:
    """How many sites each selector found, without those that found none."""
    found = {selection.selector.text: len(selection.findings.sites) for selection in plan.selections}
    return {text: count for text, count in found.items() if count}


SelectorSet = tuple[Style, Sequence[str]]
SELECTOR_SETS: tuple[SelectorSet, ...] = (
    (USUAL_STYLE, ()),
    (USUAL_STYLE, ("func=the whole kernel", "line(1-100000)")),
    (Style(iteration_records="two"), ("iter", "loop")),
    (USUAL_STYLE, ("iter[0]=x", "loop[0]=x", "loop[0.0]", "iter[1]", "func=x")),
    (Style("runs"), ("func(*)",)),
    (USUAL_STYLE, ("op(tt.load)", "op(*dot*)=dot", "op(scf.*)", "op(*store*)")),
    (USUAL_STYLE, ("line(20-34)", "line(30-50)", "line(standard.py:1-1000)")),
    (Style("runs"), ("line(20-34)=first", "line(30-50)=second", "marker")),
    (USUAL_STYLE, ("default", "partition", "partition[0]=producer", "op(ttg.warp_specialize)")),
    (USUAL_STYLE, ("marker(s*)", "marker", "func", "LOOPS BY LINE")),
)
"""Together they use every kind of selector; the last one of all stands for each loop's line, which a fixture knows."""


def plans_of(view: ModuleView, sets: Sequence[SelectorSet] = SELECTOR_SETS) -> Iterator[Plan]:
    """The plan of each selector set."""
    for style, selectors in sets:
        texts = [text for word in selectors for text in (_by_line(view) if word == "LOOPS BY LINE" else [word])]
        yield make_plan(view, parse_selectors(texts), style)


def _by_line(view: ModuleView) -> list[str]:
    """``loop@57`` and ``iter@file.py:57`` for each line that a loop is written on."""
    loops = [candidate for candidate in outline(view) if candidate.what == "loop"]
    points = dict.fromkeys(point for loop in loops for point in loop.sources)
    return [text for p in points for text in (f"loop@{p.line}", f"iter@{p.file}:{p.line}")]
