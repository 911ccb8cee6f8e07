"""A buffer that stock Proton recorded on an H200 with Triton 3.6.0: ``tests/gpu/programs/proton_scopes.py`` made it.

There, on the GPU, a test compares what we make of such a buffer with Proton's own trace of it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from kprof_inject.capture.proton_buffer import is_proton_buffer, read_proton_buffer, read_scope_names
from kprof_inject.timeline.timeline import Timeline, decode_launch

RECORDED = Path(__file__).with_name("recorded_by_proton")
WARPS = 6 * 4
ROUNDS = 5


@pytest.fixture
def timeline() -> Timeline:
    assert is_proton_buffer(RECORDED / "kernel.bin")
    capture = read_proton_buffer(RECORDED / "kernel.bin", read_scope_names(RECORDED / "kernel.ttgir"))
    return decode_launch(capture.launches[0])


def test_every_scope_is_there_under_its_name(timeline: Timeline) -> None:
    names = [scope.name for scope in timeline.table.scopes]
    found = Counter(names[scope] for scope in timeline.scopes["scope"].tolist())
    assert found == {"whole": WARPS, "load": WARPS * ROUNDS, "work": WARPS * ROUNDS}
    assert (timeline.records_lost, timeline.records_damaged, timeline.ctas_never_ran) == (0, 0, 0)
    assert timeline.incomplete.size == 0


def test_scopes_stand_in_each_other_as_in_the_kernel(timeline: Timeline) -> None:
    names = np.array([scope.name for scope in timeline.table.scopes])[timeline.scopes["scope"]]
    assert set(timeline.scopes["depth"][names == "whole"].tolist()) == {0}
    assert set(timeline.scopes["depth"][names != "whole"].tolist()) == {1}


def test_times_are_within_those_of_their_cta(timeline: Timeline) -> None:
    ctas = timeline.ctas[np.argsort(timeline.ctas["cta"])]
    mine = ctas[timeline.scopes["cta"]]
    assert (timeline.scopes["start_ns"] > mine["init_ns"] - 200).all()
    assert (timeline.scopes["end_ns"] < mine["pre_final_ns"] + 200).all()
    assert 1e9 < timeline.clock.clock_hz < 2.2e9
