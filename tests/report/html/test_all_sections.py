"""Sections of launches of every kind are JSON, of bounded size."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from altered import altered, answer_of
from buffers import Cta, Scope, end, save_launch, start

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.stalls import LineStalls, Stalls
from kprof_inject.analysis.limits.unit_evidence import UnitEvidence
from kprof_inject.capture.model import Launch
from kprof_inject.capture.proton_buffer import read_proton_buffer
from kprof_inject.capture.reader import read_capture
from kprof_inject.report.html.data import launch_sections, page_values
from kprof_inject.report.html.pictures import ScopePictures
from kprof_inject.timeline.timeline import decode_launch

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "tests" / "captures" / "matmul"
PROTON_BUFFER = ROOT / "tests" / "capture" / "recorded_by_proton" / "kernel.bin"


def json_of(report: LaunchAnalysis) -> str:
    pictures = ScopePictures(report.summary)
    for _ in pictures.seeing(report.timeline.blocks()):
        pass
    made = {**launch_sections(report), "answer": answer_of(report), "pictures": pictures.drawn()}
    return json.dumps(page_values(made), allow_nan=False)


def sections_of(launch: Launch) -> dict[str, Any]:
    """As a browser reads them: NaN is not JSON."""
    made: dict[str, Any] = json.loads(json_of(LaunchAnalysis.of(decode_launch(launch))))
    return made


def loop(scope_id: int, begin: int, times: int) -> list[Any]:
    return [
        record
        for n in range(times)
        for record in (start(scope_id, begin + 100 * n), end(scope_id, begin + 100 * n + 60))
    ]


def test_the_demo_s_matmul() -> None:
    [launch] = read_capture(DEMO).launches
    made = sections_of(launch)
    assert [scope["distinct_name"] for scope in made["answer"]["scopes"]] == ["func", "loop[0]", "iter[0]"]
    assert sum(made["pictures"][2]["histogram"]["counts"]) == 16_384
    assert [line["line"] for line in made["source"][0]["timed"]] == [15, 56]
    assert (len(made["heat_map"]["sms"]["steps"]), sum(made["heat_map"]["counts"])) == (132, 256)


def test_a_launch_whose_warps_were_sampled() -> None:
    [launch] = read_capture(DEMO).launches
    reasons = {"barrier": 60, "selected": 40}
    plain = LaunchAnalysis.of(decode_launch(launch))
    [path] = [path for path in launch.kernel.sources() if path.endswith(".py")]
    line = LineStalls(50, (path, 56), reasons, {})
    stalls = Stalls(100, reasons, {0: reasons, 1: reasons, 2: {}}, (line,), 0, {})
    made = json.loads(json_of(altered(plain, stalls=stalls, units=(UnitEvidence("ALU", 0.1, None, 0.2),))))
    assert [scope["scope"] for scope in made["stalls"]["scopes"]] == [0, 1]
    assert [line["line"] for line in made["ttgir"]["stalls"]] == [50]
    assert [line["line"] for line in made["source"][0]["stalls"]] == [56]
    assert [unit["unit"] for unit in made["answer"]["units"]] == ["ALU"]


def test_a_launch_without_ctas(tmp_path: Path) -> None:
    made = sections_of(save_launch(tmp_path, [Scope("func")], [None, None], slots=8))
    assert (made["heat_map"], made["pictures"][0]["histogram"]) == (None, None)


def test_a_kernel_without_scopes(tmp_path: Path) -> None:
    made = sections_of(save_launch(tmp_path, [], [Cta([[], []])], slots=4))
    assert (made["pictures"], made["source"]) == ([], [])


def test_lost_records_and_records_without_a_partner(tmp_path: Path) -> None:
    cta = Cta([[start(0, 100), *loop(1, 200, 20), end(0, 3000)], [start(0, 90), start(1, 100)]])
    made = sections_of(save_launch(tmp_path, [Scope("func"), Scope("iter", "iter", 0)], [cta], slots=8))
    assert made["answer"]["scopes"][0]["without_partner"] == 2
    assert any("lost" in note for note in made["answer"]["notes"])


def test_scopes_that_cross_and_instants(tmp_path: Path) -> None:
    scopes = [Scope("a", "marker"), Scope("b", "marker"), Scope("now", "mark")]
    entries = [start(0, 100), start(1, 200), start(2, 250), end(2, 250), end(0, 300), end(1, 400)]
    made = sections_of(save_launch(tmp_path, scopes, [Cta([entries])], slots=16))
    assert [scope["crossing"] for scope in made["answer"]["scopes"]] == [1, 1, 0]
    assert made["answer"]["scopes"][2]["count"] == 1


def test_a_launch_of_a_triton_that_reads_no_timer(tmp_path: Path) -> None:
    launch = save_launch(
        tmp_path, [Scope("func")], [Cta([[start(0, 100), end(0, 900)]], init_ns=0, pre_final_ns=0, post_final_ns=0)], 4
    )
    timeline = decode_launch(launch)
    assert timeline.clock.source != "fitted"
    assert json.loads(json_of(LaunchAnalysis.of(timeline)))["answer"]["scopes"][0]["count"] == 1


def test_a_buffer_of_proton_s_own_has_neither_source_nor_module() -> None:
    [launch] = read_proton_buffer(PROTON_BUFFER).launches
    made = sections_of(launch)
    assert (made["source"], made["ttgir"]) == ([], None)
    assert sum(scope["count"] for scope in made["answer"]["scopes"]) > 0


def test_256_scopes_stay_small(tmp_path: Path) -> None:
    scopes = [Scope(f"scope {n}", "marker", n - 1 if n % 8 else -1, ("/k.py", n + 1)) for n in range(256)]
    random = np.random.default_rng(4)
    entries = [
        record
        for turn in range(3)
        for n in range(256)
        for at in [100_000 * turn + 300 * n]
        for record in (start(n, at), end(n, at + int(random.integers(20, 250))))
    ]
    made = sections_of(save_launch(tmp_path, scopes, [Cta([entries], pre_final_ns=150_000)], slots=2048))
    assert [scope["count"] for scope in made["answer"]["scopes"]] == [3] * 256
    assert len(json.dumps(made)) < 600_000


def test_columns_are_base64_lists_or_differences() -> None:
    words = np.array([[1, -2], [300, 70_000]], dtype=np.int32)
    assert page_values(words) == {"type": "i4", "base64": base64.b64encode(words.astype("<i4").tobytes()).decode()}
    assert page_values(np.array([0, 255], dtype=np.uint8)) == {"type": "u1", "base64": "AP8="}
    assert page_values(np.array([7, 9, 9, 20])) == {"steps": [7, 2, 0, 11]}
    assert page_values(np.array([7, 5])) == [7, 5]
    assert page_values(np.array([0.1, np.nan])) == [0.1, None]
