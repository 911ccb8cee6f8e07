"""Arrows to waits for flags in a trace merged into torch's, judged by the trace processor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from programs.child import REPO
from replacing import replace
from torch_traces import Kernel, save_kineto
from trace_processor.processor import query_many

from kprof_inject.capture.reader import read_capture
from kprof_inject.export.drawing.flag_arrows import flag_arrows
from kprof_inject.pipeline.merging import merge_into
from kprof_inject.timeline.axis import place_launches
from kprof_inject.timeline.host_clock import fit_host_clock
from kprof_inject.timeline.timeline import Timeline, decode_launch
from kprof_inject.timeline.wait_ends import WaitEnds, wait_ends

ROUNDING_NS = 8
"""Of two times that count from a year before, as doubles: in microseconds, and then in nanoseconds."""

FAULTS = "SELECT name, value FROM stats WHERE severity = 'error' AND value > 0"
ARROWS = (
    "SELECT leaves.name AS leaves, leaves.ts AS leaves_ns, arrives.ts AS from_ns, arrives.ts + arrives.dur AS to_ns,"
    " parent.name AS wait, parent.ts + parent.dur AS end_ns,"
    " EXTRACT_ARG(arrives.arg_set_id, 'args.by_launch') AS by_launch,"
    " EXTRACT_ARG(arrives.arg_set_id, 'args.by_cta') AS by_cta"
    " FROM flow JOIN slice AS leaves ON leaves.id = slice_out JOIN slice AS arrives ON arrives.id = slice_in"
    " JOIN slice AS parent ON parent.id = arrives.parent_id WHERE arrives.category = 'wait'"
)
LAUNCHES = (
    "SELECT count(*) AS arrows FROM flow JOIN slice sent ON sent.id = slice_out JOIN slice came ON came.id = slice_in"
    " WHERE came.category = 'launch' AND sent.category = 'kernel'"
)


def of_two_ranks() -> list[Timeline]:
    launches = read_capture(REPO / "tests/captures/late-flags").launches
    return [decode_launch(one) for one in launches if one.index in (3, 4, 5)]


def save_torch(folder: Path, timelines: Sequence[Timeline], rank: int) -> Path:
    """A trace of a rank's launches as torch.profiler would record it: its bars are a little longer."""
    kernels = []
    for number, timeline in enumerate(one for one in timelines if one.launch.place.rank == rank):
        launch = timeline.launch
        clock = fit_host_clock([one for one in launch.origin.host_readings if one.device == launch.device])
        assert clock is not None and launch.host_end_ns is not None
        ends_ns = (timeline.ctas["init_ns"].min() - 700, timeline.ctas["post_final_ns"].max() + 600)
        start_ns, end_ns = clock.to_host_ns(np.array(ends_ns, dtype=np.int64)).tolist()
        grid, threads = launch.grid, 32 * launch.kernel.num_warps
        call_ns = (launch.host_ns, launch.host_end_ns)
        kernels.append(
            Kernel(
                launch.kernel.name, start_ns, end_ns, 7 + number, grid, threads, launch.device, launch.stream, call_ns
            )
        )
    pid = next(one.launch.origin.pid for one in timelines if one.launch.place.rank == rank)
    return save_kineto(folder / f"rank-{rank}.json", kernels, pid=pid, rank=rank)


def changers(ends: WaitEnds) -> Counter[int]:
    """Number of waits that each CTA ended."""
    changes = ends.visits.changes[ends.changes[ends.arrows()]]
    return Counter(changes["cta"].tolist())


def test_arrows_of_two_ranks_are_in_the_merged_trace(tmp_path: Path) -> None:
    timelines = of_two_ranks()
    traces = [save_torch(tmp_path, timelines, rank) for rank in (0, 1)]
    done = merge_into(traces, timelines)
    assert done.launches == len(timelines)
    faults, arrows, launches = query_many(done.path, [FAULTS, ARROWS, LAUNCHES])
    assert faults == [] and launches == [{"arrows": len(timelines)}]
    (ends,) = wait_ends(place_launches(timelines))
    # Torch's bars place the launches less exactly than the capture's clocks: no arrow points back.
    found, expected = Counter(row["by_cta"] for row in arrows), changers(ends)
    assert not found - expected
    assert sum(found.values()) >= 0.9 * sum(expected.values()) > 100
    for row in arrows:
        assert row["leaves"] == "tt.atomic_rmw" and str(row["wait"]).startswith("spin")
        assert row["leaves_ns"] < row["to_ns"] and 0 <= row["end_ns"] - row["to_ns"] <= 2 * ROUNDING_NS + 2
        assert "all_reduce_kernel launch" in str(row["by_launch"])


def test_one_rank_s_trace_has_no_arrow_from_the_other(tmp_path: Path) -> None:
    timelines = of_two_ranks()
    done = merge_into([save_torch(tmp_path, timelines, 0)], timelines)
    faults, arrows = query_many(done.path, [FAULTS, ARROWS])
    assert faults == []
    assert not [row for row in arrows if "rank 1" in str(row["by_launch"])]


def test_the_capture_s_clocks_tell_who_ended_a_wait() -> None:
    """If launches are drawn by other clocks, arrows have their times and lead from the same scopes."""
    placed = place_launches(of_two_ranks())
    (ends,) = wait_ends(placed)
    axis = replace(placed[0].clock.axis, zero_ns=placed[0].clock.axis.zero_ns - 5_000)
    later = [replace(one, clock=replace(one.clock, axis=axis)) for one in placed]
    moved = ends.by_clocks_of(later)
    for name in ("launch", "row", "cta", "scope", "flag"):
        assert (moved.visits.waits[name] == ends.visits.waits[name]).all()
        assert (moved.visits.changes[name] == ends.visits.changes[name]).all()
    assert (moved.visits.waits["ends_ns"] == ends.visits.waits["ends_ns"] + 5_000).all()
    plain, drawn = flag_arrows(placed), flag_arrows(placed, later)
    assert plain.keys() == drawn.keys()
    for number, arrows in plain.items():
        for mine, theirs in zip(arrows.leaving, drawn[number].leaving, strict=True):
            assert (mine.rows == theirs.rows).all() and (mine.ids == theirs.ids).all()
            assert (mine.at_ns + 5_000 == theirs.at_ns).all()
