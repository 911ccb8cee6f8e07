"""A matmul of 132 records a warp in rings of 128: what is left stands where it stands in a run that lost nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gpu_support import EXAMPLES, Kprof

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import Timeline, decode_launch

WARPS, ITERATIONS, SLOTS = 4, 127, 128
RECORDS = 2 + 2 + ITERATIONS + 1
PROGRAM = (EXAMPLES / "matmul.py", "--k", str(64 * ITERATIONS), "--repeat", "1")
IDENTITY = ["cta", "warp", "scope", "start_record", "end_record"]


def timeline_of(kprof: Kprof, workspace: Path, *options: str) -> Timeline:
    kprof("run", workspace, *options, "--", *PROGRAM)
    (launch,) = read_capture(max((workspace / "captures").iterdir())).launches
    return decode_launch(launch)


def test_every_iteration_that_survives_is_the_one_of_a_larger_ring(kprof: Kprof, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    kprof("dump", "-o", workspace, "--", *PROGRAM)
    kprof("insert", workspace, "--at", "func", "--at", "loop", "--at", "iter")
    small = timeline_of(kprof, workspace, "--buffer-size", str(WARPS * SLOTS * 8))
    large = timeline_of(kprof, workspace, "--buffer-size", str(2 * WARPS * SLOTS * 8))

    warps = len(small.ctas) * WARPS
    assert (small.records_written, small.records_lost) == (warps * RECORDS, warps * (RECORDS - SLOTS))
    assert (large.records_written, large.records_lost) == (warps * RECORDS, 0)
    assert small.records_damaged == large.records_damaged == 0

    # The starts of the function and of the loop are lost, and with them both scopes, and the first two iterations. The
    # start of each iteration that has one before it counts as an end, too: so in the larger ring, what is left begins
    # two places further on.
    whole = large.scopes
    lost, told = RECORDS - SLOTS, 2
    expected = np.sort(whole[IDENTITY][whole["start_record"] >= lost + told])
    expected["start_record"] -= told
    expected["end_record"] -= told
    found = np.sort(small.scopes[IDENTITY])
    assert found.tolist() == expected.tolist()
    assert len(found) == warps * (ITERATIONS - 2)
    assert (small.scopes["iteration"] == -1).all()

    # Each warp says what it lacks, and from when to when.
    assert len(small.incomplete) == warps
    assert set(small.incomplete["records_lost"].tolist()) == {lost}
    assert set(small.incomplete["stray_ends"].tolist()) == {2}
    assert (small.incomplete["lost_end_ns"] > small.incomplete["lost_start_ns"]).all()

    # All of them stand within their CTA.
    ctas = small.ctas[np.argsort(small.ctas["cta"])]
    mine = ctas[np.searchsorted(ctas["cta"], small.scopes["cta"])]
    assert (small.scopes["start_ns"] >= mine["init_ns"] - 100).all()
    assert (small.scopes["end_ns"] <= mine["pre_final_ns"] + 100).all()
