"""How far ahead copies are asked for: by their order, which the hardware keeps, and by Triton's tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import fixture_id, fixtures, read
from text_cases import facts_in

from kprof_inject.ttgir.loops import copy_pipelines
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.ssa_values import without_strings

COPYING = [path for path in fixtures() if "ttg.async_wait" in read(path)]
LOOPS = facts_in(Path(__file__).with_name("copy_groups.txt"))
NAME = re.compile(r"%[\w$.-]+")


def carried(module: Module, loop: Operation) -> dict[str, str]:
    """The values that a loop's body is given, and what of the iteration before each of them is."""
    region = loop.regions[-1]
    (block,) = region.blocks
    passed = NAME.findall(without_strings(block.operations[-1].tail).partition(":")[0])
    if "iter_args(" in loop.tail:
        arguments = re.findall(r"(%[\w$.-]+) =", loop.tail.partition("iter_args(")[2].partition(") ->")[0])
    else:  # the generic form names them at the body's block
        head = module.text[module.text.rindex("^bb", 0, block.start) : block.start]
        arguments = re.findall(r"(%[\w$.-]+)\s*:", without_strings(head))[1:]
    assert len(arguments) == len(passed)
    return dict(zip(arguments, passed, strict=True))


def by_tokens(module: Module, loop: Operation, wait: Operation) -> Iterator[tuple[str, int]]:
    """The commits that a wait's tokens come from, and how many iterations before."""
    carries = carried(module, loop)
    commits = {
        one.results.partition("=")[0].strip(): one
        for one in loop.regions[-1].walk()
        if one.name == "ttg.async_commit_group"
    }
    for name in NAME.findall(without_strings(wait.tail).partition("{")[0].partition(":")[0]):
        ago = 0
        while name not in commits and name in carries and ago < 20:
            name, ago = carries[name], ago + 1
        if name in commits:
            yield name, ago


@pytest.mark.parametrize("path", COPYING, ids=fixture_id)
def test_the_order_says_what_the_tokens_say(path: Path) -> None:
    module = parse(read(path), str(path))
    for pipeline in copy_pipelines(module):
        for group in pipeline.awaited:
            told = list(by_tokens(module, pipeline.loop, group.wait))
            if not told:  # Gluon has no tokens
                assert "gluon" in fixture_id(path)
                continue
            latest = min(ago for _, ago in told)
            assert group.iterations_ago == latest
            name = group.commit.results.partition("=")[0].strip()
            assert (name, latest) in told


def test_there_are_such_fixtures_of_every_version() -> None:
    found = {fixture_id(path).split("/")[0] for path in COPYING if list(copy_pipelines(parse(read(path), str(path))))}
    assert found == {"3.5.1", "3.6.0", "3.7.1", "3.8.0", "3.9.0"}


@pytest.mark.parametrize("name", LOOPS)
def test_how_many_iterations_ahead(name: str) -> None:
    """Each copy of AMD's data mover is a group."""
    body, facts = LOOPS[name]
    carried, _, rest = body.partition("\n") if body.startswith("iter_args") else ("", "", body)
    text = (
        f"module {{\ntt.func @k() {{\nscf.for %i = %a to %b step %c {carried} : i32 {{\n{rest}\n}}\ntt.return\n}}\n}}\n"
    )
    found = [f"depth {one.depth}{', reads ahead' * one.reads_ahead}" for one in copy_pipelines(parse(text))]
    assert (found or ["nothing"]) == facts
