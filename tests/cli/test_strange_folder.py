"""Every command in a folder that a stranger filled: with modules named as those we import, and with settings."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from golden import FIXTURES
from programs.child import PROGRAMS, REPO, fake_gpu_path, run_child, run_python

STARTUP = PROGRAMS.parent / "fake_gpu" / "startup"
MODULES = ("click", "json", "msgspec", "numpy", "pickle", "platform", "selectors", "torch", "triton")
IMPORTED = "with open({log!r}, 'a') as file: print(__file__, file=file)\nraise ImportError\n"
SETTINGS = """
[tool.kprof-inject]
csv = "kept.csv"
trace = "kept.json"
output = "elsewhere"
hooks = ["msgspec.py"]
"""

COMMANDS = [
    ["profile", "-o", "ws", "scale.launch"],
    ["try", "-o", "tried", "--edit", "num_warps=2", "scale.launch"],
    ["causal", "-o", "delayed", "--at", "func", "--seconds", "0.1", "scale.launch"],
    ["list", "kernel.ttgir"],
    ["insert", "kernel.ttgir", "-o", "inserted.ttgir"],
    ["strip", "inserted.ttgir", "-o", "stripped.ttgir"],
    ["check", "inserted.ttgir"],
    ["report", "capture"],
    ["trace", "capture", "-o", "trace.json"],
    ["diff", "capture", "capture"],
    ["doctor"],
]
MADE = {"ws", "tried", "delayed", "inserted.ttgir", "stripped.ttgir", "trace.json", "home"}

# As with the script ``kprof-inject``, the current folder is not on the path (``-P``).
ALL_UNDER_A_HOOK = """
import contextlib, io, json, os, sys
modules, ended, touched = json.loads(sys.argv[2]), [], []

def note(event, arguments):
    if event == "open" and os.path.abspath(str(arguments[0])) in modules:
        touched.append(str(arguments[0]))
    if event == "subprocess.Popen":
        words = list(map(str, arguments[1]))
        if os.path.basename(words[0]).startswith("python") and words[1] != "-P":
            touched.append(" ".join(words))

from kprof_inject.cli.main import main
sys.addaudithook(note)
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["kprof-inject", *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            main()
        except SystemExit as error:
            code = error.code or 0
    ended.append((arguments, code, said.getvalue()))
print(json.dumps((ended, touched)))
"""


@pytest.fixture
def folder(tmp_path: Path, scale_launch_once: Path) -> Path:
    folder = tmp_path / "received"
    folder.mkdir()
    shutil.copytree(scale_launch_once, folder / "scale.launch")
    shutil.copytree(REPO / "tests/captures/matmul", folder / "capture")
    shutil.copy(FIXTURES / "3.6.0/cuda-90/softmax.ttgir", folder / "kernel.ttgir")
    (folder / "pyproject.toml").write_text(SETTINGS)
    for name in ("kept.csv", "kept.json"):
        (folder / name).write_text("mine")
    for name in MODULES:
        (folder / f"{name}.py").write_text(IMPORTED.format(log=str(tmp_path / "imported")))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_no_command_runs_or_writes_what_the_folder_names(folder: Path) -> None:
    before = contents(folder)
    names = [str(folder / f"{name}.py") for name in MODULES]
    ran = run_child(
        [sys.executable, "-P", "-c", ALL_UNDER_A_HOOK, json.dumps(COMMANDS), json.dumps(names)],
        folder,
        env={"PYTHONPATH": fake_gpu_path(STARTUP)},
    )
    assert not (folder.parent / "imported").exists(), (folder.parent / "imported").read_text()
    assert ran.exit_code == 0, ran.stderr
    ended, touched = json.loads(ran.stdout.splitlines()[-1])
    assert touched == []
    assert [(words, said) for words, code, said in ended if code != 0 and words != ["doctor"]] == []
    after = contents(folder)
    assert {name: data for name, data in after.items() if Path(name).parts[0] not in MADE} == before


def test_as_a_module_it_imports_nothing_from_the_folder_either(folder: Path) -> None:
    ended = run_python("-m", "kprof_inject", "report", "capture", folder=folder)
    assert ended.exit_code == 0, ended.stderr
    assert not (folder.parent / "imported").exists()
