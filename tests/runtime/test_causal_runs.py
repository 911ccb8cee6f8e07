"""Runs that launch again by themselves: causal and run, on the fake GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_gpu.captured import launches_in
from fake_gpu.gpu import SLACK_CYCLES
from fake_runs import LAUNCHES, FakeRuns
from snapshots import check

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.trust import judge

Causal = tuple[FakeRuns, Any, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def causal(planned_once: FakeRuns, tmp_path_factory: pytest.TempPathFactory) -> Causal:
    """A run of ``causal`` from the program on, and what it printed. The workspace knows what records cost."""
    runs = planned_once.copied_to(tmp_path_factory.mktemp("causal"))
    ended = runs.kprof(
        "causal", "-o", runs.workspace, "--kernel", "scale", "--json", "--seconds", "2", LAUNCHES, "return"
    )
    assert ended.exit_code == 0, ended.stderr
    begin = ended.stdout.index("[\n {")
    return runs, ended, json.loads(ended.stdout[begin:])


def places(found: list[dict[str, Any]], kernel: str) -> dict[str, dict[str, Any]]:
    (mine,) = [one for one in found if one["kernel"] == kernel]
    return {place["scope"].split("@")[0]: place for place in mine["places"]}


def test_what_is_critical_and_what_is_hidden(causal: Causal) -> None:
    _, _, found = causal
    mine = places(found, "scale")
    assert mine["stores"]["slope"]["value"] == pytest.approx(1, abs=0.02)
    assert mine["stores"]["slack_cycles"] is None
    assert mine["loads"]["slope"]["value"] == pytest.approx(0, abs=0.05)
    assert mine["loads"]["slack_cycles"]["value"] == pytest.approx(SLACK_CYCLES, rel=0.05)


def test_the_program_computes_what_it_computes(causal: Causal) -> None:
    runs, ended, _ = causal
    plain = [line for line in runs.plain("return").stdout.splitlines() if not line.startswith("holds")]
    assert [line for line in ended.stdout.splitlines() if line in plain] == plain * 2


def test_a_workspace_alone_shows_its_last_results(causal: Causal) -> None:
    runs, _, found = causal
    shown = runs.kprof("causal", runs.workspace, "--json")
    assert json.loads(shown.stdout) == found
    assert read_capture(runs.workspace / "captures/001").made_by == "causal"
    table = runs.kprof("causal", runs.workspace, "--csv", runs.folder / "slopes.csv").stdout
    assert "stores@" in table
    assert (runs.folder / "slopes.csv").read_text().count("\n") == 1 + sum(len(one["places"]) for one in found)


def test_without_a_program_a_folder_must_be_a_workspace(fake_runs: FakeRuns) -> None:
    ended = fake_runs.kprof("causal")
    assert ended.exit_code == 1
    assert "kprof_out does not exist" in ended.stderr
    assert "profile -- PROG" in ended.stderr
    assert "has no experiment yet" in fake_runs.kprof("causal", fake_runs.workspace).stderr


# ``run`` launches kernels again by itself; which those are is no matter of Triton's version


def test_run_launches_again_what_the_dump_saw_too_seldom(fake_runs: FakeRuns) -> None:
    """``scale`` is launched often enough; of the autotuned kernel it is the build that was chosen."""
    plain = fake_runs.plain("return")
    ended = fake_runs.kprof("run", fake_runs.workspace, LAUNCHES, "return")
    assert ended.exit_code == 0, ended.stderr
    assert [line for line in ended.stdout.splitlines() if not line.startswith("holds")] == [
        line for line in plain.stdout.splitlines() if not line.startswith("holds")
    ]
    (said,) = (line for line in ended.stderr.splitlines() if "repeating" in line)
    check("runtime/replayed_runs", said)
    assert not (fake_runs.workspace / "launches").exists()
    verdicts = {launch.kernel.name: judge(launch.kernel).overhead for launch in launches_in(fake_runs.capture)}
    assert set(verdicts) == {"scale", "power", "tuned"}
    assert all(overhead is not None and overhead.is_measurable for overhead in verdicts.values())


def test_how_often_is_a_number_from_one_on(fake_runs: FakeRuns) -> None:
    ended = fake_runs.kprof("run", fake_runs.workspace, "--replay", "0", LAUNCHES)
    assert ended.exit_code == 2
    assert "--replay" in ended.stderr
