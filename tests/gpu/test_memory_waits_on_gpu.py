"""CTAs that meet at a barrier wait as long as one of them is late, by a known time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_support import Kprof

PROGRAM = Path(__file__).with_name("programs") / "late_at_barrier.py"
CTAS, ROUNDS = 64, 8


@pytest.mark.parametrize(("late", "ns"), [(37, 20_000), (0, 5_000)])
def test_the_time_waited_is_that_by_which_a_cta_is_late(kprof: Kprof, tmp_path: Path, late: int, ns: int) -> None:
    program = (PROGRAM, "--late", str(late), "--ns", str(ns), "--rounds", str(ROUNDS))
    assert "met" in kprof("profile", "-o", tmp_path / "ws", "--ctas", "all", "--", *program).stdout
    (launch,) = json.loads(kprof("report", tmp_path / "ws", "--json").stdout)
    (wait,) = launch["memory_waits"]
    print(wait)
    assert wait["ctas"] == CTAS
    assert wait["median_ns"] == pytest.approx(ROUNDS * ns, rel=0.15)
    assert wait["min_ns"] < 0.5 * ROUNDS * ns
    assert launch["limit"]["name"] == "waits for memory"
