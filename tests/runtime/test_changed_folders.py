"""Programs that change their folder: they find all of ours where it is, and nothing of it appears where they go."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import Ended, clean_environment, fake_gpu_path, python_path, run_child

import kprof_inject
from kprof_inject.runtime.session import SESSION_VARIABLE
from kprof_inject.workspace import Workspace

LAUNCH = """
import torch
from fake_gpu.kernels import scale

x = torch.arange(1, 17, dtype=torch.float32)
out = torch.zeros_like(x)
for n in range(1, 4):
    scale[(16,)](x, out, n)
print(out.tolist(), flush=True)
"""
PROGRAM = f"""
import os
import subprocess
import sys

file = os.path.abspath(__file__)
os.chdir(sys.argv[1])
from fake_gpu.program import gpu  # isort: skip  (before Triton)
{LAUNCH}
if sys.argv[2:]:
    code = os.environ.get("START", "") + f"import runpy; runpy.run_path({{file!r}})"
    sys.exit(subprocess.call([sys.executable, "-c", code, "."]))
"""
OUT = f"{[3.0 * n for n in range(1, 17)]}\n"
# What Python does by itself with the folder that packages are installed into.
START = f"import site; site.addsitedir({python_path().split(os.pathsep)[-1]!r}); "


@pytest.fixture
def moved(tmp_path: Path) -> CommandLine:
    """Beside the folder where the program is started, there is one named ``elsewhere``."""
    (tmp_path / "elsewhere").mkdir()
    started = tmp_path / "started"
    started.mkdir()
    (started / "program.py").write_text(PROGRAM)
    return CommandLine(started, fake_gpu_path())


def run(folder: Path, *command: str, **variables: str) -> Ended:
    environment = {**clean_environment(folder), "PYTHONPATH": fake_gpu_path(), **variables}
    return run_child([sys.executable, *command], folder, env=environment)


def littered(folder: Path) -> list[Path]:
    return list((folder.parent / "elsewhere").iterdir())


@pytest.mark.parametrize(("options", "elsewhere"), [([], "/proc"), (["-o", "linked/ws"], "../elsewhere")])
def test_a_program_and_its_child_are_profiled_wherever_they_go(
    moved: CommandLine, options: list[str], elsewhere: str
) -> None:
    (moved.folder.parent / "real").mkdir()
    (moved.folder / "linked").symlink_to("../real")
    ended = moved("profile", *options, "--replay", "none", "--at", "func", "program.py", elsewhere, "and a child")
    assert (ended.exit_code, ended.stdout.startswith(2 * OUT)) == (0, True), ended.stderr
    captures = Workspace.open(moved.folder / (options[1] if options else "kprof_out")).capture_folders()
    assert [len(kprof_inject.load(capture).timelines) for capture in captures] == [2]  # the last of each process
    assert littered(moved.folder) == []


def test_every_path_that_a_program_is_given_is_absolute(moved: CommandLine) -> None:
    moved.write("tell.py", "import json, os; print(json.dumps(dict(os.environ)))")
    (told,) = moved("dump", "-o", "ws", "tell.py").json_lines()
    (bare,) = run(moved.folder, "tell.py").json_lines()
    # That of the tests' own process differs by more than what is ours.
    given = {name: value for name, value in told.items() if bare.get(name) != value and name != "PYTHONPATH"}
    assert {"TRITON_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", SESSION_VARIABLE} <= given.keys()
    session = json.loads(Path(told[SESSION_VARIABLE]).read_text())
    paths = [value for value in (*given.values(), *session.values()) if isinstance(value, str) and os.sep in value]
    assert len(paths) >= 6
    for path in [*paths, *told["PYTHONPATH"].split(os.pathsep)]:
        assert os.path.isabs(path), path


@pytest.mark.parametrize(("value", "elsewhere"), [("1", "/proc"), ("-o ws --at func --replay none", "../elsewhere")])
def test_a_process_that_profiles_itself_writes_to_where_it_was_started(
    moved: CommandLine, value: str, elsewhere: str
) -> None:
    code = START + "import runpy; runpy.run_path('program.py')"
    ended = run(moved.folder, "-c", code, elsewhere, "and a child", START=START, KPROF_INJECT=value)
    assert (ended.exit_code, ended.stdout) == (0, 2 * OUT), ended.stderr
    assert "not profiling" not in ended.stderr
    workspace = moved.folder / ("ws" if "ws" in value else "kprof_out")
    assert len(list(moved.folder.glob(f"{workspace.name}*/captures/001"))) == 2
    assert littered(moved.folder) == []


def test_a_block_has_its_folder_where_it_was_made_and_what_is_launched_while_it_is_enabled(moved: CommandLine) -> None:
    moved.write(
        "block.py",
        f"""
import os
from fake_gpu.program import gpu  # isort: skip  (before Triton)
import kprof_inject

made = kprof_inject.profile(at="func", launches="all", replay=0, folder="ws")
os.chdir("../elsewhere")
with made:
    {LAUNCH.strip().replace(chr(10), chr(10) + "    ")}
    assert len(made.timelines) == 3
    made.reset()
    made.enabled = False
    scale[(16,)](x, out, 4)
    made.enabled = True
    scale[(16,)](x, out, 5)
assert len(made.timelines) == 1
loaded = kprof_inject.load("../started/ws")
os.chdir("/proc")
assert loaded.report().splitlines()[0] == made.report().splitlines()[0]
""",
    )
    ended = run(moved.folder, "block.py")
    assert (ended.exit_code, ended.stdout) == (0, OUT), ended.stderr
    assert (moved.folder / "ws/captures/001").is_dir()
    assert littered(moved.folder) == []
