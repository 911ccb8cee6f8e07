"""The workflow and hook files of the project, and those that its pages give users."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from pages import files_of
from programs.child import REPO, run_child
from ruamel.yaml import YAML

import kprof_inject

PAGE = files_of((REPO / "docs/ci.md").read_text())
LINTED = {
    "its own": (REPO / ".github/workflows/test.yml").read_text(),
    "the page's": PAGE[".github/workflows/kernels.yml"],
}
(HOOK,) = YAML(typ="safe").load((REPO / ".pre-commit-hooks.yaml").read_text())


@pytest.mark.parametrize("text", LINTED.values(), ids=LINTED)
def test_a_workflow_passes_the_linter(text: str, tmp_path: Path) -> None:
    (tmp_path / "workflow.yml").write_text(text)
    linter = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", "workflow.yml"]
    ended = run_child(linter, tmp_path)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "ok -- validation done")


def test_the_page_names_the_hook_that_there_is() -> None:
    (repo,) = YAML(typ="safe").load(PAGE[".pre-commit-config.yaml"])["repos"]
    assert [hook["id"] for hook in repo["hooks"]] == [HOOK["id"]]


def test_the_hook_tells_sound_files_from_broken_ones(kprof: CommandLine) -> None:
    sound = REPO / "ttgir_fixtures/3.6.0/cuda-90/vector_add.ttgir"
    (kprof.folder / "broken.ttgir").write_text(sound.read_text().replace("tt.return", "tt.retrun"))
    command, *words = shlex.split(HOOK["entry"])
    assert command == "kprof-inject"
    assert kprof(*words, sound).exit_code == 0
    assert kprof(*words, sound, "broken.ttgir").exit_code == 1


def test_the_metrics_of_the_page_are_those_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    results = kprof_inject.load(REPO / "tests/captures/matmul")
    names: dict[str, object] = {}
    exec(PAGE["kernel_metrics.py"], names)
    monkeypatch.setattr(kprof_inject, "profile", lambda at: Profiled(results))
    calls: list[int] = []
    metrics = names["kernel_metrics"](lambda: calls.append(1))  # type: ignore[operator]
    assert calls == [1]
    (kernel,) = metrics.values()
    assert list(metrics) == ["matmul_kernel"]
    assert kernel["limit"].startswith("the tensor cores") and kernel["verdict"] == "careful"
    assert kernel["duration_us"] == pytest.approx(14.048)
    assert kernel["loop[0]_share"] == pytest.approx(0.828, abs=1e-3)
    assert 0 < kernel["worth"] < 1


class Profiled:
    """A block around which a profile finds these results."""

    def __init__(self, results: object) -> None:
        self.results = results

    def __enter__(self) -> object:
        return self.results

    def __exit__(self, *_: object) -> None:
        pass
