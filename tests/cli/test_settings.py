"""``[tool.kprof-inject]`` in pyproject.toml: which file, which keys, and what goes before it."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import sys
from pathlib import Path

import click
import pytest
from command_line import CommandLine, diagnosis
from programs.child import PROGRAMS, REPO
from snapshots import check

import kprof_inject.cli
from kprof_inject.cli.options import HarmlessSetting

SOFTMAX = REPO / "ttgir_fixtures/3.6.0/cuda-90/softmax.ttgir"
CAPTURE = REPO / "tests/captures/late-at-barrier"


def settings(*lines: str) -> str:
    return "\n".join(['[project]\nname = "p"\n', "[tool.kprof-inject]", *lines, ""])


def inserted(text: str) -> list[str]:
    """The records that were inserted, without indentation."""
    return [line.strip() for line in text.splitlines() if "proton.record start" in line]


def copy_program(folder: Path) -> None:
    """``ending.py``, which compiles ``scale``, into a folder; where it lies, its settings are looked for."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("ending.py", "kernels.py", "known_key.py"):
        shutil.copy(PROGRAMS / name, folder)


def test_settings_are_the_options_defaults(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", settings('at = ["loop[1]=second", "func"]', 'launches = "all"'))
    ended = kprof("insert", SOFTMAX)
    assert inserted(ended.stdout) == ['proton.record start "func"', 'proton.record start "second"']
    # Told, since a reader would look for it on the command line; launches is of no concern here.
    assert ended.stderr.splitlines()[0] == "kprof-inject: settings of pyproject.toml: at"


def test_the_command_line_goes_before(kprof: CommandLine) -> None:
    # A single word stands for a list of one.
    kprof.write("pyproject.toml", settings('at = "func"'))
    assert inserted(kprof("insert", SOFTMAX).stdout) == ['proton.record start "func"']
    ended = kprof("insert", SOFTMAX, "--at", "loop[0]")
    assert inserted(ended.stdout) == ['proton.record start "kernel body"', 'proton.record start "loop[0]"']
    assert "settings of" not in ended.stderr


def test_output_is_the_workspace_and_no_files_place(kprof: CommandLine) -> None:
    copy_program(kprof.folder)
    kprof.write("pyproject.toml", settings('output = "ws"'))
    assert kprof("dump", "ending.py", "0").exit_code == 0
    assert (kprof.folder / "ws/kernels").is_dir()
    assert kprof("strip", SOFTMAX).stdout == SOFTMAX.read_text()


def test_the_file_nearest_to_the_programs_script_rules(kprof: CommandLine) -> None:
    (kprof.folder / "repo/src").mkdir(parents=True)
    kprof.write("pyproject.toml", settings('output = "of_here"'))
    kprof.write("repo/pyproject.toml", settings('output = "of_repo"'))
    kprof.write("repo/src/plain.py", "")
    command_lines = [
        ["repo/src/plain.py", "0"],
        ["--", "repo/src/plain.py", "0"],
        ["--kernel", "*", sys.executable, "repo/src/plain.py", "plain.py", "0"],
    ]
    for number, words in enumerate(command_lines):
        assert "never imported Triton" in kprof("dump", *words).stderr
        # Relative to the current folder, as on the command line.
        (kprof.folder / "of_repo").rename(kprof.folder / f"was_{number}")
    assert not (kprof.folder / "of_here").exists()


def test_a_mode_may_be_a_setting(kprof: CommandLine) -> None:
    copy_program(kprof.folder)
    kprof("dump", "-o", "ws", "ending.py", "0")
    kprof("insert", "ws")
    kprof.write("pyproject.toml", settings('buffer-size = "auto"', "sched-stores = true", 'warps = "9"', "fit = false"))
    ended = kprof("run", "ws", "--buffer-type", "global", "ending.py", "0")
    assert ended.stderr.splitlines()[0].endswith(": buffer-size, warps, sched-stores, fit")
    check("cli/settings", diagnosis(ended), "a mode")


@pytest.mark.parametrize(
    "line",
    [
        'launchs = "all"',
        "max_bytes = 5",
        'buffer-size = "all"',
        "sched-stores = 1",
        "max-bytes = 0",
        'buffer-type = "heap"',
        "at = [57]",
        r'at = "func\u0000"',
        "output = 5",
    ],
)
def test_a_wrong_setting_is_pointed_at(kprof: CommandLine, line: str) -> None:
    kprof.write("pyproject.toml", settings("# " + line, '"trace" = "t.json"', f"  {line}"))
    ended = kprof("profile", "-o", "ws", "--", "true")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("pyproject.toml:7:3: error: ")
    assert f"\n    {line}\n    ^\n" in ended.stderr
    check("cli/settings", ended.stderr, line)
    assert not (kprof.folder / "ws").exists()


def test_a_setting_of_no_resemblance_lists_them_all(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", settings("zzz = 1"))
    hint = kprof("strip", SOFTMAX).stderr.splitlines()[-1]
    settings_offered = hint.removeprefix("hint: the settings are ").split(", ")
    assert settings_offered == sorted(settings_offered)
    assert {"hooks", "kernel", "launches", "output", "trace"} <= set(settings_offered)


@pytest.mark.parametrize(("text", "place"), [("[tool]\r\n\r\na = \r\n", "3:5"), ("[tool.kprof-inject]\nat = [", "2:7")])
def test_a_broken_file_is_pointed_at(kprof: CommandLine, text: str, place: str) -> None:
    kprof.write("pyproject.toml", text)
    ended = kprof("insert", SOFTMAX)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.splitlines()[0].startswith(f"pyproject.toml:{place}: error: ")
    assert "not TOML: Invalid value" in ended.stderr


def test_help_is_there_whatever_the_settings_are(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", "[")
    for words in (["--help"], ["insert", "--help"], ["run", "ws", "--help"]):
        ended = kprof(*words)
        assert (ended.exit_code, ended.stderr) == (0, "")


def test_the_nearest_file_ends_the_search_even_without_settings(kprof: CommandLine) -> None:
    (kprof.folder / "inner").mkdir()
    kprof.write("pyproject.toml", settings("nonsense = 1"))
    kprof.write("inner/pyproject.toml", '[project]\nname = "inner"\n')
    assert CommandLine(kprof.folder / "inner")("insert", SOFTMAX).exit_code == 0


HOOK = """
from pathlib import Path
from kprof_inject import export
Path("ran").touch()

@export.scope_args
def twice(launch, scopes):
    return {"twice": 2 * scopes["scope"]}
"""


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("inner", ["", "inner/most"])
def test_reading_runs_and_writes_nothing_that_settings_name(kprof: CommandLine, inner: str) -> None:
    (kprof.folder / inner).mkdir(parents=True, exist_ok=True)
    kprof.write("hook.py", HOOK)
    kprof.write("kept", "mine")
    kept, hook = (kprof.folder / name for name in ("kept", "hook.py"))
    lines = [f'hooks = ["{hook}"]', f'csv = "{kept}"', f'trace = "{kept}"', f'output = "{kept.with_name("ws")}"']
    kprof.write("pyproject.toml", settings(*lines))
    before = files_in(kprof.folder)
    there = CommandLine(kprof.folder / inner)
    ended = there("trace", CAPTURE, "-o", "t.json")
    assert ended.exit_code == 0
    name = "pyproject.toml" if not inner else kprof.folder / "pyproject.toml"
    ignored = ended.stderr.splitlines()[0]
    assert f" {name}: --hooks, " in ignored
    check("cli/settings", ignored.replace(str(name), "FILE"), "--hooks")
    for words in (["report", CAPTURE], ["diff", CAPTURE, CAPTURE], ["causal", "nowhere"]):
        there(*words)
    assert files_in(kprof.folder) - before == {str(Path(inner, "t.json"))}
    assert kept.read_text() == "mine"


def test_no_harmless_setting_names_a_file() -> None:
    """What it may be is the command's to read; a path, or a text that is run, is not among it."""
    commands = [
        importlib.import_module(found.name)
        for found in pkgutil.iter_modules(kprof_inject.cli.__path__, "kprof_inject.cli.")
    ]
    options = [option for module in commands for option in getattr(module, "command", click.Command(None)).params]
    harmless = [option for option in options if isinstance(option, HarmlessSetting)]
    assert len(harmless) > 50
    for option in harmless:
        assert not isinstance(option.type, click.Path | click.File), option.name
        assert option.metavar not in {"FILE", "FOLDER", "PLACE", "PYTHON", "TEXT"}, option.name


def test_settings_end_at_the_repository(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", settings("nonsense = 1"))
    (kprof.folder / "received/.git").mkdir(parents=True)
    (kprof.folder / "received/inner").mkdir()
    for folder in ("received", "received/inner"):
        ended = CommandLine(kprof.folder / folder)("insert", SOFTMAX)
        assert (ended.exit_code, "settings" in ended.stderr) == (0, False)


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_settings_of_a_folder_that_everybody_can_write_to_are_not_of_those_in_it(kprof: CommandLine, mode: int) -> None:
    (kprof.folder / "shared/received").mkdir(parents=True)
    os.chmod(kprof.folder / "shared", mode)
    kprof.write("shared/pyproject.toml", settings("nonsense = 1"))
    assert CommandLine(kprof.folder / "shared/received")("insert", SOFTMAX).exit_code == 0


def test_settings_in_the_home_folder_are_not_those_of_what_is_in_it(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", settings("nonsense = 1"))
    (kprof.folder / "received").mkdir()
    home = {"HOME": str(kprof.folder)}
    assert CommandLine(kprof.folder / "received")("insert", SOFTMAX, env=home).exit_code == 0


def test_data_of_a_program_has_no_settings_for_it(kprof: CommandLine) -> None:
    copy_program(kprof.folder)
    (kprof.folder / "received").mkdir()
    kprof.write("received/data.py", "")
    kprof.write("received/pyproject.toml", settings('output = "of_received"'))
    kprof("dump", "--", sys.executable, "-m", "ending", "0", "received/data.py")
    assert not (kprof.folder / "of_received").exists()


@pytest.mark.parametrize(
    ("output", "is_used"), [("ws", True), ("inner/../ws", True), ("../ws", False), ("link/ws", False)]
)
def test_settings_for_a_program_without_a_script_name_only_files_in_their_folder(
    kprof: CommandLine, output: str, is_used: bool
) -> None:
    received = kprof.folder / "received"
    copy_program(received)
    (received / "link").symlink_to(kprof.folder)
    kprof.write("received/pyproject.toml", settings(f'output = "{output}"'))
    ended = CommandLine(received)("dump", "--", sys.executable, "-m", "ending", "0")
    assert ended.exit_code == 0
    assert (received / ("ws" if is_used else "kprof_out")).is_dir() and not (kprof.folder / "ws").exists()
    said = (
        "ignored in pyproject.toml: --output, which only the command line can point "
        f"outside {received}, as no Python script is run"
    )
    assert (said in ended.stderr) == (not is_used)


def test_settings_have_a_bounded_size(kprof: CommandLine) -> None:
    with (kprof.folder / "pyproject.toml").open("wb") as file:
        file.truncate(1 << 40)
    ended = kprof("insert", SOFTMAX)
    assert ended.exit_code == 1
    assert "pyproject.toml is too large" in ended.stderr
