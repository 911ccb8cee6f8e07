"""Triton's own parser judges ours: the same operations, nested the same way, in whatever form they were printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import fixture_id, our_tree, read
from triton_oracle import installed_fixtures, one_of_each_kernel, parse_with_triton, triton_tree
from ttgir_forms import FORMS, Form

from kprof_inject.ttgir.parser import parse

INSTALLED = installed_fixtures()
TARGETS = {"cuda-80", "cuda-90", "cuda-100", "hip-gfx942", "hip-gfx950"}


@pytest.mark.triton
def test_the_installed_triton_has_fixtures_of_every_target() -> None:
    assert {path.parent.name for path in INSTALLED} == TARGETS


@pytest.mark.triton
@pytest.mark.parametrize("path", INSTALLED, ids=fixture_id)
def test_a_fixture(path: Path) -> None:
    assert our_tree(parse(read(path))) == triton_tree(path)


@pytest.mark.triton
@pytest.mark.parametrize("path", one_of_each_kernel(), ids=fixture_id)
def test_a_fixture_printed_without_locations(path: Path) -> None:
    bare = parse_with_triton(path).str_nodebug()

    assert "loc(#loc" not in bare
    assert our_tree(parse(bare)) == triton_tree(path)


@pytest.mark.triton
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("form", FORMS.values(), ids=repr)
def test_a_hand_written_form(form: Form, newline: str, tmp_path: Path) -> None:
    text = form.text.replace("\n", newline)
    path = tmp_path / "form.ttgir"
    path.write_text(text, newline="")

    assert our_tree(parse(text)) == triton_tree(path)
