"""What holds for every module, tried on generated ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from generated_modules import GeneratedModule, modules
from hypothesis import given, settings
from hypothesis import strategies as st

from kprof_inject.rewrite import apply, strip
from kprof_inject.select.plan import Plan, make_plan
from kprof_inject.select.python_source import Sources
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.view import ModuleView
from kprof_inject.ttgir.nodes import Block, Module, Operation
from kprof_inject.ttgir.parser import parse

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

thorough = settings(max_examples=200, deadline=None)
selector_sets = st.lists(st.sampled_from(SELECTORS), min_size=1, unique=True)


@thorough
@given(modules())
def test_the_parser_keeps_the_text_and_sees_every_operation(generated: GeneratedModule) -> None:
    module = parse(generated.text)

    assert module.text == generated.text
    assert named(module) == generated.operations


@thorough
@given(modules(), selector_sets)
def test_stripping_undoes_inserting(generated: GeneratedModule, selectors: list[str]) -> None:
    instrumented = parse(apply(*planned(generated.text, selectors)))

    assert strip(instrumented) == generated.text
    assert [node for node in named(instrumented) if node[1] != "proton.record"] == generated.operations


@thorough
@given(modules(), selector_sets)
def test_every_scope_is_entered_and_left_once_on_every_path(generated: GeneratedModule, selectors: list[str]) -> None:
    module, plan = planned(generated.text, selectors)
    instrumented = parse(apply(module, plan))

    (function,) = (operation for operation in instrumented.walk() if operation.name == "tt.func")
    entry, *others = function.regions[0].blocks
    opened = run(entry.operations, [])
    for block in others:
        assert run(block.operations, opened) == ([] if returns(block) else opened)
    if returns(entry):
        assert opened == []

    ways_out = sum(map(returns, function.regions[0].blocks))
    assert Counter(record(operation) for operation in instrumented.walk() if operation.name == "proton.record") == {
        **{("start", scope.record): 1 for scope in plan.scopes},
        **{("end", scope.record): ways_out if scope.site.kind == "func" else 1 for scope in plan.scopes},
    }


def returns(block: Block) -> bool:
    return block.operations[-1].name == "tt.return"


def run(operations: Sequence[Operation], opened: list[str]) -> list[str]:
    """The scopes that are open behind a block, from outside in; a block inside it has to close all that it opens."""
    opened = list(opened)
    for operation in operations:
        if operation.name == "proton.record":
            kind, name = record(operation)
            if kind == "start":
                opened.append(name)
            else:
                assert opened.pop() == name
        for region in operation.regions:
            for block in region.blocks:
                assert run(block.operations, []) == []
    assert not any(operation.name in TERMINATORS for operation in operations[:-1])
    return opened


def record(operation: Operation) -> tuple[str, str]:
    """``start`` or ``end``, and the scope's name."""
    kind, name = operation.tail.split(maxsplit=1)
    return kind, name.strip().strip('"')


def planned(text: str, selectors: list[str]) -> tuple[Module, Plan]:
    module = parse(text)
    return module, make_plan(ModuleView(module, Sources({})), parse_selectors(selectors))


def named(module: Module) -> list[tuple[int, str]]:
    """The operations' names with their depth, in the order of the text."""

    def inside(operations: Sequence[Operation], depth: int) -> Iterator[tuple[int, str]]:
        for operation in operations:
            yield depth, operation.name
            for region in operation.regions:
                for block in region.blocks:
                    yield from inside(block.operations, depth + 1)

    return list(inside(module.operations, 0))
