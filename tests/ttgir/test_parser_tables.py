"""The tables of the grammar that are shipped."""

from __future__ import annotations

import lark
import pytest
from golden import fixtures, our_tree, read
from programs.child import REPO

from kprof_inject.ttgir import grammar, parser

PINNED = next(
    line.partition("==")[2].strip()
    for line in (REPO / "constraints.txt").read_text().splitlines()
    if line.startswith("lark==")
)


@pytest.mark.skipif(lark.__version__ != PINNED, reason="the tables are for another Lark")
def test_they_are_of_this_grammar() -> None:
    assert grammar._shipped_tables() is not None, "run scripts/parser-tables"


def test_they_make_the_same_of_a_text_as_the_grammar_does(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = fixtures("3.6.0")[::7]
    with_tables = [our_tree(parser.parse(read(path))) for path in paths]
    monkeypatch.setattr(grammar, "_shipped_tables", lambda: None)
    parser._file_parser.cache_clear()
    try:
        assert [our_tree(parser.parse(read(path))) for path in paths] == with_tables
    finally:
        parser._file_parser.cache_clear()


def test_those_of_another_grammar_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "_source", lambda: "another")
    assert grammar._shipped_tables() is None
