"""``[tool.kprof-inject]`` in pyproject.toml: which file, which keys, and what goes before it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import PROGRAMS, REPO

SOFTMAX = REPO / "ttgir_fixtures/3.6.0/cuda-90/softmax.ttgir"


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


def test_a_single_word_stands_for_a_list_of_one(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", settings('at = "func"'))
    assert inserted(kprof("insert", SOFTMAX).stdout) == ['proton.record start "func"']


def test_the_command_line_goes_before(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", settings('at = ["func"]'))
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
    copy_program(kprof.folder / "repo/src")
    kprof.write("pyproject.toml", settings('output = "of_here"'))
    kprof.write("repo/pyproject.toml", settings('output = "of_repo"'))
    command_lines = [
        ["repo/src/ending.py", "0"],
        ["--", "repo/src/ending.py", "0"],
        ["--kernel", "*", sys.executable, "repo/src/ending.py", "ending.py", "0"],
    ]
    for number, words in enumerate(command_lines):
        assert kprof("dump", *words).exit_code == 0
        # Relative to the current folder, as on the command line.
        (kprof.folder / "of_repo").rename(kprof.folder / f"was_{number}")
    assert not (kprof.folder / "of_here").exists()


def test_a_program_without_a_script_has_the_settings_of_the_current_folder(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", settings('output = "of_here"'))
    copy_program(kprof.folder)
    assert kprof("dump", "--", sys.executable, "-m", "ending", "0").exit_code == 0
    assert (kprof.folder / "of_here").is_dir()


def test_run_has_settings_too(kprof: CommandLine, workspace: Path) -> None:
    kprof.write("pyproject.toml", settings('launches = "1:x"'))
    ended = kprof("run", workspace, "--buffer", "global", "--", "python", "-c", "pass")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "cannot read the launches '1:x'" in ended.stderr


def test_a_mode_may_be_a_setting(kprof: CommandLine) -> None:
    copy_program(kprof.folder)
    kprof("dump", "-o", "ws", "ending.py", "0")
    kprof("insert", "ws")
    kprof.write(
        "pyproject.toml", settings('buffer-bytes = "auto"', "sched-stores = true", 'warps = "9"', "fit = false")
    )
    ended = kprof("run", "ws", "--buffer", "global", "ending.py", "0")
    assert ended.stderr.splitlines()[0] == (
        "kprof-inject: settings of pyproject.toml: buffer-bytes, warps, sched-stores, fit"
    )
    assert "it has 4 warps, 0 to 3, and none of the selected ones (9)" in ended.stderr


@pytest.mark.parametrize(
    ("line", "what", "hint"),
    [
        ('launchs = "all"', "there is no setting 'launchs'", "did you mean launches or launch or max-launches?"),
        ("max_bytes = 5", "there is no setting 'max_bytes'", "did you mean max-bytes?"),
        ('max-bytes = "5"', "max-bytes must be a whole number", None),
        ('buffer-bytes = "all"', "invalid value for buffer-bytes: 'all' is not a valid integer range.", None),
        ("sched-stores = 1", "sched-stores must be true or false", None),
        ("max-bytes = true", "max-bytes must be a whole number", None),
        ("max-bytes = 0", "invalid value for max-bytes: 0 is not in the range x>=1.", None),
        ('buffer = "heap"', "invalid value for buffer: 'heap' is not one of 'shared', 'global'.", None),
        ("at = [57]", "at must be a list: a string for each", None),
        ("launches = 3", "launches must be a string", None),
    ],
)
def test_a_wrong_setting_is_pointed_at(kprof: CommandLine, line: str, what: str, hint: str | None) -> None:
    kprof.write("pyproject.toml", settings("# " + line, '"trace" = "t.json"', f"  {line}"))
    ended = kprof("profile", "-o", "ws", "--", "true")
    assert (ended.exit_code, ended.stdout) == (2, "")
    expected = [f"pyproject.toml:7:3: error: {what}", f"    {line}", "    ^"]
    assert ended.stderr.splitlines() == expected + ([f"hint: {hint}"] if hint else [])
    assert not (kprof.folder / "ws").exists()


def test_a_setting_of_no_resemblance_lists_them_all(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", settings("zzz = 1"))
    hint = kprof("strip", SOFTMAX).stderr.splitlines()[-1]
    assert hint.startswith("hint: the settings are arg, at, bisect, budget, buffer, buffer-bytes, ")
    assert {"kernel", "launches", "output", "trace"} <= set(hint.removeprefix("hint: the settings are ").split(", "))


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("[tool]\na = \n", "2:5", "this is not TOML: Invalid value"),
        ("[tool]\r\n\r\na = \r\n", "3:5", "this is not TOML: Invalid value"),
        ("[tool.kprof-inject]\nat = [", "2:7", "this is not TOML: Invalid value"),
    ],
)
def test_a_broken_file_is_pointed_at(kprof: CommandLine, text: str, place: str, what: str) -> None:
    kprof.write("pyproject.toml", text)
    ended = kprof("insert", SOFTMAX)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.splitlines()[0] == f"pyproject.toml:{place}: error: {what}"


def test_settings_that_are_no_table(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", "[tool]\nkprof-inject = 3\n")
    assert kprof("insert", SOFTMAX).stderr.splitlines()[0] == "pyproject.toml:2:1: error: the settings are not a table"


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


def test_flags_are_for_one_call(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", settings("json = true"))
    kprof.write("cut.ttgir", "module {\n")
    ended = kprof("check", "cut.ttgir")
    assert ended.exit_code == 2
    assert ended.stderr.startswith("pyproject.toml:5:1: error: there is no setting 'json'\n")
