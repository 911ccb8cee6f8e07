"""Which scope of a table is the kernel's own."""

from __future__ import annotations

import pytest

from kprof_inject.capture.scopes import ScopeInfo, ScopeTable


def scope(name: str, kind: str, label: str) -> ScopeInfo:
    return ScopeInfo(name, name, kind, "", (), -1, label)


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
def test_the_scope_around_the_body(scopes: list[ScopeInfo], body: int | None) -> None:
    assert ScopeTable(tuple(scopes)).body == body
