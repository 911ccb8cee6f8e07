"""What holds for every module, tried on generated ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set

import pytest
from generated_modules import GeneratedModule, modules
from hypothesis import given, settings
from hypothesis import strategies as st
from small_modules import TWO_RECORDS

from kprof_inject.rewrite import apply, strip
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.plan import Plan, make_plan
from kprof_inject.select.python_source import Sources
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import USUAL_STYLE, Style
from kprof_inject.ttgir.nodes import Block, Module, Operation
from kprof_inject.ttgir.parser import parse

pytestmark = pytest.mark.slow

SELECTORS = [
    *("func", "func=x"),
    *("loop", "iter", "loop[0]=outer", "iter[0.0]", "iter=x"),
    *("op(scf.*)", "op(tt.store)=x", "op(*)", "line(1-100)", "line(3)=x"),
    *("partition", "partition[1]=x", "default", "func(*)"),
]

TERMINATORS = {
    *("tt.return", "cf.br", "cf.cond_br", "cf.switch", "scf.yield", "scf.condition"),
    *("ttg.warp_yield", "ttg.warp_return", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return"),
}

thorough = settings(max_examples=50, deadline=None)
selector_sets = st.lists(st.sampled_from(SELECTORS), min_size=1, unique=True)
styles = st.sampled_from([USUAL_STYLE, TWO_RECORDS])

Opened = frozenset[tuple[str, ...]]
"""For each way to some place, the scopes that are open there, from outside in."""
NOTHING: Opened = frozenset({()})


@thorough
@given(modules())
def test_the_parser_keeps_the_text_and_sees_every_operation(generated: GeneratedModule) -> None:
    module = parse(generated.text)

    assert module.text == generated.text
    assert named(module) == generated.operations


@thorough
@given(modules(), selector_sets, styles)
def test_stripping_undoes_inserting(generated: GeneratedModule, selectors: list[str], style: Style) -> None:
    instrumented = parse(apply(*planned(generated.text, selectors, style)))

    assert strip(instrumented) == generated.text
    assert [node for node in named(instrumented) if node[1] != "proton.record"] == generated.operations


@thorough
@given(modules(), selector_sets, styles)
def test_every_scope_is_entered_and_left_once_on_every_path(
    generated: GeneratedModule, selectors: list[str], style: Style
) -> None:
    module, plan = planned(generated.text, selectors, style)
    instrumented = parse(apply(module, plan))

    (function,) = (operation for operation in instrumented.walk() if operation.name == "tt.func")
    entry, *others = function.regions[0].blocks
    ended_by_next = {scope.record for scope in plan.scopes if scope.ended_by_next}
    assert not (ended_by_next and style is TWO_RECORDS)
    opened = run(entry.operations, NOTHING, ended_by_next)
    for block in others:
        assert run(block.operations, opened, ended_by_next) == (NOTHING if returns(block) else opened)
    if returns(entry):
        assert opened == NOTHING

    ways_out = sum(map(returns, function.regions[0].blocks))
    bodies = [scope.record for scope in plan.scopes if scope.kind == "func"]
    assert bool(plan.table.body_record) == bool(plan.scopes and not bodies)
    names = [scope.record for scope in plan.scopes] + [plan.table.body_record] * bool(plan.table.body_record)
    assert Counter(record(operation) for operation in instrumented.walk() if operation.name == "proton.record") == {
        **{("start", name): 1 for name in names},
        **{("end", name): ways_out if name in (*bodies, plan.table.body_record) else 1 for name in names},
    }


def returns(block: Block) -> bool:
    return block.operations[-1].name == "tt.return"


def run(operations: Sequence[Operation], opened: Opened, ended_by_next: Set[str]) -> Opened:
    """The scopes that are open behind a block. A block inside it has to close all that it opens, but for an iteration
    that the next one's start ends."""
    for operation in operations:
        if operation.name == "proton.record":
            opened = passed(*record(operation), opened, ended_by_next)
        for region in operation.regions:
            for block in region.blocks:
                left = run(block.operations, NOTHING, ended_by_next)
                if left != NOTHING:
                    assert region is operation.regions[-1]
                    opened |= looped(operation, left, opened, ended_by_next)
    assert not any(operation.name in TERMINATORS for operation in operations[:-1])
    return opened


def looped(loop: Operation, left: Opened, before: Opened, ended_by_next: Set[str]) -> Opened:
    """The scopes that are open behind a loop that leaves its last iteration open, where it had one."""
    ((iteration,),) = left
    assert loop.name in ("scf.for", "scf.while") and iteration in ended_by_next
    for region in loop.regions:
        assert [run(block.operations, left, ended_by_next) for block in region.blocks] == [left]
    return frozenset((*way, iteration) for way in before)


def passed(kind: str, name: str, opened: Opened, ended_by_next: Set[str]) -> Opened:
    """The scopes that are open behind a record."""
    if name not in ended_by_next:
        if kind == "start":
            return frozenset((*way, name) for way in opened)
        assert {way[-1:] for way in opened} == {(name,)}
        return frozenset(way[:-1] for way in opened)
    others = frozenset(way[:-1] if way[-1:] == (name,) else way for way in opened)
    if kind == "start":
        return frozenset((*way, name) for way in others)
    # Behind the loop: whether or not it had iterations.
    assert opened == others | {(*way, name) for way in others}
    return others


def record(operation: Operation) -> tuple[str, str]:
    """``start`` or ``end``, and the scope's name."""
    kind, name = operation.tail.split(maxsplit=1)
    return kind, name.strip().strip('"')


def planned(text: str, selectors: list[str], style: Style = USUAL_STYLE) -> tuple[Module, Plan]:
    module = parse(text)
    return module, make_plan(ModuleView(module, Sources({})), parse_selectors(selectors), style)


def named(module: Module) -> list[tuple[int, str]]:
    """The operations' names with their depth, in the order of the text."""

    def inside(operations: Sequence[Operation], depth: int) -> Iterator[tuple[int, str]]:
        for operation in operations:
            yield depth, operation.name
            for region in operation.regions:
                for block in region.blocks:
                    yield from inside(block.operations, depth + 1)

    return list(inside(module.operations, 0))
