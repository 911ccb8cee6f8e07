"""Programs that are started with ``KPROF_INJECT`` in their environment, and without any command of ours."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from programs.child import REPO, Ended, clean_environment, fake_gpu_path, run_child
from snapshots import check

import kprof_inject
from kprof_inject.cli.recording_options import read_options
from kprof_inject.errors import KprofError
from kprof_inject.select.tags import Tag
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


def run(folder: Path, code: str, **variables: str) -> Ended:
    (folder / "program.py").write_text(PROGRAM)
    environment = {**clean_environment(folder), "PYTHONPATH": fake_gpu_path(), **variables}
    return run_child([sys.executable, "-c", START + code], folder, env=environment)


def test_a_process_is_profiled_into_a_folder_of_its_own(tmp_path: Path) -> None:
    with held(tmp_path / "ws", print):
        ended = run(
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


@pytest.mark.parametrize("workspace", ["/", "new/../..", "/dev/null", "program.py"])
def test_a_folder_that_can_be_no_workspace_leaves_the_program_alone(tmp_path: Path, workspace: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    beside = {"in", *(path.name for path in Path("/dev").glob("null*"))}
    ended = run(folder, "import program", KPROF_INJECT=f"-o {workspace}", RANK="a/b")
    assert (ended.exit_code, ended.stdout.strip()) == (0, EXPECTED)
    first, hint = ended.stderr.splitlines()
    assert hint.startswith("hint: name ")
    check("runtime/autostart", f"{first}\n{hint}", workspace)
    assert {path.name for path in (*tmp_path.iterdir(), *Path("/dev").glob("null*"))} == beside


def test_options_that_cannot_be_read_leave_the_program_alone(tmp_path: Path) -> None:
    ended = run(tmp_path, "import program", KPROF_INJECT="--sites loop")
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
    ended = run(tmp_path, "import program", KPROF_INJECT="--kernel scaled --replay none")
    assert (ended.exit_code, ended.stdout.strip()) == (0, EXPECTED)
    check("runtime/autostart", ended.stderr, "--kernel scaled")


def test_a_block_of_a_program_that_is_profiled_already_is_refused_with_the_reason(tmp_path: Path) -> None:
    code = "import program, kprof_inject; kprof_inject.profile(replay=0).__enter__()"
    ended = run(tmp_path, code, KPROF_INJECT="--replay none --at func")
    assert ended.exit_code == 1
    assert "hint: unset KPROF_INJECT, or take" in ended.stderr


def test_a_program_that_is_interrupted_ends_by_the_signal(tmp_path: Path) -> None:
    ended = run(tmp_path, "import program; raise KeyboardInterrupt", KPROF_INJECT="--replay none")
    assert (ended.exit_code, ended.stdout.strip()) == (-signal.SIGINT, EXPECTED)
    assert "kprof-inject: more: " in ended.stderr


def test_without_the_variable_nothing_of_ours_is_loaded(tmp_path: Path) -> None:
    ended = run(tmp_path, "import sys; print(any(name.startswith('kprof_inject') for name in sys.modules))")
    assert (ended.stdout, ended.stderr) == ("False\n", "")
