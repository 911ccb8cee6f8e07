"""A CTA that is late at a barrier by a known time is named, with that time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_support import Kprof

PROGRAM = Path(__file__).with_name("programs") / "late_at_barrier.py"
ROUNDS = 8


@pytest.mark.parametrize(("late", "ns"), [(37, 20_000), (0, 5_000)])
def test_the_cta_that_is_late_is_named(kprof: Kprof, tmp_path: Path, late: int, ns: int) -> None:
    program = (PROGRAM, "--late", str(late), "--ns", str(ns), "--rounds", str(ROUNDS))
    assert "met" in kprof("profile", "-o", tmp_path / "ws", "--ctas", "all", "--", *program).stdout
    (launch,) = json.loads(kprof("report", tmp_path / "ws", "--json").stdout)
    print(kprof("report", tmp_path / "ws", "-v").stdout)
    (wait,) = launch["memory_waits"]
    barrier = wait["barrier"]
    assert (barrier["cta"], barrier["last_in"], barrier["rounds"]) == (late, ROUNDS, ROUNDS)
    assert barrier["after_next_ns"] == pytest.approx(ns, rel=0.1)
    assert launch["limit"]["name"] == "waits for memory"
    assert launch["findings"][0]["rule"] == "late-cta"
