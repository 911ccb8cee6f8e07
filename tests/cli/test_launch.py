"""``launch``, and the commands that save launches or take them in place of a program, on the fake GPU."""

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
from fake_gpu.known_cost import keep_cost
from launch_files import edit, edit_kernel, read_all
from programs.child import PROGRAMS, Ended, fake_gpu_path
from snapshots import check

from kprof_inject.capture.reader import read_capture
from kprof_inject.workspace import Workspace

pytestmark = pytest.mark.triton

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


def without_versions(text: str) -> str:
    return re.sub(r"Triton [\w.+]+, torch [\w.+]+", "Triton VERSION, torch VERSION", text)


# launch info


def test_info_shows_what_is_in_a_launch(kprof: CommandLine, scale_launch: Path) -> None:
    ended = kprof("launch", "info", scale_launch)
    assert (ended.exit_code, ended.stderr) == (0, "")
    check("cli/launch", without_versions(ended.stdout), "info")
    values = json.loads(kprof("launch", "info", "--json", scale_launch).stdout)
    assert values["facts"]["kernel"] == "scale"
    assert values["arguments"][1] == {
        "name": "out_ptr",
        "kind": "*fp32",
        "value": "0x100000010000 [16] float32",
        "memory": "64 bytes written",
    }
    assert values["memory"] == [
        {"address": 1 << 44, "size_bytes": 64, "element": "fp32"},
        {"address": (1 << 44) + (1 << 16), "size_bytes": 64, "element": "fp32"},
    ]


EVERY_KIND: dict[str, tuple[str, dict[str, Any]]] = {
    "x_ptr": (
        "*bf16",
        {"type": "pointer", "address": 1 << 44, "shape": [4, 8], "strides": [8, 1], "dtype": "bfloat16"},
    ),
    "raw_ptr": ("*i64", {"type": "pointer", "address": (1 << 44) + 32}),
    "null_ptr": ("*i64", {"type": "pointer", "address": 0}),
    "nothing": ("*fp32", {"type": "omitted"}),
    "number": ("i64", {"type": "integer", "value": "-9223372036854775808"}),
    "infinite": ("fp32", {"type": "float", "value": "-inf"}),
    "small": ("fp64", {"type": "float", "value": "0x0.0000000000001p-1022"}),
    "unknown": ("fp32", {"type": "float", "value": "nan"}),
    "pair": (
        "('*fp32', ('i32', 'constexpr'))",
        {
            "type": "tuple",
            "parts": [
                {"type": "pointer", "address": (1 << 44) + (1 << 16)},
                {"type": "tuple", "parts": [{"type": "integer", "value": "3"}, {"type": "omitted"}]},
            ],
        },
    ),
    "descriptor": (
        "tensordesc<fp16[2, 16]>",
        {
            "type": "descriptor",
            "base": {"type": "pointer", "address": 1 << 44},
            "fields": {"shape": [8, 16], "strides": [16, 1], "block_shape": [2, 16], "padding": "zero"},
        },
    ),
    "map": ("nvTmaDesc", {"type": "tensor_map", "data": "00" * 128}),
    "BLOCK": ("constexpr", {"type": "omitted"}),
}


def with_every_kind(launch: Path) -> Path:
    def in_kernel(values: dict[str, Any]) -> None:
        values["signature"] = {name: kind for name, (kind, _) in EVERY_KIND.items()}
        values["constants"] = {"BLOCK": "[relu]"}

    edit_kernel(launch, in_kernel)
    edit(launch, lambda values: values.update(arguments=[argument for _, argument in EVERY_KIND.values()]))
    edit(launch, lambda values: values["memory"][1].update(is_found=True, before=None))
    edit(launch, lambda values: values.update(graph=True, scrubbed=True, torch=""))
    return launch


def test_info_shows_arguments_of_every_kind(kprof: CommandLine, scale_launch: Path) -> None:
    ended = kprof("launch", "info", with_every_kind(scale_launch))
    assert (ended.exit_code, ended.stderr) == (0, "")
    check("cli/launch", without_versions(ended.stdout), "info of every kind")


