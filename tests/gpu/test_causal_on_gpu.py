"""Delays on a device: programs compute what they compute, what is critical is found so, and nothing hangs."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from gpu_support import ROOT, Kprof
from program_runs import ProgramRuns

SECONDS = ("--seconds", "2", "--json")
KNOWN_SLACK = ROOT / "benchmarks/causal/known_slack.py"


def found_in(printed: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(printed[printed.index("[\n {") :])
    return found


PROGRAMS = {
    **{way: ("seldom", "--way", way) for way in ("once", "descriptor", "in_place", "flagged", "locking")},
    **{name: (name,) for name in ("two_streams", "replayed_graph", "gluon_scale", "compiled_block")},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_the_same_bit_for_bit(runs: ProgramRuns, name: str) -> None:
    program, *arguments = PROGRAMS[name]
    ended = runs.run_beside_itself("causal", program, *SECONDS, arguments=tuple(arguments))
    for found in found_in(ended.stdout) if arguments and name != "locking" else ():
        print(f"{name}: {found['kernel']} {found['timed']} times, slopes within {found['slope_error']}")
        assert found["timed"] > 50


@pytest.mark.parametrize(("kernel", "side", "other"), [("meet", 3000, 2000), ("ring", 2000, 3000)])
def test_the_slower_side_is_critical_and_the_faster_one_has_the_difference(
    kprof: Kprof, monkeypatch: pytest.MonkeyPatch, kernel: str, side: int, other: int
) -> None:
    """The difference of the spins, and what else the faster side does less: that is measured without us."""
    monkeypatch.syspath_prepend(str(KNOWN_SLACK.parent))
    against_known = importlib.import_module("against_known")
    ended = kprof(
        "causal", "--at", "op(tt.elementwise_inline_asm)", "--seconds", "20", "--json", "--",
        KNOWN_SLACK, "--kernel", kernel, "--side", side, "--other", other,
    )  # fmt: skip
    (found,) = found_in(ended.stdout)
    spare = against_known.spare_cycles(kernel, side, other)
    for place, mine, its in zip(found["places"], (side, other), (other, side), strict=True):
        slope, slack = place["slope"], place["slack_cycles"]
        print(f"{kernel} {mine} against {its}: {slope}, slack {slack}, spare {spare}")
        assert slope["value"] == pytest.approx(1 if mine > its else 0, abs=0.1)
        if mine < its:
            assert slack["value"] == pytest.approx(spare, rel=0.05)
