"""``doctor``: a row for everything, whatever is missing or broken, and an exit code that says if we can work."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import REAL_TORCH, CommandLine
from programs.child import REPO, SMALL_TORCH, Ended, python_path
from snapshots import check

from kprof_inject.cli.main import root
from kprof_inject.packages import REQUIRED, TO_RUN
from kprof_inject.runtime import diagnosis
from kprof_inject.runtime.diagnosis import gpus


def findings(ended: Ended) -> dict[str, dict[str, Any]]:
    """The rows of ``doctor --json`` by what they are about."""
    assert "Traceback" not in ended.stderr
    return {row["what"]: row for row in json.loads(ended.stdout)}


def package(kprof: CommandLine, name: str, text: str) -> dict[str, str]:
    """An environment in which a module of this text is found before any other of its name."""
    folder = kprof.folder / "packages"
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)
    return {"PYTHONPATH": python_path(folder, SMALL_TORCH)}


def test_a_machine_without_a_gpu_is_fine_for_all_but_running(kprof: CommandLine) -> None:
    ended = kprof("doctor", "--json", env=REAL_TORCH)
    rows = findings(ended)
    assert [what for what, row in rows.items() if row["status"] == "missing"] == []
    assert (rows["GPU"]["status"], rows["GPU"]["fact"].partition(" (")[0]) == ("warning", "torch sees no GPU")
    assert (ended.exit_code, ended.stderr) == (0, "")
    numbers = [("compiler", re.compile(r"(?<=: )\d+(?= bytes)")), ("start-up hook", re.compile(r"(?<=Triton )\S+"))]
    for what, varying in numbers:
        check("cli/doctor", varying.sub("N", rows[what]["fact"]), what)
    assert os.listdir(kprof.folder) == ["home"]
    assert os.listdir(kprof.folder / "home") == []


def test_the_table_says_the_same(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    assert exit_code_of(monkeypatch, "packages", "GPU") == 0
    shown = capsys.readouterr()
    lines = [line.split()[:3] for line in shown.out.splitlines()]
    assert ["Python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))},"] in lines
    assert "try and causal need one" in " ".join(shown.out.split())
    check("cli/doctor", shown.err, "next")


def exit_code_of(monkeypatch: pytest.MonkeyPatch, *checks: str, options: Sequence[str] = ()) -> object:
    """How it ends if it makes only these checks, in this process."""
    monkeypatch.setattr(diagnosis, "_CHECKS", {name: diagnosis._CHECKS[name] for name in checks})
    with pytest.raises(SystemExit) as ended:
        root.main(["doctor", *options])
    return ended.value.code


@pytest.mark.parametrize(
    ("text", "status", "fact"),
    [
        ("__version__ = '3.2.0'", "problem", r"3\.2\.0, \S+: .*3\.2\.0 is not supported"),
        ("raise ImportError('no libtriton')", "missing", r"cannot be imported: no libtriton"),
        ("raise RuntimeError('half installed')", "problem", r"cannot be checked: RuntimeError: half installed"),
    ],
)
def test_a_triton_that_we_cannot_work_with(kprof: CommandLine, text: str, status: str, fact: str) -> None:
    ended = kprof("doctor", "--json", env=package(kprof, "triton", text))
    rows = findings(ended)
    assert ended.exit_code == 1
    assert rows["Triton"]["status"] == status
    assert re.fullmatch(fact, rows["Triton"]["fact"])


def test_the_interpreter_gets_in_the_way(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert exit_code_of(monkeypatch, "TRITON_INTERPRET", options=["--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    check("cli/doctor", row["advice"], "TRITON_INTERPRET")


@pytest.mark.parametrize(
    ("properties", "fact"),
    [
        ({"name": "NVIDIA H200", "major": 9, "minor": 0}, "NVIDIA H200, capability 9.0, 140 GiB"),
        ({"name": "MI300X", "major": 9, "minor": 4, "gcnArchName": "gfx942"}, "MI300X, gfx942, 140 GiB"),
    ],
)
def test_each_gpu_is_named(monkeypatch: pytest.MonkeyPatch, properties: dict[str, Any], fact: str) -> None:
    device = SimpleNamespace(**properties, total_memory=140 << 30)
    cuda = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 2, get_device_properties=lambda index: device
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert [(found.what, found.status, found.fact) for found in gpus()] == [
        ("GPU 0", "ok", fact),
        ("GPU 1", "ok", fact),
    ]


def test_the_versions_asked_for_are_those_of_the_package() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    for first, asked in ((REQUIRED, project["dependencies"]), (TO_RUN, project["optional-dependencies"]["run"])):
        assert {f"{name}>={'.'.join(map(str, numbers))}" for name, numbers in first.items()} == set(asked)
