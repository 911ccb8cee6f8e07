"""Which scope of a table is the kernel's own, what tells scopes of one name apart, and which are one in two tables."""

from __future__ import annotations

import pytest
from replacing import replace

from kprof_inject.capture.scopes import PointRecord, Scope, ScopeTable, distinct_names


def scope(name: str, kind: str, label: str) -> Scope:
    return Scope(record=name, name=name, kind=kind, label=label)


@pytest.mark.parametrize(
    ("scopes", "body"),
    [
        ([], None),
        ([scope("loop[0]", "loop", "loop[0]")], None),
        ([scope("loop[0]", "loop", "loop[0]"), scope("func", "func", "func")], 1),
        ([scope("all of it", "func", "func")], 0),
        ([scope("softmax@12", "func", "softmax@12")], None),
        ([scope("mine", "func", "softmax@12"), scope("func", "func", "func")], 1),
        # Captures that do not tell labels.
        ([scope("softmax@12", "func", ""), scope("func", "func", "")], 1),
    ],
)
def test_the_scope_around_the_body(scopes: list[Scope], body: int | None) -> None:
    assert ScopeTable(scopes=tuple(scopes)).body == body


def placed(record: str, kind: str, line: int, parent: int, label: str, lines: tuple[int, int]) -> Scope:
    return Scope(
        record=record,
        name=record.partition("#")[0],
        kind=kind,
        label=label,
        place=PointRecord("/src/k.py", line),
        parent=parent,
        lines=lines,
    )


LOOP = placed("work", "loop", 5, -1, "loop[0]", (7, 12))
ITERATION = placed("work#1", "iter", 5, 0, "iter[0]", (8, 11))
LOAD = placed("tt.load#0", "op", 6, 1, "tt.load", (8, 8))
ELSEWHERE = replace(LOAD, place=PointRecord("k.py", 9))
OTHER_LOAD = replace(LOAD, record="tt.load#1", lines=(10, 10))


@pytest.mark.parametrize(
    ("scopes", "names", "titles"),
    [
        ([LOOP, LOAD], ["work", "tt.load"], ["work", "tt.load"]),
        ([LOOP, ITERATION], ["work (loop[0])", "work (iter[0])"], ["work (loop[0])", "work (iter[0])"]),
        ([LOAD, replace(OTHER_LOAD, place=PointRecord("k.py", 9))], *[["tt.load #0", "tt.load #1"]] * 2),
        ([LOAD, OTHER_LOAD], *[["tt.load #0", "tt.load #1"]] * 2),
        (
            [LOAD, replace(LOAD, place=PointRecord("k.py", 9))],
            ["tt.load (k.py:6)", "tt.load (k.py:9)"],
            ["tt.load", "tt.load"],
        ),
        ([LOAD, replace(LOAD, lines=(10, 10))], *[["tt.load (TTGIR line 8)", "tt.load (TTGIR line 10)"]] * 2),
        ([replace(LOAD, lines=None, place=None)] * 3, *[[f"tt.load ({number} of 3)" for number in (1, 2, 3)]] * 2),
    ],
)
def test_scopes_of_one_name_are_told_apart(scopes: list[Scope], names: list[str], titles: list[str]) -> None:
    assert distinct_names(scopes) == names
    assert distinct_names(scopes, with_source=True) == titles


def test_a_scope_is_found_in_another_table_by_what_it_records() -> None:
    """There it has another name and record, and another scope has these."""
    table = ScopeTable(
        scopes=(replace(LOOP, name="main", record="main"), replace(ITERATION, record="work"), OTHER_LOAD)
    )
    assert [table.at_site_of(scope) for scope in (LOOP, ITERATION, LOAD, OTHER_LOAD)] == [0, 1, None, 2]
