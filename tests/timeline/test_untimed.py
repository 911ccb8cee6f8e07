"""Launches without timer readings: an assumed clock, and everything that does not hang on it as with readings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from buffers import SM_CLOCK_HZ, Cta, Entry, JsonWriter, Scope, buffer_words, kernel_json, launch_json, make_editable
from numpy.typing import NDArray

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import Timeline, decode_launch

SCOPES = [Scope("kernel", "func"), Scope("loop[0]", "loop", 0)]
FUNC, LOOP = 0, 1
HOST_NS = 1_764_000_000_000_000_000
# Each SM's counter has a zero of its own.
AHEAD_CYCLES = {3: 5_000_000, 9: 1 << 42}


def cta(sm: int, begin: int, records: list[tuple[int, bool, int]]) -> Cta:
    """A CTA of one warp. Its records are given by cycles since its begin, which is ``begin`` cycles after its SM's."""
    return Cta([[Entry(scope, is_end, AHEAD_CYCLES[sm] + begin + at) for scope, is_end, at in records]], sm)


WORK = [(FUNC, False, 0), (LOOP, False, 100), (LOOP, True, 1080), (FUNC, True, 1980)]
CTAS = [cta(9, 0, WORK), cta(3, 0, WORK), None, cta(9, 3960, WORK)]


def untimed_words(ctas: list[Cta | None], slots: int = 8) -> NDArray[np.uint32]:
    return np.delete(buffer_words(ctas, slots), range(4, 10), axis=1)


def decoded(folder: Path, words: NDArray[np.uint32], *host_readings: dict[str, int]) -> Timeline:
    """What comes of a launch that the host made at ``HOST_NS``."""
    kernel = kernel_json(SCOPES, words, 1) | {"layout": "untimed"}
    writer = JsonWriter(folder / "process", {"pid": 7})
    writer.add_kernel("v0", kernel, "module {}\n", {})
    writer.add_launch(launch_json(words, host_ns=HOST_NS), memoryview(words.tobytes()))
    writer.finish()
    make_editable(folder)
    lines = [json.dumps(reading) + "\n" for reading in host_readings]
    (folder / "process" / "clock.jsonl").write_text("".join(lines))
    return decode_launch(read_capture(folder).launches[0])


def test_the_clock_is_said_to_be_nominal(tmp_path: Path) -> None:
    clock = decoded(tmp_path, untimed_words(CTAS)).clock

    assert (clock.source, clock.readings) == ("nominal", 0)
    assert clock.clock_hz == pytest.approx(SM_CLOCK_HZ)
    assert clock.rate_error >= 0.2


def test_every_sm_begins_with_the_launch(tmp_path: Path) -> None:
    timeline = decoded(tmp_path, untimed_words(CTAS))

    loops = timeline.scopes[timeline.scopes["scope"] == LOOP]
    assert (timeline.ctas["init_ns"] - HOST_NS).tolist() == [0, 0, 2000]
    assert (timeline.ctas["pre_final_ns"] - HOST_NS).tolist() == [1000, 1000, 3000]
    assert (loops["start_ns"] - HOST_NS).tolist() == [51, 51, 2051]
    assert (loops["end_cycles"] - loops["start_cycles"]).tolist() == [980, 980, 980]
    assert (timeline.ctas_never_ran, timeline.warp_time_ns) == (1, 3000)


def test_the_begin_is_the_call_by_the_globaltimer_if_the_host_read_it(tmp_path: Path) -> None:
    readings = [
        {"device": 0, "host_ns": HOST_NS - 1_000, "device_ns": 50_000, "error_ns": 10},
        {"device": 0, "host_ns": HOST_NS + 9_000_000, "device_ns": 9_999_999, "error_ns": 10},
        {"device": 1, "host_ns": HOST_NS, "device_ns": 77, "error_ns": 10},
    ]

    assert decoded(tmp_path, untimed_words(CTAS), *readings).ctas["init_ns"].min() == 51_000


def test_lost_records_are_reckoned_into_the_begin(tmp_path: Path) -> None:
    steps = [(LOOP, index % 2 == 1, 100 * index) for index in range(24)]

    timeline = decoded(tmp_path, untimed_words([cta(3, 0, steps)]))

    assert timeline.records_lost == 16
    assert timeline.incomplete["lost_start_ns"].tolist() == [HOST_NS]
    assert timeline.scopes["start_ns"][0] - HOST_NS == round(1600 / SM_CLOCK_HZ * 1e9)
