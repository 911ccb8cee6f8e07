"""Which launches ``--launches`` keeps."""

from __future__ import annotations

import pytest
from snapshots import check

from kprof_inject.capture.recording import parse_launches
from kprof_inject.errors import KprofError

pytestmark = pytest.mark.triton


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("last", [0, 1, 2, 3, 4, 5]),
        ("all", [0, 1, 2, 3, 4, 5]),
        ("first", [0]),
        ("3", [3]),
        ("10", []),
        ("1:6:2", [1, 3, 5]),
    ],
)
def test_what_is_kept_of_six_launches(text: str, kept: list[int]) -> None:
    launches = parse_launches(text)
    assert [index for index in range(6) if launches.keeps(index)] == kept


def test_a_range_keeps_what_a_slice_of_python_has() -> None:
    numbers = ["", "0", "1", "2", "7"]
    for text in (f"{a}:{b}:{step}" for a in numbers for b in numbers for step in ["", "1", "2", "3"]):
        wanted = list(range(9))[slice(*(int(part) if part else None for part in text.split(":")))]
        if not wanted:
            with pytest.raises(KprofError, match=r"^no launch is in"):
                parse_launches(text)
        else:
            assert [index for index in range(9) if parse_launches(text).keeps(index)] == wanted


def test_only_the_last_one_replaces_those_before() -> None:
    replacing = [text for text in ("last", "first", "all", "3", "2:4", "4:", "::2") if parse_launches(text).replaces]
    assert replacing == ["last"]


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("", 1, "cannot read the launches ''"),
        ("1-3", 2, "cannot read the launches '1-3'"),
        ("1:2:3x", 6, "cannot read the launches '1:2:3x'"),
        ("1:2:3:4", 6, "cannot read the launches '1:2:3:4'"),
        ("²", 1, "cannot read the launches '²'"),
        ("9" * 5000, 19, f"cannot read the launches '{'9' * 5000}'"),
        ("-1", 1, "there is no launch -1"),
        ("2:-1", 3, "there is no launch -1"),
        ("::-2", 3, "there is no launch -2"),
        ("10:5", 4, "no launch is in 10:5"),
        (":0", 2, "no launch is in :0"),
        ("0:10:0", 6, "the step is 0"),
    ],
)
def test_anything_else_is_refused_as_wrong_usage(text: str, column: int, what: str) -> None:
    with pytest.raises(KprofError) as refusal:
        parse_launches(text)
    assert refusal.value.what == what
    assert str(refusal.value.where) == f"--launches:1:{column}"
    assert refusal.value.exit_code == 2
    if text == "10:5":
        check("runtime/launches", refusal.value.render())
