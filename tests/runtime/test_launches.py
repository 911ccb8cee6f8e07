"""Which launches ``--launches`` keeps."""

from __future__ import annotations

import pytest

from kprof_inject.errors import KprofError
from kprof_inject.runtime.launches import parse_launches


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("last", [0, 1, 2, 3, 4, 5]),
        ("all", [0, 1, 2, 3, 4, 5]),
        ("first", [0]),
        ("0", [0]),
        ("3", [3]),
        ("2:4", [2, 3]),
        ("4:", [4, 5]),
        ("0:1", [0]),
        ("3:3", []),
        ("10", []),
    ],
)
def test_what_is_kept_of_six_launches(text: str, kept: list[int]) -> None:
    launches = parse_launches(text)
    assert [index for index in range(6) if launches.keeps(index)] == kept


def test_only_the_last_one_replaces_those_before() -> None:
    replacing = [text for text in ("last", "first", "all", "3", "2:4", "4:") if parse_launches(text).replaces]
    assert replacing == ["last"]


@pytest.mark.parametrize("text", ["", "-1", ":3", "1:2:3", "1-3", "LAST", "last ", "1.5", "1:x", "²"])
def test_anything_else_is_refused_as_wrong_usage(text: str) -> None:
    with pytest.raises(KprofError) as refusal:
        parse_launches(text)
    assert refusal.value.what == f"cannot read the launches {text!r}"
    assert str(refusal.value.where) == "--launches:1:1"
    assert refusal.value.exit_code == 2
