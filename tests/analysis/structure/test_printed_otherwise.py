"""A module that is printed in another form has no change."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import beside, fixture_id, fixtures, form_of, read
from printed_forms import REWRITTEN, found_between

USUAL = [path for path in fixtures() if not form_of(path)]
IN_ANOTHER_FORM = [path for path in fixtures() if form_of(path)]


@pytest.mark.parametrize("form", REWRITTEN)
@pytest.mark.parametrize("path", USUAL[::53], ids=fixture_id)
def test_a_module_that_is_printed_otherwise_has_not_changed(path: Path, form: str) -> None:
    text = read(path)
    other = REWRITTEN[form](text)
    assert found_between(text, other) == ([], 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", REWRITTEN)
def test_all_modules_that_are_printed_otherwise_have_not_changed(form: str) -> None:
    texts = [read(path) for path in USUAL]
    wrong = [found for text in texts if (found := found_between(text, REWRITTEN[form](text))) != ([], 0)]
    assert wrong == []


@pytest.mark.parametrize("path", IN_ANOTHER_FORM, ids=fixture_id)
def test_a_module_that_triton_printed_in_another_form_has_not_changed(path: Path) -> None:
    usual = beside(path, ".ttgir")
    usual = usual if usual.exists() else usual.with_name(f"{usual.name}.gz")
    changes, differing = found_between(read(usual), read(path))
    assert changes == []
    assert form_of(path) == "generic" or not differing
