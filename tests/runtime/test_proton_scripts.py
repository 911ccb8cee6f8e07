"""Programs that use Proton themselves: their sessions never begin, nothing raises, and one line says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs.child import SMALL_TORCH, Ended, clean_environment, python_path, run_python
from snapshots import check

from kprof_inject.runtime.program import program_environment
from kprof_inject.runtime.session import Session
from kprof_inject.workspace import Workspace

IMPORTS = {
    "after torch": "import torch\nimport triton.profiler as proton\n",
    "before torch": "import triton.profiler as proton\nimport torch\n",
    "by name": "from triton.profiler import start\nimport triton.profiler as proton\nassert start is proton.start\n",
    "its module": "import triton.profiler.profile\nimport triton.profiler as proton\n",
}

SESSION = """
import triton.profiler.language as pl
pl.enable_semantic("triton")
session = proton.start("mine", hook="triton", backend="instrumentation")
print(session)
for one in (session, 0):
    proton.deactivate(one)
    proton.activate(one)
proton.deactivate()
proton.activate()
with proton.scope("outer", {"flops": 1.0}), proton.cpu_timed_scope("timed"), proton.state("state"):
    proton.enter_scope("inner", metrics={"bytes": 2})
    proton.exit_scope("inner")
proton.enter_state("state")
proton.exit_state()
@proton.scope("called")
@proton.state("state")
@proton.profile
def bare():
    return 3
@proton.profile(name="other", backend="cupti")
def named():
    return 4
print(bare(), named())
if hasattr(proton, "data"):
    for call in (proton.data.get, proton.data.get_msgpack, proton.data.is_phase_complete, proton.data.clear):
        assert not call()
    assert not proton.data.advance_phase(session)
proton.finalize(session)
proton.finalize(0, output_format="hatchet")
proton.finalize()
"""


def run_in_dump(folder: Path, *arguments: str | Path) -> Ended:
    """Run Python as ``dump`` does."""
    workspace = Workspace.create(folder / "workspace")
    session = Session("dump", str(workspace.folder), str(workspace.new_reports_folder("dump")))
    session.write()
    environment = {**clean_environment(folder), "PYTHONPATH": python_path(SMALL_TORCH)}
    env = program_environment(environment, session.path, workspace.cache_folder("dump"))
    return run_python(*arguments, folder=folder, env=env)


@pytest.mark.parametrize("imports", IMPORTS.values(), ids=IMPORTS.keys())
def test_a_session_of_the_programs_own_never_begins(tmp_path: Path, imports: str) -> None:
    (tmp_path / "prog.py").write_text(imports + SESSION)
    ended = run_in_dump(tmp_path, "prog.py")
    assert (ended.exit_code, ended.stdout) == (0, "None\n3 4\n")
    check("runtime/proton_scripts", ended.stderr, "proton.start")
    assert sorted(os.listdir(tmp_path)) == ["home", "prog.py", "workspace"]
    assert os.listdir(tmp_path / "home") == []


def test_a_program_that_begins_none_is_told_nothing(tmp_path: Path) -> None:
    program = "import triton.profiler as p\nwith p.scope('a'):\n    print(p.start.__name__, p.profile.__name__)"
    assert run_in_dump(tmp_path, "-c", program) == Ended(0, "start profile\n", "")


def test_protons_own_command_runs_the_script(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(
        "import sys, triton.profiler as proton\n"
        "print(sys.argv[1:], proton.start())\n"
        "proton.deactivate(0)\n"
        "proton.activate(0)\n"
        "proton.finalize(0)\n"
    )
    command = ("-m", "triton.profiler.proton", "-n", "theirs", "-b", "cupti", "prog.py", "x")
    ended = run_in_dump(tmp_path, *command)
    assert (ended.exit_code, ended.stdout) == (0, "['x'] None\n"), ended.stderr
    (warning,) = (line for line in ended.stderr.splitlines() if "proton.start" in line)
    check("runtime/proton_scripts", warning, "proton.start")
    assert sorted(os.listdir(tmp_path)) == ["home", "prog.py", "workspace"]
