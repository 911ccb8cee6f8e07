"""Launches of which it is known what every warp did, in all modes: decoded exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from generated_launches import launches
from hypothesis import given, settings
from known_launches import KnownLaunch, Survivors, survivors
from numpy.typing import NDArray
from scratch import scratch_folder

from kprof_inject.timeline.timeline import decode_launch

pytestmark = pytest.mark.slow


def found_in(launch: KnownLaunch) -> Survivors:
    """What is decoded, by the counters that the launch was made with."""
    with scratch_folder() as folder:
        timeline = decode_launch(launch.save(Path(folder), launch.words()))
        scopes, incomplete = timeline.scopes, timeline.incomplete
    shift = shifts(launch, scopes)
    assert not (shift % launch.recording.period).any()
    cycles = [scopes[f"{side}_cycles"] - shift[scopes["sm"]] for side in ("start", "end")]
    columns = ["cta", "warp", "scope", "start_record", "end_record", "depth", "iteration"]
    before, after = [scopes[column] for column in columns[:3]], [scopes[column] for column in columns[3:]]
    for nothing in ("open_starts", "records_damaged"):
        assert not incomplete[nothing].any()
    assert timeline.scope_count == len(scopes)
    return Survivors(
        list(zip(*(column.tolist() for column in (*before, *cycles, *after)), strict=True)),
        timeline.stray_ends.tolist(),
        incomplete[["cta", "warp", "records_written", "records_lost", "stray_ends"]].tolist(),
    )


def shifts(launch: KnownLaunch, scopes: NDArray[np.void]) -> NDArray[np.int64]:
    """How far each SM's counter is from what it truly showed: whole periods, which no record tells."""
    shift = np.zeros(3, dtype=np.int64)
    truth = {row[:3]: row[3] for row in survivors(launch).scopes}
    for scope in scopes:
        key = scope["cta"], scope["warp"], scope["scope"]
        # The last of its kind in its warp.
        if key in truth:
            shift[scope["sm"]] = scope["start_cycles"] - truth[key]
    return shift


@settings(deadline=None, max_examples=100)
@given(launches())
def test_every_scope_that_is_left_is_found_as_it_was(launch: KnownLaunch) -> None:
    assert found_in(launch) == survivors(launch)
