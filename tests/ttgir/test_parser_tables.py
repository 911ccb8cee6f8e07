"""The shipped tables of the grammars."""

from __future__ import annotations

from pathlib import Path

import lark
import pytest
from golden import fixtures, our_tree, read
from programs.child import REPO

from kprof_inject.select.selectors import SELECTORS
from kprof_inject.ttgir import parser
from kprof_inject.ttgir.grammar import TTGIR_FOLDER, Grammar

PINNED = next(
    line.partition("==")[2].strip()
    for line in (REPO / "constraints.txt").read_text().splitlines()
    if line.startswith("lark==")
)
GRAMMARS = [parser.FILES, SELECTORS]


@pytest.mark.skipif(lark.__version__ != PINNED, reason="the tables are for another Lark")
@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.tables_file.stem)
def test_they_are_of_these_grammars(grammar: Grammar) -> None:
    assert grammar.shipped_tables() is not None, "run scripts/parser-tables"


def test_they_make_the_same_of_a_text_as_the_grammar_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    paths = fixtures("3.6.0")[::7]
    with_tables = [our_tree(parser.parse(read(path))) for path in paths]
    monkeypatch.setattr(parser.FILES, "tables_file", tmp_path / "none")
    parser._file_parser.cache_clear()
    try:
        assert [our_tree(parser.parse(read(path))) for path in paths] == with_tables
    finally:
        parser._file_parser.cache_clear()


def test_those_of_another_grammar_are_not_taken() -> None:
    another = Grammar(TTGIR_FOLDER, "file", lambda: "another")
    assert another.tables_file.is_file()
    assert another.shipped_tables() is None
