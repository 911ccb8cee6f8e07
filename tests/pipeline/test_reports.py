"""Reports of thousands of launches: only what is shown is decoded, and it is what decoding all of them shows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median_low

import numpy as np
import pytest
from buffers import Cta, Scope, buffer_words, end, kernel_json, save_launches, start

from kprof_inject.analysis.program import MAX_JUDGED, Report
from kprof_inject.capture.model import Capture, Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.pipeline.captures import decode_capture, report_on
from kprof_inject.report.json_text import brief_text, whole_text
from kprof_inject.report.terminal.screens import answers_text
from kprof_inject.timeline import timeline as timeline_module
from kprof_inject.timeline.choice import EVERYTHING, Choice, NumberSet

SCOPES = [Scope("kernel", "func"), Scope("loop[0]", "loop", 0), Scope("iter[0]", "iter", 1)]
SHOWN = 10


def many_launches(folder: Path, count: int, kernels: int = 1, layout: str = "timed", sms: int = 2) -> Capture:
    """A capture of short launches of each kernel, of a CTA on each SM."""
    random = np.random.default_rng(count)
    for kernel in range(kernels):
        buffers = []
        for number in range(count):
            iterations = [
                entry
                for at in range(200, 600, 100)
                for entry in (start(2, at), end(2, at + 60 + int(random.integers(0, 30))))
            ]
            entries = [start(0, 100), start(1, 150), *iterations, end(1, 700), end(0, 900 + number)]
            last_ns = 3_000 + 4 * int(random.permutation(count)[0]) + kernel
            ctas = [Cta([entries], sm, 1_000 + 32 * sm, last_ns, last_ns + 100) for sm in range(sms)]
            buffers.append(buffer_words(ctas, 32))
        made = kernel_json(SCOPES, buffers[0], 1, name=f"kernel_{kernel}") | {"layout": layout}
        save_launches(folder, made, buffers, variant=f"v{kernel}")
    return read_capture(folder)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each launch was decoded."""
    counts: Counter[int] = Counter()
    decode = timeline_module._tallied

    def counting(launch: Launch) -> object:
        counts[id(launch)] += 1
        return decode(launch)

    monkeypatch.setattr(timeline_module, "_tallied", counting)
    return counts


def pending(capture: Capture, choice: Choice = EVERYTHING, say: Callable[[str], None] = lambda _: None) -> Report:
    return report_on(capture, (), say, choice)


def all_of(capture: Capture, choice: Choice = EVERYTHING) -> Report:
    return Report.of(decode_capture(capture, lambda _: None, choice), (), capture.launches)


@pytest.mark.parametrize(("count", "kernels"), [(100, 1), (200, 1), (10, 3), (200, 3)])
def test_only_what_is_shown_is_decoded(tmp_path: Path, decoded: Counter[int], count: int, kernels: int) -> None:
    capture = many_launches(tmp_path, count, kernels)
    answers_text(pending(capture), 120)
    assert 0 < len(decoded) <= SHOWN + kernels
    assert set(decoded.values()) == {1}


@pytest.mark.parametrize("choice", [Choice(), Choice(warps=NumberSet.of([0])), Choice(scopes=("loop*",))])
@pytest.mark.parametrize("kernels", [1, 3])
def test_it_shows_the_same(tmp_path: Path, kernels: int, choice: Choice) -> None:
    capture = many_launches(tmp_path, 15, kernels)
    assert answers_text(pending(capture, choice), 120) == answers_text(all_of(capture, choice), 120)
    assert brief_text(pending(capture, choice), 2000) == brief_text(all_of(capture, choice), 2000)


def test_damaged_launches_are_reported(tmp_path: Path) -> None:
    capture = many_launches(tmp_path, 80)
    for launch in capture.launches[3:5]:
        launch.path.write_bytes(b"short")
    said: list[str] = []
    assert len(pending(capture, say=said.append).launches) == 78
    expected: list[str] = []
    decode_capture(capture, expected.append)
    assert said == expected
    assert len(said) >= 2


def test_json_has_one_launch_of_each_kernel_and_rows_of_the_others(tmp_path: Path, decoded: Counter[int]) -> None:
    capture = many_launches(tmp_path, 70, 2)
    reports = pending(capture)
    shown = json.loads("".join(whole_text(reports)))
    assert len(shown) == 2 and len(decoded) == 2 * MAX_JUDGED
    for launch in shown:
        times_ns = [one.duration_ns for one in reports.launches if one.launch.kernel.name == launch["kernel"]]
        assert launch["duration_ns"] == median_low(times_ns)
        rows = launch["other_launches"]
        assert sorted([launch["launch"], *(row["launch"] for row in rows)]) == list(range(70))
        assert sorted([launch["duration_ns"], *(row["duration_ns"] for row in rows)]) == sorted(times_ns)
        assert {key: rows[0][key] for key in ("variant", "grid", "place", "records_lost", "ctas_damaged")} == {
            key: launch[key] for key in ("variant", "grid", "place", "records_lost", "ctas_damaged")
        }


def test_rows_count_lost_records(tmp_path: Path) -> None:
    full = [entry for at in range(10) for entry in (start(0, 100 + 10 * at), end(0, 105 + 10 * at))]
    buffers = [buffer_words([Cta([full], 0, 1_000, last_ns, last_ns + 100)], 8) for last_ns in (3_000, 4_000, 5_000)]
    save_launches(tmp_path, kernel_json([Scope("kernel", "func")], buffers[0], 1), buffers)
    reports = Report.of(decode_capture(read_capture(tmp_path), lambda _: None))
    (shown,) = json.loads("".join(whole_text(reports)))
    assert shown["records_lost"] == 12
    assert [row["records_lost"] for row in shown["other_launches"]] == [12, 12]
