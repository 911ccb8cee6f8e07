"""``explain``: bounded evidence for programs, and answers, on the recorded capture and on captures made by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from buffers import Cta, Scope, end, save_launch, start
from command_line import CommandLine
from programs.child import REPO

CAPTURE = REPO / "kprof_inject/demo/capture"
VALIDATOR = jsonschema.Draft202012Validator(json.loads((REPO / "docs/explain.schema.json").read_text()))


def explained(kprof: CommandLine, *arguments: str | Path) -> dict[str, Any]:
    ended = kprof("explain", *arguments)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(ended.stdout)
    VALIDATOR.validate(found)
    return found


def test_the_recorded_capture_is_explained(kprof: CommandLine) -> None:
    found = explained(kprof, CAPTURE)
    (launch,) = json.loads(kprof("report", CAPTURE, "--json").stdout)
    assert found["findings"][0]["text"] == launch["findings"][0]["text"]
    assert found["kernel"]["time_ns"] == launch["duration_ns"]
    assert found["limit"]["text"] == launch["limit"]["text"]
    assert [rule for one in found["not_judged"] for rule in one["rules"]] == ["waiting"]
    assert found["left_out"] == {}


@pytest.mark.parametrize("budget", [400, 450, 500, 550])
def test_the_budget_is_kept_to_the_letter(kprof: CommandLine, budget: int) -> None:
    ended = kprof("explain", CAPTURE, "--budget", str(budget))
    assert len(ended.stdout) <= 4 * budget
    assert sum(json.loads(ended.stdout)["left_out"].values()) > 0


def test_too_small_a_budget_is_a_usage_error_that_names_the_least(kprof: CommandLine) -> None:
    ended = kprof("explain", CAPTURE, "--budget", "10")
    assert (ended.exit_code, ended.stdout) == (2, "")
    least = ended.stderr.split("--budget ")[1].split()[0]
    assert kprof("explain", CAPTURE, "--budget", least).exit_code == 0
    assert kprof("explain", CAPTURE, "--budget", str(int(least) - 1)).exit_code == 2
    assert kprof("explain", CAPTURE, "--budget", "0").exit_code == 2


def test_the_default_workspace_and_its_last_capture(kprof: CommandLine) -> None:
    assert kprof("demo").exit_code == 0
    found = explained(kprof)
    assert found["next"]["command"] == "kprof-inject profile --launches 0:20 -- PROG"
    shutil.copytree(kprof.folder / "kprof_out", kprof.folder / "my work")
    assert explained(kprof, "my work")["next"]["command"].startswith("kprof-inject profile -o 'my work' --launches")


def test_kernel_and_launch_can_be_named(kprof: CommandLine) -> None:
    assert explained(kprof, CAPTURE, "--kernel", "matmul*", "--launch", "29")["kernel"]["launch"] == 29
    ended = kprof("explain", CAPTURE, "--kernel", "other")
    assert ended.exit_code == 1
    assert ended.errors() == ["error: --kernel other finds nothing"]


def test_questions_have_one_figure_each(kprof: CommandLine) -> None:
    found = explained(kprof, CAPTURE, "--question", "share loop[0]")
    assert (found["value"], found["samples"]) == (0.828, 1024)
    assert 0 < found["error"] < 0.05
    found = explained(kprof, CAPTURE, "--question", f"changed {CAPTURE} {CAPTURE}")
    assert (found["value"], found["launch"], found["kernel"]) == (None, None, "matmul_kernel")


@pytest.mark.parametrize(
    ("question", "exit_code", "line"),
    [
        ("why", 2, "--question:1:1: error: there is no question 'why'"),
        ("share loop[7]", 1, "error: matmul_kernel has no scope 'loop[7]'"),
        ("changed nowhere nowhere", 1, "error: nowhere does not exist"),
    ],
)
def test_what_cannot_be_answered_is_one_error(kprof: CommandLine, question: str, exit_code: int, line: str) -> None:
    ended = kprof("explain", CAPTURE, "--question", question)
    assert (ended.exit_code, ended.stdout) == (exit_code, "")
    assert ended.stderr.splitlines()[0] == line
    assert "hint: " in ended.stderr


def test_without_a_launch_there_is_nothing_to_explain(kprof: CommandLine) -> None:
    folder = Path(shutil.copytree(CAPTURE, kprof.folder / "capture"))
    for path in folder.glob("*/launches.jsonl"):
        path.write_text("")
    ended = kprof("explain", "capture")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "holds no launch" in ended.stderr


def test_a_name_that_no_terminal_shows_is_printed_as_what_it_is(kprof: CommandLine) -> None:
    name = 'a"\\\n\x1b[31mé'
    ctas = [Cta([[start(0, 10), end(0, 1990)]])]
    save_launch(kprof.folder / "capture", [Scope(name)], ctas, 4)
    ended = kprof("explain", "capture")
    assert "\x1b" not in ended.stdout
    assert json.loads(ended.stdout)["scopes"][0]["scope"] == 'a"\\  [31mé'