def test_names_from_elsewhere_are_no_commands_to_the_terminal(kprof: CommandLine, scale_launch: Path) -> None:
    evil = "[red]\x1b[31m[/red][/b]\x07"
    edit_kernel(scale_launch, lambda values: values["signature"].update({evil: "i32"}))
    edit(scale_launch, lambda values: values["arguments"].append({"type": "integer", "value": "1"}))
    edit(scale_launch, lambda values: values["arguments"][0].update(dtype=evil))
    edit(scale_launch, lambda values: values.update(name=evil, argv=[evil, "a\nb"], device_name=evil))
    ended = kprof("launch", "info", scale_launch)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "[red]" in ended.stdout
    assert not set("\x1b\x07") & set(ended.stdout)
    assert json.loads(kprof("launch", "info", "--json", scale_launch).stdout)["facts"]["kernel"] == evil


def test_what_is_no_launch_is_refused(kprof: CommandLine, scale_launch: Path) -> None:
    for command in ("info", "run"):
        for name in ("missing.launch", kprof.folder, scale_launch / "launch.json"):
            ended = kprof("launch", command, name)
            assert ended.exit_code == 1
            assert "is not a saved launch" in ended.stderr
            assert ended.stdout == ""
    (scale_launch / "memory.bin").write_bytes(b"short")
    ended = kprof("launch", "info", "scale.launch")
    check("cli/launch", diagnosis(ended), "info of short memory")


@pytest.mark.parametrize("command", ["list", "trace", "explain"])
def test_a_launch_where_a_workspace_is_read_names_the_command_for_it(
    kprof: CommandLine, scale_launch: Path, command: str
) -> None:
    ended = kprof(command, scale_launch)
    assert ended.exit_code == 1
    assert "is not a workspace" in ended.stderr
    assert f"kprof-inject profile {scale_launch} profiles it" in ended.stderr


# launch run


def test_run_repeats_a_launch(kprof: CommandLine, scale_launch: Path) -> None:
    edit(scale_launch, lambda values: values["clean"].update(times_ns=[20_000.0, 21_000.0, 19_000.0]))
    before = files_of(scale_launch)
    ended = kprof("launch", "run", scale_launch)
    assert (ended.exit_code, ended.stderr) == (0, "")
    check("cli/launch", ended.stdout, "run")
    ended = kprof("launch", "run", "--json", "--times", "3", "scale.launch")
    assert (ended.exit_code, ended.stderr) == (0, "")
    values = json.loads(ended.stdout)
    assert values["times_ns"] == [19_570.0] * 3
    assert (values["differences"], values["is_repeatable"], values["is_compared"]) == ([], True, True)
    assert files_of(scale_launch) == before


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_other_results_than_the_programs_are_reported(kprof: CommandLine, scale_launch: Path) -> None:
    edit(scale_launch, lambda values: values["memory"][1].update(after="0" * 16))
    ended = kprof("launch", "run", scale_launch)
    assert (ended.exit_code, ended.stderr) == (1, "")
    check("cli/launch", ended.stdout, "run with other results")
    ended = kprof("launch", "run", "--json", scale_launch)
    assert ended.exit_code == 1
    assert json.loads(ended.stdout)["differences"] == ["out_ptr (64 bytes at 0x100000010000)"]


def test_results_that_the_program_did_not_leave_are_not_compared(kprof: CommandLine, scale_launch: Path) -> None:
    edit(scale_launch, lambda values: [memory.update(after=None) for memory in values["memory"]])
    ended = kprof("launch", "run", scale_launch)
    assert (ended.exit_code, ended.stderr) == (0, "")
    check("cli/launch", ended.stdout, "run without results")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "case"),
    [
        (lambda values: values.update(triton="1.2.3"), "run of another Triton"),
        (lambda values: values["memory"][1].update(before="0" * 16), "run of memory that changed"),
        (lambda values: values["memory"][0].update(chunk_crc32=[1]), "run of damaged memory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_launch_that_cannot_be_repeated_says_why(
    kprof: CommandLine, scale_launch: Path, change: Callable[[dict[str, Any]], object], case: str
) -> None:
    edit(scale_launch, change)
    ended = kprof("launch", "run", scale_launch)
    assert (ended.exit_code, ended.stdout) == (1, "")
    check("cli/launch", re.sub(r"has [\d.]+;", "has VERSION;", diagnosis(ended)), case)


def test_how_often_is_a_number_of_launches(kprof: CommandLine, scale_launch: Path) -> None:
    for times in ("0", "10001", "x"):
        ended = kprof("launch", "run", "--times", times, scale_launch)
        assert ended.exit_code == 2
        assert "--times" in ended.stderr


# A launch in place of a program


def known_workspace(folder: Path) -> Path:
    """A workspace that knows what records cost."""
    keep_cost(Workspace.begin(folder))
    return folder


def test_profile_repeats_a_launch_with_records(kprof: CommandLine, scale_launch: Path) -> None:
    before = files_of(scale_launch)
    workspace = known_workspace(kprof.folder / "ws")
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launches", "indices"), [("last", [3]), ("first", [0]), ("2", [2]), ("10:", [10, 11, 12, 13])]
)
def test_any_launch_of_a_launch_may_be_kept(
    kprof: CommandLine, scale_launch: Path, launches: str, indices: list[int]
) -> None:
    workspace = known_workspace(kprof.folder / "ws")
    ended = kprof("profile", "-o", workspace, "--no-replay", "--launches", launches, scale_launch)
    assert ended.exit_code == 0, ended.stderr
    assert [launch.index for launch in launches_in(workspace / "captures" / "001")] == indices


