"""The limit that CI sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from buffers import Scope
from known_sides import HEAD_NS, ITER_NS, ITERATIONS, SCOPES, usual, with_rows
from numpy.typing import NDArray
from snapshots import check

from kprof_inject.analysis.comparison.verdicts import diff_captures
from kprof_inject.errors import KprofError
from kprof_inject.report.diff.terminal import crossings, parse_limit
from kprof_inject.timeline.timeline import Timeline


def check_crossing(crossing: str, case: str) -> None:
    check("report/diff-gate", crossing, case)


def crossed(a: list[Timeline], b: list[Timeline], limit: float, *scopes: str) -> list[str]:
    return list(crossings(diff_captures(a, b, scopes=scopes), limit, scopes))


@pytest.mark.parametrize(
    ("text", "limit"),
    [("5 %", 0.05), (".05", 0.05), ("0%", 0.0), ("0", 0.0), ("2.5%", 0.025), ("150%", 1.5)],
)
def test_limits_are_percentages_or_parts(text: str, limit: float) -> None:
    assert parse_limit(text) == pytest.approx(limit)


@pytest.mark.parametrize("text", ["", "%", "five", "-5%", "5%%", "1e3%", "nan"])
def test_other_limits_are_errors(text: str) -> None:
    with pytest.raises(KprofError) as failed:
        parse_limit(text)
    assert failed.value.exit_code == 2 and "5%" in failed.value.hint and (text in failed.value.what)
    if text == "five":
        check_crossing(failed.value.render(), "a limit that is none")


def test_a_bare_number_could_be_either() -> None:
    with pytest.raises(KprofError) as failed:
        parse_limit("5")
    assert failed.value.hint == "write 5% or 0.05"


def test_a_launch_that_is_slower_for_sure_crosses(tmp_path: Path) -> None:
    a, b = usual(tmp_path / "a", 1), usual(tmp_path / "b", 2, 1.1 * HEAD_NS, 1.1 * ITER_NS)
    (crossing,) = crossed(a, b, 0.05)
    check_crossing(crossing, "a slower launch")
    # Slower, but perhaps not by as much; faster; the same.
    assert crossed(a, b, 0.0985) == crossed(b, a, 0.0) == crossed(a, a, 0.0) == []


def test_a_scope_crosses_where_it_is_asked_for(tmp_path: Path) -> None:
    a = usual(tmp_path / "a", 1)
    b = usual(tmp_path / "b", 2, HEAD_NS - 0.1 * ITERATIONS * ITER_NS, 1.1 * ITER_NS)
    assert crossed(a, b, 0.05) == []
    (crossing,) = crossed(a, b, 0.05, "iter*", "func")
    check_crossing(crossing, "a slower scope")


def test_the_clock_crosses_nothing(tmp_path: Path) -> None:
    a = usual(tmp_path / "a", 1, clock_ghz=1.75)
    b = usual(tmp_path / "b", 2, 1.2 * HEAD_NS, 1.2 * ITER_NS, clock_ghz=1.75 / 1.2)
    assert crossed(a, b, 0.05, "*") == []
    # Of thirty per cent, twenty are the clock's.
    c = usual(tmp_path / "c", 3, 1.3 * HEAD_NS, 1.3 * ITER_NS, clock_ghz=1.75 / 1.2)
    assert len(crossed(a, c, 0.05)) == 1 and crossed(a, c, 0.1) == []


def test_what_cannot_be_told_is_not_let_through(tmp_path: Path) -> None:
    (crossing,) = crossed(usual(tmp_path / "a", 1, launches=1), usual(tmp_path / "b", 2, launches=1), 0.05)
    check_crossing(crossing, "too few launches")


def test_a_scope_that_ran_in_b_alone_is_not_let_through(tmp_path: Path) -> None:
    scopes = [*SCOPES, Scope("slow", "marker", 0)]
    a = usual(tmp_path / "a", 1, scopes=scopes)
    b = [with_rows(one, _with_slow(one)) for one in usual(tmp_path / "b", 2, scopes=scopes)]
    (crossing,) = crossed(a, b, 0.05, "slow")
    check_crossing(crossing, "a scope run in B alone")
    # Without --scope, the launch alone counts; and what B no longer does takes no longer.
    assert crossed(a, b, 0.05) == crossed(b, a, 0.05, "slow") == []


def test_where_records_are_missing_it_may_have_run_in_a_too(tmp_path: Path) -> None:
    scopes = [*SCOPES, Scope("slow", "marker", 0)]
    a = usual(tmp_path / "a", 1, scopes=scopes, records_lost=3)
    b = [with_rows(one, _with_slow(one)) for one in usual(tmp_path / "b", 2, scopes=scopes)]
    for mine, theirs in ((a, b), (b, a)):
        (crossing,) = crossed(mine, theirs, 0.05, "slow")
        check_crossing(crossing, "a scope with lost records")


def _with_slow(timeline: Timeline) -> NDArray[np.void]:
    """A scope more, in the time of the first."""
    slow = timeline.scopes[:1].copy()
    slow["scope"], slow["depth"] = len(SCOPES), 1
    return np.concatenate([timeline.scopes, slow])


def test_a_scope_that_only_one_side_has_is_not_let_through(tmp_path: Path) -> None:
    more = [*SCOPES, Scope("loop[1]", "loop", 0, ("/src/matmul.py", 30))]
    a, b = usual(tmp_path / "a", 1), usual(tmp_path / "b", 2, scopes=more)
    (crossing,) = crossed(a, b, 0.05, "loop*")
    check_crossing(crossing, "a scope that B alone has")
    assert crossed(a, b, 0.05, "func") == []


def test_a_kernel_that_is_missing_in_b_is_not_let_through(tmp_path: Path) -> None:
    mul = usual(tmp_path / "mul", 3, kernel={"name": "mul", "variant": "mul-0"})
    a, b = usual(tmp_path / "a", 1), usual(tmp_path / "b", 2)
    (crossing,) = crossed([*a, *mul], b, 0.05)
    check_crossing(crossing, "a kernel that A alone has")
    assert crossed(a, [*b, *mul], 0.05) == []
