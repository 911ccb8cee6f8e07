"""The user's choice of what to record."""

from __future__ import annotations

import pytest
from msgspec import json

from kprof_inject.capture.recording import Recording


@pytest.mark.parametrize(
    ("recording", "asks"),
    [
        (Recording(), False),
        (Recording(replay=0), False),
        (Recording(replay=50), True),
        (Recording(replay=0, keep_launches=True), True),
    ],
)
def test_no_replays_are_no_request_for_saved_launches(recording: Recording, asks: bool) -> None:
    assert recording.asks_for_saved_launches == asks


def test_a_program_reads_a_choice_of_many_metrics() -> None:
    metrics = ",".join(f"sm__sass_thread_inst_executed_op_number_{number}_pred_on.sum" for number in range(200))
    recording = Recording(counters=metrics)
    assert json.decode(json.encode(recording), type=Recording) == recording
    assert set(metrics.split(",")) <= set(recording.metrics)
