"""``causal`` on the fake GPU, where what stands before a load is hidden for some cycles, and nothing before a store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fake_gpu.gpu import SLACK_CYCLES
from fake_runs import LAUNCHES, FakeRuns

from kprof_inject.capture.reader import read_capture


@pytest.fixture(scope="module")
def causal(
    planned_once: FakeRuns, tmp_path_factory: pytest.TempPathFactory
) -> tuple[FakeRuns, Any, list[dict[str, Any]]]:
    """A run of ``causal`` from the program on, and what it printed. The workspace knows what records cost."""
    folder = tmp_path_factory.mktemp("causal")
    ignored = shutil.ignore_patterns("captures")
    runs = FakeRuns(folder, Path(shutil.copytree(planned_once.workspace, folder / "ws", ignore=ignored)))
    ended = runs.kprof(
        "causal", "-o", runs.workspace, "--kernel", "scale", "--json", "--seconds", "2", LAUNCHES, "return"
    )
    assert ended.exit_code == 0, ended.stderr
    begin = ended.stdout.index("[\n {")
    return runs, ended, json.loads(ended.stdout[begin:])


def places(found: list[dict[str, Any]], kernel: str) -> dict[str, dict[str, Any]]:
    (mine,) = [one for one in found if one["kernel"] == kernel]
    return {place["scope"].split("@")[0]: place for place in mine["places"]}


def test_what_is_critical_and_what_is_hidden(causal: tuple[FakeRuns, Any, list[dict[str, Any]]]) -> None:
    _, _, found = causal
    mine = places(found, "scale")
    assert mine["stores"]["slope"]["value"] == pytest.approx(1, abs=0.02)
    assert mine["stores"]["slack_cycles"] is None
    assert mine["loads"]["slope"]["value"] == pytest.approx(0, abs=0.05)
    assert mine["loads"]["slack_cycles"]["value"] == pytest.approx(SLACK_CYCLES, rel=0.05)


def test_the_program_computes_what_it_computes(causal: tuple[FakeRuns, Any, list[dict[str, Any]]]) -> None:
    runs, ended, _ = causal
    plain = [line for line in runs.plain("return").stdout.splitlines() if not line.startswith("holds")]
    assert [line for line in ended.stdout.splitlines() if line in plain] == plain * 2


def test_a_workspace_alone_shows_its_last_results(causal: tuple[FakeRuns, Any, list[dict[str, Any]]]) -> None:
    runs, _, found = causal
    shown = runs.kprof("causal", runs.workspace, "--json")
    assert json.loads(shown.stdout) == found
    assert read_capture(runs.workspace / "captures/001").made_by == "causal"
    table = runs.kprof("causal", runs.workspace, "--csv", runs.folder / "slopes.csv").stdout
    assert "stores@" in table
    assert (runs.folder / "slopes.csv").read_text().count("\n") == 1 + sum(len(one["places"]) for one in found)


def test_a_dumped_workspace_is_gone_on_with(causal: tuple[FakeRuns, Any, list[dict[str, Any]]], tmp_path: Path) -> None:
    """What was compiled for it is compiled no more."""
    runs, _, _ = causal
    workspace = shutil.copytree(runs.workspace, tmp_path / "ws")
    builds = sorted(path.name for path in (workspace / "delays/builds").iterdir())
    ended = runs.kprof("causal", workspace, "--kernel", "scale", "--json", "--", LAUNCHES, "return")
    assert ended.exit_code == 0, ended.stderr
    (found,) = json.loads(ended.stdout[ended.stdout.index("[\n {") :])
    assert places([found], "scale")["stores"]["slope"]["value"] == pytest.approx(1, abs=0.02)
    assert sorted(path.name for path in (workspace / "delays/builds").iterdir()) == builds


def test_without_a_program_a_folder_must_be_a_workspace(fake_runs: FakeRuns) -> None:
    ended = fake_runs.kprof("causal")
    assert ended.exit_code == 1
    assert "kprof_out does not exist" in ended.stderr
    assert "profile -- PROG" in ended.stderr
    assert "has no experiment yet" in fake_runs.kprof("causal", fake_runs.workspace).stderr