def test_too_many_launches_of_a_launch_are_refused_before_any(kprof: CommandLine, scale_launch: Path) -> None:
    ended = kprof("profile", "-o", "ws", "--launches", "1000000", scale_launch)
    assert ended.exit_code == 2
    check("cli/launch", diagnosis(ended), "profile of too many")
    assert not (kprof.folder / "ws" / "captures").exists()


def test_profile_of_a_launch_that_cannot_be_repeated_says_why(kprof: CommandLine, scale_launch: Path) -> None:
    edit(scale_launch, lambda values: values["memory"][1].update(before="0" * 16))
    ended = kprof("profile", "-o", "ws", scale_launch)
    assert (ended.exit_code, ended.stdout) == (1, "")
    check("cli/launch", diagnosis(ended), "profile of memory that changed")
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
    workspace = known_workspace(kprof.folder / "ws")
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
    known_workspace(kprof.folder / "ws")
    ended = kprof("profile", "-o", "ws", "--keep-launches", "--no-replay", "prog.py")
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
    (said,) = (line for line in ended.stderr.splitlines() if "look at one" in line)
    check("cli/launch", re.sub(r"-[0-9a-f]{16}-\d+", "-VARIANT-PID", said), "kept launches")
    assert said.endswith(str(launches[0].relative_to(kprof.folder)))
    assert kprof("launch", "run", launches[0]).exit_code == 0


@pytest.mark.slow
def test_launches_that_were_not_to_be_kept_are_removed(kprof: CommandLine) -> None:
    kprof.write("prog.py", PROGRAM)
    workspace = known_workspace(kprof.folder / "ws")
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
    before = [files_of(path) for path in launches]
    for number in ("002", "003"):
        ended = kprof("profile", "-o", "ws", "--no-replay", launches[1])
        assert ended.exit_code == 0, ended.stderr
        assert [files_of(path) for path in launches] == before
        (launch,) = launches_in(kprof.folder / "ws" / "captures" / number)
        assert launch.kernel.name == "scale"


@pytest.mark.slow
def test_a_kept_launch_survives_though_its_capture_is_gone(kept: tuple[CommandLine, Ended], kprof: CommandLine) -> None:
    """The next capture must not have its number: a run removes the launches of its number."""
    launches = copied(kept, kprof.folder)
    before = [files_of(path) for path in launches]
    shutil.rmtree(kprof.folder / "ws" / "captures")
    ended = kprof("profile", "-o", "ws", "--no-replay", launches[1])
    assert ended.exit_code == 0, ended.stderr
    assert [files_of(path) for path in launches] == before
    assert [path.name for path in (kprof.folder / "ws" / "captures").iterdir()] == ["002"]


LARGE = PROGRAM.replace("torch.zeros(16)", "torch.zeros(600_000_000)[:16]")


@pytest.mark.slow
def test_a_launch_that_was_to_be_kept_and_is_not_says_why(kprof: CommandLine) -> None:
    """More than 2 GB: of them, no byte is touched."""
    kprof.write("prog.py", LARGE)
    known_workspace(kprof.folder / "ws")
    ended = kprof("profile", "-o", "ws", "--keep-launches", "--no-replay", "prog.py")
    assert ended.exit_code == 0, ended.stderr
    said = [line for line in ended.stderr.splitlines() if "no launch of" in line]
    assert len(said) == 2
    check("cli/launch", said[0], "a launch that is too large")
    assert not list((kprof.folder / "ws").glob("launches/*/*"))
