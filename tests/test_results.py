"""What launches say in a notebook or a script: of the recorded capture, and of a profile that kept nothing."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_buffers import Mark, flashinfer
from programs.child import REPO
from several_kernels import save_kernels, three_kernels
from snapshots import check

import kprof_inject
from kprof_inject.errors import KprofError
from kprof_inject.results import Results
from kprof_inject.timeline.trust import judge
from kprof_inject.workspace_folder import held

CAPTURE = REPO / "tests/captures/matmul"


@pytest.fixture(scope="module")
def loaded() -> Results:
    return kprof_inject.load(CAPTURE)


def test_a_capture_is_loaded_with_all_that_it_says(loaded: Results) -> None:
    assert [timeline.launch.index for timeline in loaded.timelines] == [29]
    assert [finding.rule for finding in loaded.findings()] == ["throttled"]
    assert loaded.answers()[0].limit.units == ("tensor cores", "L2 to SM")
    assert loaded.summary()[0].scopes[2].count == 16_384


def test_the_report_is_that_of_the_command_line(loaded: Results) -> None:
    lines = loaded.report().splitlines()
    assert lines[0].startswith("matmul_kernel #29   median 16.9 µs ")
    assert lines[2].startswith("LIMIT  the tensor cores (") and "75.0 % of peak" in lines[2]
    check("results/report", "\n".join(lines))
    assert all(line == line.rstrip() and len(line) <= 110 for line in lines)


def test_the_json_is_that_of_the_command_line(loaded: Results) -> None:
    text = loaded.json(budget=500)
    assert len(text) < 4 * 500
    assert json.loads(text)["limit"]["text"] == json.loads(loaded.json())[0]["limit"]["text"]
    with pytest.raises(KprofError, match="too small"):
        loaded.json(budget=1)


def test_findings_are_ordered_by_what_they_win_of_the_program(tmp_path: Path) -> None:
    device = {"sm_count": 4, "clean": {"times_ns": [1000.0] * 3}}
    save_kernels(tmp_path, {"rare": (4000, 1)}, **device | {"sm_count": 8})
    save_kernels(tmp_path, {"frequent": (1000, 9)}, **device)
    found = kprof_inject.load(tmp_path).findings()
    fills = [one for one in found if one.rule == "low-fill"]
    assert [(one.kernel, one.launches, one.judged) for one in fills] == [("frequent", 2, 2), ("rare", 2, 2)]
    assert [(one.share, one.share_of_program) for one in fills] == [(0.75, 0.9 * 0.75), (0.875, 0.1 * 0.875)]


def test_a_kernel_can_be_chosen(tmp_path: Path) -> None:
    loaded = kprof_inject.load(three_kernels(tmp_path))
    assert loaded.report(kernel="sh*").splitlines()[1].startswith("short #0 ")
    launch = json.loads(loaded.json(kernel="short"))[0]
    assert (launch["kernel"], launch["program"]["share"]) == ("short", 0.3)
    assert "long" not in loaded.html(tmp_path / "page.html", kernel="short").read_text().partition("</title>")[0]
    assert {one.kernel for one in loaded.findings(kernel="short")} <= {"short"}
    for ask in (loaded.report, loaded.json, loaded.findings):
        with pytest.raises(KprofError, match="'shrt'\nhint: did you mean short"):
            ask(kernel="shrt")


def test_page_and_trace_are_written(loaded: Results, tmp_path: Path) -> None:
    assert loaded.html(tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert loaded.export(str(tmp_path / "scopes.csv")).stat().st_size > 1_000_000


def test_a_notebook_shows_the_report(loaded: Results) -> None:
    shown = loaded._repr_html_()
    assert shown.startswith("<pre style=") and shown.endswith("</pre>")
    text = re.sub(r"<[^>]*>", "", html.unescape(shown))
    assert text.startswith("matmul_kernel #29 ") and "tensor cores            75.0 %" in text
    assert '<span style="font-weight: bold">LIMIT' in shown


def test_a_launch_that_is_damaged_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CAPTURE, tmp_path / "capture"))
    next(path for path in folder.rglob("*.bin")).write_bytes(b"short")
    with pytest.warns(UserWarning, match="skipped a launch"), pytest.raises(KprofError, match="is damaged"):
        kprof_inject.load(folder)


def test_arguments_that_make_no_sense_are_refused_with_a_hint(loaded: Results) -> None:
    budget: Any = "3"
    calls: dict[str, Callable[[], object]] = {
        "budget": lambda: loaded.json(budget=budget),
        "no format": lambda: kprof_inject.read_buffer(np.zeros(9, np.int64)),
    }
    for case, call in calls.items():
        with pytest.raises(KprofError) as refused:
            call()
        assert refused.value.hint
        check("results/refusals", str(refused.value), case)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"max_bytes": 0}, "profile: max_bytes: expected int >= 1"),
        ({"kernel": 7}, "profile: kernel: expected str"),
        ({"mode": kprof_inject.Mode(buffer="local")}, "profile: mode.buffer: invalid enum value 'local'"),
        ({"mode": kprof_inject.Mode(warps=(4, 0))}, "profile: mode: expected ascending warps"),
        (
            {"mode": kprof_inject.Mode(sched_stores=True), "at": "func --tag n=n"},
            "cannot record tags: it moves the store",
        ),
        ({"launches": -1}, "there is no launch -1"),
        ({"split": "always"}, "there is no split 'always'\nhint: choose never or runs"),
        ({"iter_records": "three"}, "there is no iter_records 'three'\nhint: choose one or two"),
    ],
)
def test_arguments_of_a_profile_are_refused_at_once(tmp_path: Path, arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(KprofError, match=what) as refused:
        kprof_inject.profile(folder=tmp_path / "ws", **arguments)
    assert refused.value.hint and not (tmp_path / "ws").exists()


def test_names_of_a_buffer_are_given_as_on_the_command_line() -> None:
    words = flashinfer(1, [[[Mark(0, 0, 100), Mark(1, 0, 120), Mark(1, 1, 150), Mark(0, 1, 200)]]], [5])
    for names, expected in (("whole, part", ["whole", "part"]), (["", "part"], ["scope 0", "part"])):
        made = kprof_inject.read_buffer(words, format="flashinfer", names=names)
        assert [scope.name for scope in made.timeline.table.scopes] == expected
    for wrong, what in (
        ({"format": "7"}, "no profiler is called '7'"),
        ({"names": 7}, "names are no list of texts: 7"),
    ):
        with pytest.raises(KprofError, match=what) as refused:
            kprof_inject.read_buffer(words, **{"format": "flashinfer", **wrong})
        assert refused.value.hint


def test_without_a_launch_there_is_nothing_to_show(tmp_path: Path) -> None:
    profile = kprof_inject.profile(at="loop", folder=tmp_path)
    for ask in (profile.report, lambda: profile.html(tmp_path / "page.html"), lambda: profile.timeline):
        with pytest.raises(KprofError, match="no launch was recorded"):
            ask()
    assert profile._repr_html_() == "<pre>&lt;Profile: 0 launches of no kernel&gt;</pre>"
    assert profile.findings() == []


def test_a_folder_that_cannot_be_made_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(KprofError, match=r"file/ws: Not a directory\nhint: "):
        kprof_inject.profile(folder=tmp_path / "file" / "ws")


def test_dir_shows_the_api_and_nothing_else() -> None:
    api = ["KprofError", "Mode", "__version__", "diff", "load", "profile", "read_buffer", "to_arrow", "to_pandas"]
    assert dir(kprof_inject) == api
    assert sorted([*kprof_inject.__all__, "__version__"]) == api
    assert all(getattr(kprof_inject, name) for name in dir(kprof_inject))


def test_what_a_user_prints_takes_one_line() -> None:
    loaded = kprof_inject.load(CAPTURE)
    timeline = loaded.timeline
    printed = [*loaded.answers(), timeline, timeline.clock, timeline.table, timeline.launch, timeline.launch.kernel]
    texts = [repr(one) for one in [*printed, *loaded.summary(), judge(timeline.launch.kernel)]]
    assert max(map(len, texts)) < 250 and not any("\n" in text for text in texts)
    check("api/results", "\n".join(texts), "representations")


def fail(message: str) -> None:
    pytest.fail(message)


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    with held(tmp_path, fail), pytest.raises(KprofError, match="is in use by process"):
        kprof_inject.profile(folder=tmp_path)
    profiles = [kprof_inject.profile(folder=tmp_path) for _ in range(2)]
    # Neither holds the folder, nor the one compiler of this process, after it was refused.
    for profile in profiles:
        with held(tmp_path, fail), pytest.raises(KprofError, match="is in use by process"):
            profile.__enter__()


def test_a_folder_is_the_blocks_while_it_lasts_and_has_no_captures_that_hold_nothing(tmp_path: Path) -> None:
    with kprof_inject.profile(folder=tmp_path) as profile:
        with pytest.raises(KprofError, match="is in use by process"):
            kprof_inject.profile(folder=tmp_path)
        assert profile.timelines == profile.timelines == []
        assert [path.name for path in (tmp_path / "captures").iterdir()] == ["001"]
    assert not (tmp_path / "captures").exists()
    with held(tmp_path, fail):
        pass
