"""The mode: which warps record, and how the user names them."""

from __future__ import annotations

import pytest
from snapshots import check

from kprof_inject.capture.mode import Mode, parse_warps
from kprof_inject.errors import KprofError


def test_all_warps_record_if_none_is_named() -> None:
    assert Mode().recorded_warps(3) == (0, 1, 2)


def test_of_the_named_warps_those_record_that_a_kernel_has() -> None:
    mode = Mode(warps=(0, 4))
    assert mode.recorded_warps(8) == (0, 4)
    assert mode.recorded_warps(4) == (0,)


def test_a_kernel_with_none_of_the_named_warps_is_refused() -> None:
    with pytest.raises(KprofError, match=r"\(4, 7\).* 4 warps") as caught:
        Mode(warps=(4, 7)).recorded_warps(4)
    check("capture/errors", caught.value.render(), "none of the named warps")


@pytest.mark.parametrize(("text", "warps"), [("", ()), ("0", (0,)), ("4,0", (0, 4)), (" 1 , 1,12", (1, 12))])
def test_warps_are_named_by_number(text: str, warps: tuple[int, ...]) -> None:
    assert parse_warps(text) == warps


@pytest.mark.parametrize(
    ("text", "what", "column"),
    [
        ("0,x", "'x' is not a warp number", 3),
        ("-1", "'-1' is not a warp number", 1),
        ("0,,1", "a warp is missing", 3),
        ("0-3", "'0-3'", 1),
    ],
)
def test_what_is_no_warp_is_a_usage_error(text: str, what: str, column: int) -> None:
    with pytest.raises(KprofError, match=what) as caught:
        parse_warps(text)
    assert caught.value.exit_code == 2
    assert caught.value.where is not None
    assert (caught.value.where.file, caught.value.where.column) == ("--warps", column)
