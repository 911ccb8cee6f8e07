"""The limit that CI sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_sides import HEAD_NS, ITER_NS, ITERATIONS, usual

from kprof_inject.errors import KprofError
from kprof_inject.report.diff.captures import diff_captures
from kprof_inject.report.diff.gate import Crossing, crossings, parse_limit
from kprof_inject.timeline.timeline import Timeline


def crossed(a: list[Timeline], b: list[Timeline], limit: float, *scopes: str) -> list[Crossing]:
    return list(crossings(diff_captures(a, b, scopes=scopes), limit, scopes=bool(scopes)))


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("5%", 0.05),
        ("5 %", 0.05),
        ("0.05", 0.05),
        (".05", 0.05),
        ("0%", 0.0),
        ("0", 0.0),
        ("2.5%", 0.025),
        ("150%", 1.5),
    ],
)
def test_limits_are_percentages_or_parts(text: str, limit: float) -> None:
    assert parse_limit(text) == pytest.approx(limit)


@pytest.mark.parametrize("text", ["", "%", "five", "-5%", "5%%", "1e3%", "nan", "5 percent", "5%x"])
def test_other_limits_are_errors(text: str) -> None:
    with pytest.raises(KprofError, match="cannot read the limit") as failed:
        parse_limit(text)
    assert failed.value.exit_code == 2 and "5%" in failed.value.hint


def test_a_bare_number_could_be_either() -> None:
    with pytest.raises(KprofError) as failed:
        parse_limit("5")
    assert failed.value.hint == "write 5% or 0.05"


def test_a_launch_that_is_slower_for_sure_crosses(tmp_path: Path) -> None:
    a, b = usual(tmp_path / "a", 1), usual(tmp_path / "b", 2, 1.1 * HEAD_NS, 1.1 * ITER_NS)
    (crossing,) = crossed(a, b, 0.05)
    assert crossing.known and crossing.text.startswith("kernel is slower by more than 5 %: +")
    # Slower, but perhaps not by as much; faster; the same.
    assert crossed(a, b, 0.0985) == crossed(b, a, 0.0) == crossed(a, a, 0.0) == []


def test_a_scope_crosses_where_it_is_asked_for(tmp_path: Path) -> None:
    a = usual(tmp_path / "a", 1)
    b = usual(tmp_path / "b", 2, HEAD_NS - 0.1 * ITERATIONS * ITER_NS, 1.1 * ITER_NS)
    assert crossed(a, b, 0.05) == []
    assert [one.what for one in crossed(a, b, 0.05, "iter*", "func")] == ["iter[0] of kernel"]


def test_the_clock_crosses_nothing(tmp_path: Path) -> None:
    a = usual(tmp_path / "a", 1, clock_ghz=1.75)
    b = usual(tmp_path / "b", 2, 1.2 * HEAD_NS, 1.2 * ITER_NS, clock_ghz=1.75 / 1.2)
    assert crossed(a, b, 0.05, "*") == []
    # Of thirty per cent, twenty are the clock's.
    c = usual(tmp_path / "c", 3, 1.3 * HEAD_NS, 1.3 * ITER_NS, clock_ghz=1.75 / 1.2)
    assert len(crossed(a, c, 0.05)) == 1 and crossed(a, c, 0.1) == []


def test_what_cannot_be_told_is_not_let_through(tmp_path: Path) -> None:
    (crossing,) = crossed(usual(tmp_path / "a", 1, launches=1), usual(tmp_path / "b", 2, launches=1), 0.05)
    assert not crossing.known and crossing.text == "cannot tell whether kernel is slower by more than 5 %"
