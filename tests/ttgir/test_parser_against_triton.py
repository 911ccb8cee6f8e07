"""Triton's own parser judges ours: the same operations, nested the same way."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import fixture_id, installed_fixtures, our_tree, parse_with_triton, read, triton_tree
from ttgir_forms import FORMS, Form

from kprof_inject.ttgir.parser import parse


def test_the_installed_triton_has_fixtures_of_every_target() -> None:
    assert {path.parent.name for path in installed_fixtures()} == {"cuda-90", "cuda-100", "hip-gfx942"}


@pytest.mark.parametrize("path", installed_fixtures(), ids=fixture_id)
def test_a_fixture(path: Path) -> None:
    assert our_tree(parse(read(path))) == triton_tree(path)


@pytest.mark.parametrize("path", installed_fixtures(), ids=fixture_id)
def test_a_fixture_printed_without_locations(path: Path, tmp_path: Path) -> None:
    bare = parse_with_triton(path).str_nodebug()
    assert "loc(" not in bare

    assert our_tree(parse(bare)) == triton_tree(path)


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_a_hand_written_form(form: Form, newline: str, tmp_path: Path) -> None:
    text = form.text.replace("\n", newline)
    path = tmp_path / "form.ttgir"
    path.write_text(text, newline="")

    assert our_tree(parse(text)) == triton_tree(path)
