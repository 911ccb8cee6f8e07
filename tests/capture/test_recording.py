"""The user's choice of what to record."""

from __future__ import annotations

import pytest
from msgspec import json
from snapshots import check

from kprof_inject.capture.counters import DEFAULT_METRICS, DRAM, TIME_NS, parse_metrics
from kprof_inject.capture.mode import Mode, parse_warps
from kprof_inject.capture.recording import Recording
from kprof_inject.errors import KprofError


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


# Which metrics ``--counters`` names.


def test_none_and_default() -> None:
    assert parse_metrics("none") == ()
    assert parse_metrics("default") == DEFAULT_METRICS
    assert {TIME_NS, DRAM} < set(DEFAULT_METRICS)
    assert len(set(DEFAULT_METRICS)) == len(DEFAULT_METRICS)


def test_metrics_are_added_once() -> None:
    found = parse_metrics(f"sm__inst_executed_pipe_adu.sum, {TIME_NS}")
    assert found == (*DEFAULT_METRICS, "sm__inst_executed_pipe_adu.sum")


@pytest.mark.parametrize("text", ["", "all", "sm__inst", "a.b c.d", "default,none"])
def test_what_is_no_metric(text: str) -> None:
    with pytest.raises(KprofError, match="is no name of a metric") as error:
        parse_metrics(text)
    assert error.value.exit_code == 2


# The mode: which warps record, and how the user names them.


def test_all_warps_record_if_none_is_named() -> None:
    assert Mode().recorded_warps(3) == (0, 1, 2)


def test_of_the_named_warps_those_record_that_a_kernel_has() -> None:
    mode = Mode(warps=(0, 4))
    assert mode.recorded_warps(8) == (0, 4)
    assert mode.recorded_warps(4) == (0,)


def test_a_kernel_with_none_of_the_named_warps_is_refused() -> None:
    with pytest.raises(KprofError, match=r"\(4, 7\).* 4 warps") as caught:
        Mode(warps=(4, 7)).recorded_warps(4)
    check("capture/errors", caught.value.render(), "none of the named warps")


@pytest.mark.parametrize(("text", "warps"), [("", ()), ("0", (0,)), ("4,0", (0, 4)), (" 1 , 1,12", (1, 12))])
def test_warps_are_named_by_number(text: str, warps: tuple[int, ...]) -> None:
    assert parse_warps(text) == warps


@pytest.mark.parametrize(
    ("text", "what", "column"),
    [
        ("0,x", "'x' is not a warp number", 3),
        ("-1", "'-1' is not a warp number", 1),
        ("0,,1", "a warp is missing", 3),
        ("0-3", "'0-3'", 1),
    ],
)
def test_what_is_no_warp_is_a_usage_error(text: str, what: str, column: int) -> None:
    with pytest.raises(KprofError, match=what) as caught:
        parse_warps(text)
    assert caught.value.exit_code == 2
    assert caught.value.where is not None
    assert (caught.value.where.file, caught.value.where.column) == ("--warps", column)
