"""Launches that the program does not make one by one: replayed graphs, streams that overlap, threads."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product

import pytest
from program_runs import ProgramRuns, counts, span_ns


def test_the_last_replay_of_a_graph_is_captured(runs: ProgramRuns) -> None:
    options = ("--at", "func", "--at", "loop", "--at", "iter", "--buffer-type", "global", "--buffer-size", "16384")
    ended, run = runs.profile("replayed_graph", *options)
    (launch,) = run.launches
    assert launch.graph, ended
    # The kernel loops as often as it was replayed, so these can only be the last replay's.
    assert counts(launch) == {"func": 16 * 4, "loop[0]": 16 * 4, "iter[0]": 16 * 4 * 100}
    assert re.search("CUDA graph|last replay", ended.stderr + ended.stdout), f"nothing names this: {ended}"


@pytest.mark.parametrize("arguments", [(), ("--threads",)], ids=["streams", "threads"])
def test_launches_on_two_streams_at_once_are_kept_apart(runs: ProgramRuns, arguments: tuple[str, ...]) -> None:
    options = ("--at", "func", "--at", "loop", "--launches", "all")
    ended, run = runs.profile("two_streams", *options, arguments=arguments)

    streams = {launch.stream for launch in run.launches}
    spans = {stream: [span_ns(each) for each in run.launches if each.stream == stream] for stream in streams}
    assert len(streams) == 2, ended
    for kernel in ("decay_kernel", "root_kernel"):
        mine = run.launches_of(kernel)
        assert sorted(launch.index for launch in mine) == list(range(8)), ended
        assert Counter(launch.stream for launch in mine) == dict.fromkeys(streams, 4)
    for launch in run.launches:
        assert counts(launch) == {"func": 16 * 4, "loop[0]": 16 * 4}
    together_ns = max(min(one[1], other[1]) - max(one[0], other[0]) for one, other in product(*spans.values()))
    assert together_ns > 0, f"no two launches overlap on the device: {spans}"
    assert len({launch.ends_and_words()[1].tobytes() for launch in run.launches}) == 16, "two launches have one buffer"
