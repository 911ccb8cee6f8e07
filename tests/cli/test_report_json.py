"""``report --json``: everything, or what matters within a number of tokens."""

from __future__ import annotations

import json
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
from buffers import SM_CLOCK_HZ, Cta, Scope, buffer_words, end, kernel_json, save_launch, save_launches, start
from command_line import CommandLine
from pages import files_of
from programs.child import REPO
from several_kernels import three_kernels
from snapshots import check

CAPTURE = REPO / "tests/captures/matmul"


def brief(kprof: CommandLine, *arguments: str | Path, budget: int = 2000) -> dict[str, Any]:
    ended = kprof("report", "--json", "--budget", str(budget), *arguments)
    assert ended.exit_code == 0
    assert ended.stdout.count("\n") == 1 and len(ended.stdout) <= 4 * budget + 1
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def assert_rounded(short: Any, whole: Any) -> None:
    """Fail unless a value is the other's, with less of it and fewer digits."""
    if isinstance(short, dict):
        for key, value in short.items():
            assert_rounded(value, whole[key])
    elif isinstance(short, list):
        for value, other in zip(short, whole[: len(short)], strict=True):
            assert_rounded(value, other)
    elif isinstance(short, float):
        assert short == pytest.approx(whole, rel=1e-3)
    else:
        assert short == whole


def test_it_has_the_values_of_the_whole_report(kprof: CommandLine) -> None:
    (whole,) = json.loads(kprof("report", CAPTURE, "--json").stdout)
    whole["scopes"].sort(key=lambda scope: -scope["self_ns"])
    found = brief(kprof, CAPTURE)
    left_out = found.pop("left_out")
    assert_rounded(found, whole)
    assert {"limit", "trust", "advice", "scopes"} <= found.keys() and left_out.keys() <= {"stalls", "memory_waits"}


@pytest.mark.parametrize(("chosen", "shown"), [((), [2]), (("--launch", "1-3"), [1, 2, 3])])
def test_the_median_or_the_chosen_launches_are_there_in_full(
    kprof: CommandLine, chosen: tuple[str, ...], shown: list[int]
) -> None:
    buffers = [
        buffer_words([Cta([[start(0, 10), end(0, 900 + last)]], 0, 0, last, last)], 4) for last in range(1000, 1005)
    ]
    save_launches(kprof.folder / "capture", kernel_json([Scope("func")], buffers[0], 1), buffers)
    found = json.loads(kprof("report", "capture", "--json", *chosen).stdout)
    assert [launch["launch"] for launch in found] == shown
    assert {row["launch"] for launch in found for row in launch["other_launches"]} == (
        set() if chosen else {0, 1, 3, 4}
    )


def test_the_budget_is_kept_to_the_letter(kprof: CommandLine) -> None:
    refused = kprof("report", CAPTURE, "--json", "--budget", "10")
    assert (refused.exit_code, refused.stdout) == (2, "")
    least = int(refused.stderr.split("--budget ")[1].split()[0])
    for budget in (least, least + 50, least + 200):
        assert sum(brief(kprof, CAPTURE, budget=budget)["left_out"].values()) > 0
    assert kprof("report", CAPTURE, "--json", "--budget", str(least - 1)).exit_code == 2
    assert "--budget needs --json" in kprof("report", CAPTURE, "--budget", "500").stderr


@pytest.mark.parametrize("chosen", [(), ("--kernel", "long"), ("--launch", "1")])
def test_what_is_of_the_program_is_of_the_whole_capture(kprof: CommandLine, chosen: tuple[str, ...]) -> None:
    three_kernels(kprof.folder / "capture")
    found = brief(kprof, "capture", *chosen)
    assert (found["kernel"], found["program"]["share"]) == ("long", 0.6)
    assert (found["program"]["launches"], found["program"]["launches_captured"]) == (10, 2)


def test_a_name_that_no_terminal_shows_is_printed_as_what_it_is(kprof: CommandLine) -> None:
    ctas = [Cta([[start(0, 10), end(0, 1990)]])]
    save_launch(kprof.folder / "capture", [Scope('a"\\\n\x1b[31mé')], ctas, 4)
    assert brief(kprof, "capture")["scopes"][0]["distinct_name"] == 'a"\\  [31mé'


def waiting_capture(folder: Path, wait_ns: int) -> None:
    """20 launches of a kernel whose loop of ten iterations works for 5 µs in each, and then waits."""
    scopes = [
        Scope("func"),
        Scope("loop[0]", "loop", 0),
        Scope("iter[0]", "iter", 1),
        Scope("ttg.async_wait", "op", 2),
    ]
    buffers = [buffer_words([_waiting_cta(wait_ns + 10 * (number % 5))], 64) for number in range(20)]
    save_launches(folder, kernel_json(scopes, buffers[0], 1), buffers)


def _waiting_cta(wait_ns: int) -> Cta:
    begin_ns, work_ns = 1_000_000, 5000
    now_ns = begin_ns
    records = [(start, 0, now_ns), (start, 1, now_ns)]
    for _ in range(10):
        waits_ns, ends_ns = now_ns + work_ns, now_ns + work_ns + wait_ns
        records += [(start, 2, now_ns), (start, 3, waits_ns), (end, 3, ends_ns), (end, 2, ends_ns)]
        now_ns = ends_ns
    records += [(end, 1, now_ns), (end, 0, now_ns)]
    # Each record is made after the one before.
    cycles = [round(at_ns * SM_CLOCK_HZ / 1e9) + 2 * number for number, (_, _, at_ns) in enumerate(records)]
    warp = [made(scope, at) for (made, scope, _), at in zip(records, cycles, strict=True)]
    return Cta([warp], 0, begin_ns, now_ns + 100, now_ns + 200)


def test_the_tuner_of_the_documentation_stops_where_nothing_is_won(
    kprof: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second stage halves the waits, and a third changes nothing."""
    asked: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        program, *words = command
        assert program == "kprof-inject"
        asked.append(words[0])
        if words[0] == "profile":
            # Without a GPU: a capture in place of the run.
            waiting_capture(kprof.folder / words[words.index("-o") + 1], 8000 if words[-1] == "1" else 4000)
            return subprocess.CompletedProcess(command, 0, "")
        ended = kprof(*words)
        assert ended.stderr == "" or words[0] != "profile", ended.stderr
        stdout = ended.stdout
        if words[0] == "report":
            # The capture has no module, by which copies are known that are waited for.
            stdout = json.dumps(json.loads(stdout) | {"findings": [{"rule": "too-few-stages"}]})
        return subprocess.CompletedProcess(command, ended.exit_code, stdout)

    monkeypatch.setattr(subprocess, "run", run)
    kprof.write("tuner.py", files_of((REPO / "docs/agents.md").read_text())["tuner.py"])
    assert len(kprof.read("tuner.py").splitlines()) < 40
    runpy.run_path(str(kprof.folder / "tuner.py"))
    first, second, best = capsys.readouterr().out.splitlines()
    assert "B takes 30.7 % less time [" in first
    check("cli/tuner", "\n".join([first, second, best]))
    assert best.startswith("best: 2 stages; ")
    assert asked == ["profile", *["report", "profile", "diff"] * 2]
