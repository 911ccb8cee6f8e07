"""Commands that save launches, or take them in place of a program, on the fake GPU."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, diagnosis
from fake_gpu.captured import launches_in, scopes_of
from fake_gpu.gpu import SLACK_CYCLES
from launch_files import edit, edit_kernel, read_all
from programs.child import PROGRAMS, Ended, fake_gpu_path
from snapshots import check

from kprof_inject.capture.reader import read_capture

STARTUP = PROGRAMS.parent / "fake_gpu" / "startup"

PROGRAM = """
from fake_gpu.program import gpu
import torch
from fake_gpu.kernels import power, scale

x, out = torch.arange(1, 17, dtype=torch.float32), torch.zeros(16)
for n in range(1, 31):
    scale[(16,)](x, out, n)
power[(16,)](x, out, 2)
print(out.tolist()[:3])
"""


@pytest.fixture
def kprof(tmp_path: Path) -> CommandLine:
    """The command line, whose programs and processes have the fake GPU."""
    return CommandLine(tmp_path, fake_gpu_path(STARTUP))


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# A launch in place of a program


def test_what_is_no_launch_is_refused(kprof: CommandLine, scale_launch: Path) -> None:
    ended = kprof("report", "missing.launch")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "is not a saved launch" in ended.stderr
    (scale_launch / "memory.bin").write_bytes(b"short")
    check("cli/saved_launches", diagnosis(kprof("report", "scale.launch")), "report of short memory")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ptx_options", "-o /tmp/x"),
        ("ir_override", "x.ttgir"),
        ("extern_libs", [["m", "/tmp/x.bc"]]),
        ("extern_libs", [1]),
    ],
)
def test_a_launch_whose_options_may_name_any_file_is_refused(
    kprof: CommandLine, scale_launch: Path, name: str, value: object
) -> None:
    edit_kernel(scale_launch, lambda values: values["options"].update({name: value}))
    for command in ("profile", "report"):
        ended = kprof(command, scale_launch)
        assert (ended.exit_code, ended.stdout) == (1, "")
        assert f"it sets {name}, which may name any file" in ended.stderr


@pytest.mark.parametrize("command", ["list", "trace"])
def test_a_launch_where_a_workspace_is_read_names_the_command_for_it(
    kprof: CommandLine, scale_launch: Path, command: str
) -> None:
    ended = kprof(command, scale_launch)
    assert ended.exit_code == 1
    assert "is not a workspace" in ended.stderr
    assert f"kprof-inject profile {scale_launch} profiles it" in ended.stderr


@pytest.mark.triton
def test_profile_repeats_a_launch_with_records(kprof: CommandLine, scale_launch: Path) -> None:
    before = files_of(scale_launch)
    workspace = kprof.folder / "ws"
    ended = kprof("profile", "-o", workspace, "--launches", "1:9:2", "--trace", "trace.json", "scale.launch")
    assert ended.exit_code == 0, ended.stderr
    assert "func" in ended.stdout
    launches = launches_in(workspace / "captures" / "001")
    assert [launch.index for launch in launches] == [1, 3, 5, 7]
    assert [set(scopes_of(launch)) for launch in launches] == [{"func"}] * 4
    assert {launch.kernel.name for launch in launches} == {"scale"}
    assert launches[0].kernel.with_records.replayed_ns is not None, "it is timed as the launches of programs are"
    assert files_of(scale_launch) == before
    assert not (workspace / "launches").exists()
    assert not (workspace / "recorded").exists()
    # As after a program, the workspace has the kernel and its plan.
    again = kprof("report", workspace)
    assert again.exit_code == 0
    assert "scale" in again.stdout


def test_too_many_launches_of_a_launch_are_refused_before_any(kprof: CommandLine, scale_launch: Path) -> None:
    ended = kprof("profile", "-o", "ws", "--launches", "1000000", scale_launch)
    assert ended.exit_code == 2
    check("cli/saved_launches", diagnosis(ended), "profile of too many")
    assert not (kprof.folder / "ws" / "captures").exists()


@pytest.mark.parametrize(
    ("change", "case"),
    [
        (lambda values: values.update(triton="1.2.3"), "profile of another Triton"),
        (lambda values: values["memory"][1].update(before="0" * 16), "profile of memory that changed"),
        (lambda values: values["memory"][0].update(chunk_crc32=[1]), "profile of damaged memory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_profile_of_a_launch_that_cannot_be_repeated_says_why(
    kprof: CommandLine, scale_launch: Path, change: Callable[[dict[str, Any]], object], case: str
) -> None:
    edit(scale_launch, change)
    ended = kprof("profile", "-o", "ws", scale_launch)
    assert (ended.exit_code, ended.stdout) == (1, "")
    check("cli/saved_launches", re.sub(r"has [\d.]+(?=\s)", "has VERSION", diagnosis(ended)), case)
    assert not list((kprof.folder / "ws").glob("captures/*"))


def test_profile_of_a_damaged_launch_changes_nothing(kprof: CommandLine, scale_launch: Path) -> None:
    (scale_launch / "kernel.ttgir").write_text("module {}\n")
    for command in ("profile", "causal"):
        ended = kprof(command, "-o", "ws", "scale.launch")
        assert (ended.exit_code, ended.stdout) == (1, "")
        assert len(ended.errors()) == 1
        assert "kernel.ttgir: the checksum does not match" in ended.stderr
    assert not (kprof.folder / "ws").exists()


@pytest.mark.parametrize("command", ["profile", "dump", "causal"])
def test_a_launch_of_another_kernel_is_refused(kprof: CommandLine, scale_launch: Path, command: str) -> None:
    ended = kprof(command, "--kernel", "other*", scale_launch)
    assert ended.exit_code == 1
    assert f"{scale_launch} is a launch of scale, not of other*" in ended.stderr
    assert not (kprof.folder / "kprof_out").exists()


def test_causal_delays_a_launch(kprof: CommandLine, scale_launch: Path) -> None:
    before = files_of(scale_launch)
    workspace = kprof.folder / "ws"
    ended = kprof("causal", "-o", workspace, "--seconds", "1", "--json", "scale.launch")
    assert ended.exit_code == 0, ended.stderr
    (found,) = json.loads(ended.stdout)
    places = {place["scope"].split("@")[0]: place for place in found["places"]}
    assert places["stores"]["slope"]["value"] == pytest.approx(1, abs=0.05)
    assert places["loads"]["slope"]["value"] == pytest.approx(0, abs=0.05)
    assert places["loads"]["slack_cycles"]["value"] == pytest.approx(SLACK_CYCLES, rel=0.1)
    assert files_of(scale_launch) == before
    assert json.loads(kprof("causal", "--json", workspace).stdout) == [found]
    assert read_capture(workspace / "captures" / "001").made_by == "causal"


# Launches of a program


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandLine, Ended]:
    """A workspace ``ws`` with the launches of a program, and what ``profile`` printed. Not to be changed."""
    kprof = CommandLine(tmp_path_factory.mktemp("kept"), fake_gpu_path(STARTUP))
    kprof.write("prog.py", PROGRAM)
    ended = kprof("profile", "-o", "ws", "--keep-launches", "--replay", "none", "prog.py")
    assert ended.exit_code == 0, ended.stderr
    return kprof, ended


def copied(kept: tuple[CommandLine, Ended], folder: Path) -> list[Path]:
    """Copy the workspace to the folder of a test; return its launches."""
    workspace = shutil.copytree(kept[0].folder / "ws", folder / "ws")
    return sorted(workspace.glob("launches/*/*.launch"))


@pytest.mark.slow
def test_kept_launches_stay_and_are_told(kept: tuple[CommandLine, Ended]) -> None:
    kprof, ended = kept
    launches = sorted((kprof.folder / "ws" / "launches" / "001").iterdir())
    assert [path.name.partition("-")[0] for path in launches] == ["power", "scale"]
    assert [len(read_all(path)) for path in launches] == [128, 128]
    (said,) = (line for line in ended.stderr.splitlines() if "repeat one" in line)
    check("cli/saved_launches", re.sub(r"-[0-9a-f]{16}-\d+", "-VARIANT-PID", said), "kept launches")
    assert said.endswith(str(launches[0].relative_to(kprof.folder)))
    assert kprof("report", launches[0]).exit_code == 0


@pytest.mark.slow
def test_launches_that_were_not_to_be_kept_are_removed(kprof: CommandLine) -> None:
    kprof.write("prog.py", PROGRAM)
    workspace = kprof.folder / "ws"
    ended = kprof("profile", "-o", "ws", "prog.py")
    assert ended.exit_code == 0, ended.stderr
    assert "repeating 1 saved launch to time the records: power" in ended.stderr
    assert not (workspace / "launches").exists()
    assert not (workspace / "recorded").exists()


@pytest.mark.slow
def test_a_kept_launch_survives_profiles_in_its_own_workspace(
    kept: tuple[CommandLine, Ended], kprof: CommandLine
) -> None:
    launches = copied(kept, kprof.folder)
    captures = kprof.folder / "ws" / "captures"
    before = [files_of(path) for path in launches]
    # Though captures are gone, the next must not have the number of a kept launch: a run removes those of its number.
    for numbers in (["001", "002"], ["002"]):
        ended = kprof("profile", "-o", "ws", "--replay", "none", launches[1])
        assert ended.exit_code == 0, ended.stderr
        assert [files_of(path) for path in launches] == before
        assert sorted(path.name for path in captures.iterdir()) == numbers
        (launch,) = launches_in(captures / "002")
        assert launch.kernel.name == "scale"
        shutil.rmtree(captures)


LARGE = PROGRAM.replace("torch.zeros(16)", "torch.zeros(600_000_000)[:16]")


@pytest.mark.slow
def test_a_launch_that_was_to_be_kept_and_is_not_says_why(kprof: CommandLine) -> None:
    """More than 2 GB: of them, no byte is touched."""
    kprof.write("prog.py", LARGE)
    ended = kprof("profile", "-o", "ws", "--keep-launches", "--replay", "none", "prog.py")
    assert ended.exit_code == 0, ended.stderr
    said = [line for line in ended.stderr.splitlines() if "no launch of" in line]
    assert len(said) == 2
    check("cli/saved_launches", said[0], "a launch that is too large")
    assert not list((kprof.folder / "ws").glob("launches/*/*"))
