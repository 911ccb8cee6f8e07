"""``compare``: a program under two settings, on the fake GPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import CommandLine, diagnosis
from fake_gpu.known_cost import keep_cost
from programs.child import Ended, fake_gpu_path
from snapshots import check

from kprof_inject.cli import compare as compare_command
from kprof_inject.cli.compare import ComparedSettings
from kprof_inject.pipeline.compare_runs import ComparedRounds, ComparedSide, first_slower
from kprof_inject.report.diff.change_verdicts import ChangeVerdict
from kprof_inject.workspace import Workspace

PROGRAM = """
import os, sys
from fake_gpu.program import gpu  # isort: skip  (before Triton)
import torch
from fake_gpu.kernels import scale

x = torch.arange(1, 17, dtype=torch.float32)
gpu.longer_ns = longer = int(os.environ.get("LONGER", 0))
for n in range(6):
    scale[(16,)](x, torch.zeros_like(x), n + longer + len(sys.argv))
print("the program's own output")
"""


def compare(folder: Path, *words: str) -> Ended:
    (folder / "program.py").write_text(PROGRAM)
    return CommandLine(folder, fake_gpu_path())("compare", "--rounds", "1", *words, "--", "program.py")


def test_what_a_variable_changes_is_told_and_gates(tmp_path: Path) -> None:
    for side in "AB":
        keep_cost(Workspace.begin(tmp_path / "kprof_compare" / side))
    words = ("--values", "LONGER=0,4000", "--at", "func", "--fail-above", "5%", "--json")
    ended = compare(tmp_path, *words)
    assert ended.exit_code == 1
    (kernel,) = json.loads(ended.stdout)["kernels"]
    assert (kernel["kernel"], kernel["verdict"]) == ("scale", "slower")
    (part,) = kernel["structure"]["parts"]
    (change,) = part["changes"]
    before, after = ("1, 2, 3, 4 and 2 more", "4001, 4002, 4003, 4004 and 2 more")
    assert change["text"] == f"argument n {before} → {after}"
    assert (kernel["structure"]["only_part"], kernel["structure"]["differing_lines"]) == (part["part"], 0)
    assert ended.stderr.count("the program's own output") == 4
    assert "A (LONGER=0): round 1 of 1" in ended.stderr
    assert "B (LONGER=4000): round 1 of 1" in ended.stderr
    assert "next: " not in ended.stderr
    assert "--fail-above 5%: scale is slower " in ended.stderr
    assert sorted(path.name for path in (tmp_path / "kprof_compare").iterdir()) == ["A", "B"]


@pytest.mark.parametrize(
    "words",
    [
        "--",
        "--env LONGER",
        "--python a --python b --python c",
        "--bisect --env A=1",
        "--triton nowhere",
        "--python ./nowhere",
        "--env A=1 --launches many",
        "--env A=1 --html .",
        "--env num-stages=4",
        "--values A=1",
        "--values A=1,1",
        "--values num-stages=3,2",
        "--values A=1,2 --env A=3",
        "--tag tile=n --env A=1",
        "--values A=1,2,3 --python a --python b --bisect",
        "--values --stages=1,2,3",
        "--values A=1,2 --triton a --triton b --triton c",
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_runs(kprof: CommandLine, words: str) -> None:
    kprof.write("program.py", "raise SystemExit('it ran')")
    ended = kprof("compare", *words.removesuffix("--").split(), "--", "program.py")
    assert ended.exit_code in (1, 2)
    check("cli/compare_mistakes", ended.stderr, words)
    assert "it ran" not in ended.stderr and not (kprof.folder / "kprof_compare").exists()


def test_a_side_that_fails_has_told_its_error_itself(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print(1)")
    ended = CommandLine(tmp_path, fake_gpu_path())("compare", "--env", "LONGER=1", "--", "program.py")
    assert ended.exit_code == 1
    assert len(ended.errors()) == 1
    check("cli/compare", diagnosis(ended), "a side that fails")


def test_each_side_has_its_value_and_all_but_the_first_what_is_b_s(tmp_path: Path) -> None:
    values = [("--stages", "3"), ("--stages", "2"), ("--stages", "1")]
    a, b, c = ComparedSettings((), (), {"N": "1"}, ("--long",), values).sides(tmp_path, bisect=True)
    assert [side.name for side in (a, b, c)] == ["A (--stages=3)", "B (--stages=2)", "C (--stages=1)"]
    assert (a.environment, a.arguments) == ({}, ("--stages", "3"))
    assert (c.environment, c.arguments) == ({"N": "1"}, ("--long", "--stages", "1"))
    a, b = ComparedSettings((), (), {}, (), [("WIDE", "0"), ("WIDE", "1")]).sides(tmp_path, bisect=False)
    assert [side.environment for side in (a, b)] == [{"WIDE": "0"}, {"WIDE": "1"}]


@pytest.mark.parametrize("first", range(1, 9))
def test_halving_finds_the_first_slower_side(first: int) -> None:
    asked: list[int] = []

    def is_slower(number: int) -> bool:
        asked.append(number)
        return number >= first

    assert first_slower(9, is_slower) == first
    assert len(asked) <= 5


@pytest.mark.parametrize(
    ("slower", "case", "pairs"),
    [
        ("", "none is slower", ["AD"]),
        ("?", "unknown whether D is slower", ["AD"]),
        ("BCD", "B is slower", ["AD", "AB"]),
        ("D", "D is slower", ["AD", "AB", "AC", "CD"]),
    ],
)
def test_no_pair_is_measured_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slower: str, case: str, pairs: list[str]
) -> None:
    measured: list[str] = []
    said: list[str] = []

    def compared(a: ComparedSide, b: ComparedSide, _: Any) -> Any:
        measured.append(a.name + b.name)
        verdict = ChangeVerdict.UNKNOWN if slower == "?" else ChangeVerdict.SAME
        launch = SimpleNamespace(verdict=ChangeVerdict.SLOWER if b.name in slower else verdict)
        return compare_command._Compared(a, b, SimpleNamespace(kernels=[SimpleNamespace(launch=launch)]))  # type: ignore[arg-type]

    monkeypatch.setattr(compare_command, "_compared", compared)
    monkeypatch.setattr(compare_command, "say", said.append)
    found = compare_command._around_slower(
        [ComparedSide(name, tmp_path) for name in "ABCD"], ComparedRounds(1, (), "*", "all", ())
    )
    assert measured == pairs and found.a.name + found.b.name == pairs[-1]
    check("cli/compare", "\n".join(said), case)


def test_where_the_last_is_not_slower_there_is_nothing_to_find() -> None:
    assert first_slower(9, lambda _: False) is None
