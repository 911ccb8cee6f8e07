"""Programs that are started with KPROF_INJECT in their environment, and those that change their folder."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import REPO, Ended, clean_environment, fake_gpu_path, run_child
from snapshots import check

import kprof_inject
from kprof_inject.cli.recording_options import read_options
from kprof_inject.errors import KprofError
from kprof_inject.runtime.session import SESSION_VARIABLE
from kprof_inject.select.tags import Tag
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import held

PROGRAM = """
from fake_gpu.program import gpu  # isort: skip  (before Triton)
import torch
from fake_gpu.kernels import scale

x = torch.arange(1, 17, dtype=torch.float32)
out = torch.zeros_like(x)
for n in range(1, 4):
    scale[(16,)](x, out, n)
print(out.tolist())
"""
EXPECTED = str([3.0 * n for n in range(1, 17)])
# What Python does by itself with the folder that packages are installed into.
# It may come by it twice.
START = f"import site; site.addsitedir({str(REPO)!r}); site.addsitedir({str(REPO)!r}); "


def run(folder: Path, *command: str, **variables: str) -> Ended:
    environment = {**clean_environment(folder), "PYTHONPATH": fake_gpu_path(), **variables}
    return run_child([sys.executable, *command], folder, env=environment)


def started(folder: Path, code: str, **variables: str) -> Ended:
    """Run code that may import ``program``."""
    (folder / "program.py").write_text(PROGRAM)
    return run(folder, "-c", START + code, **variables)


def test_a_process_is_profiled_into_a_folder_of_its_own(tmp_path: Path) -> None:
    with held(tmp_path / "ws", print):
        ended = started(
            tmp_path,
            "import program",
            KPROF_INJECT=" ".join(["-o ws", "--at func", "--launches all", "--replay none"]),
            RANK="3",
        )
    assert (ended.exit_code, ended.stdout.strip()) == (0, EXPECTED)
    first, *_, last = ended.stderr.splitlines()
    assert first.endswith(f"this process writes to {tmp_path / 'ws-3'}")
    assert last.startswith(f"kprof-inject: more: kprof-inject report {tmp_path / 'ws-3'} -v")
    assert "LIMIT " in ended.stderr
    assert "not profiling" not in ended.stderr
    results = kprof_inject.load(tmp_path / "ws-3")
    assert [timeline.launch.index for timeline in results.timelines] == [0, 1, 2]


@pytest.mark.parametrize("workspace", ["new/../..", "/dev/null"])
def test_a_folder_that_can_be_no_workspace_leaves_the_program_alone(tmp_path: Path, workspace: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    beside = {"in", *(path.name for path in Path("/dev").glob("null*"))}
    ended = started(folder, "import program", KPROF_INJECT=f"-o {workspace}", RANK="a/b")
    assert (ended.exit_code, ended.stdout.strip()) == (0, EXPECTED)
    first, hint = ended.stderr.splitlines()
    assert hint.startswith("hint: name ")
    check("runtime/autostart", f"{first}\n{hint}", workspace)
    assert {path.name for path in (*tmp_path.iterdir(), *Path("/dev").glob("null*"))} == beside


def test_options_that_cannot_be_read_leave_the_program_alone(tmp_path: Path) -> None:
    ended = started(tmp_path, "import program", KPROF_INJECT="--sites loop")
    assert (ended.exit_code, ended.stdout.strip()) == (0, EXPECTED)
    first, hint = ended.stderr.splitlines()
    # What options it may have meant is click's.
    check("runtime/autostart", f"{first.partition(' (')[0]}\n{hint}", "--sites loop")
    assert not (tmp_path / "kprof_out").exists()


def test_options_are_read_as_a_shell_and_profile_do() -> None:
    words = ["--at 'iter[0]'", "--tag tile=n", "-o 'a b'", "--launches all"]
    workspace, selectors, _, recording = read_options(" ".join(words), "KPROF_INJECT")
    assert (workspace.name, recording.launches) == ("a b", "all")
    assert [selector.tags for selector in selectors] == [(Tag("tile", "n"),)]
    with pytest.raises(KprofError) as refused:
        read_options("--at 'loop", "KPROF_INJECT")
    check("runtime/autostart", str(refused.value), "--at 'loop")


def test_a_kernel_that_nobody_launches_is_told_with_those_that_are(tmp_path: Path) -> None:
    ended = started(tmp_path, "import program", KPROF_INJECT="--kernel scaled --replay none")
    assert (ended.exit_code, ended.stdout.strip()) == (0, EXPECTED)
    check("runtime/autostart", ended.stderr, "--kernel scaled")


def test_a_block_of_a_program_that_is_profiled_already_is_refused_with_the_reason(tmp_path: Path) -> None:
    code = "import program, kprof_inject; kprof_inject.profile(replay=0).__enter__()"
    ended = started(tmp_path, code, KPROF_INJECT="--replay none --at func")
    assert ended.exit_code == 1
    assert "hint: unset KPROF_INJECT, or take" in ended.stderr


def test_a_program_that_is_interrupted_ends_by_the_signal(tmp_path: Path) -> None:
    ended = started(tmp_path, "import program; raise KeyboardInterrupt", KPROF_INJECT="--replay none")
    assert (ended.exit_code, ended.stdout.strip()) == (-signal.SIGINT, EXPECTED)
    assert "kprof-inject: more: " in ended.stderr


def test_without_the_variable_nothing_of_ours_is_loaded(tmp_path: Path) -> None:
    ended = started(tmp_path, "import sys; print(any(name.startswith('kprof_inject') for name in sys.modules))")
    assert (ended.stdout, ended.stderr) == ("False\n", "")


# Programs that change their folder

LAUNCH = """
import torch
from fake_gpu.kernels import scale

x = torch.arange(1, 17, dtype=torch.float32)
out = torch.zeros_like(x)
for n in range(1, 4):
    scale[(16,)](x, out, n)
print(out.tolist(), flush=True)
"""
MOVING = f"""
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
OPTIONS = ["-o", "linked/ws", "--replay", "none", "--at", "func"]
OUT = f"{EXPECTED}\n"


@pytest.fixture
def moved(tmp_path: Path) -> CommandLine:
    """Beside the folder where the program is started, there is one named ``elsewhere``."""
    (tmp_path / "elsewhere").mkdir()
    started = tmp_path / "started"
    started.mkdir()
    (started / "program.py").write_text(MOVING)
    return CommandLine(started, fake_gpu_path())


def littered(folder: Path) -> list[Path]:
    return list((folder.parent / "elsewhere").iterdir())


def test_a_program_and_its_child_are_profiled_anywhere(moved: CommandLine) -> None:
    (moved.folder.parent / "real").mkdir()
    (moved.folder / "linked").symlink_to("../real")
    ended = moved("profile", *OPTIONS, "program.py", "../elsewhere", "and a child")
    assert (ended.exit_code, ended.stdout.startswith(2 * OUT)) == (0, True), ended.stderr
    captures = Workspace.open(moved.folder / "linked/ws").capture_folders()
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


def test_a_process_that_profiles_itself_writes_where_it_started(moved: CommandLine) -> None:
    code = START + "import runpy; runpy.run_path('program.py')"
    ended = run(moved.folder, "-c", code, "/proc", "and a child", START=START, KPROF_INJECT="1")
    assert (ended.exit_code, ended.stdout) == (0, 2 * OUT), ended.stderr
    assert "not profiling" not in ended.stderr
    assert len(list(moved.folder.glob("kprof_out*/captures/001"))) == 2
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
