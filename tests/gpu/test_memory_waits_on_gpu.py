"""CTAs that meet at a barrier wait as long as one of them is late, by a known time."""

from __future__ import annotations

import json

import pytest
from program_runs import PROGRAMS, ProgramRuns

CTAS, ROUNDS, LATE_NS = 64, 8, 20_000


def test_the_time_waited_is_that_by_which_a_cta_is_late(runs: ProgramRuns) -> None:
    program = (PROGRAMS / "late_at_barrier.py", "--ns", str(LATE_NS), "--rounds", str(ROUNDS))
    printed = runs.start_kprof("profile", "--json", "--ctas", "all", "--", *program).wait().stdout
    assert "met" in printed
    (launch,) = json.loads(printed[printed.index("[") :])
    (wait,) = launch["memory_waits"]
    print(wait)
    assert wait["ctas"] == CTAS
    assert wait["median_ns"] == pytest.approx(ROUNDS * LATE_NS, rel=0.15)
    assert wait["min_ns"] < 0.5 * ROUNDS * LATE_NS
    assert launch["limit"]["name"] == "waits for memory"
