"""What the command line says of itself, and how it answers words that it does not know."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import REPO, run_python
from snapshots import check

import kprof_inject
from kprof_inject.cli import grouped_help

COMMANDS = [
    "causal",
    "dump",
    "list",
    "insert",
    "strip",
    "check",
    "run",
    "trace",
    "report",
    "diff",
    "profile",
    "demo",
    "doctor",
]

MODULES_AFTER_HELP = """
import sys
from kprof_inject.cli.main import main
sys.argv = ["kprof-inject", "--help"]
try:
    main()
finally:
    print("imported:", *sorted({"click", "lark", "numpy", "torch", "triton"} & sys.modules.keys()))
"""


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    ended = run_python("-c", MODULES_AFTER_HELP, folder=tmp_path)
    assert ended.exit_code == 0
    assert ended.stdout.startswith("Usage: kprof-inject [OPTIONS] COMMAND")
    assert ended.stdout.endswith("imported: click\n")


def test_the_installed_script_is_the_same_program(tmp_path: Path, kprof: CommandLine) -> None:
    scripts = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts["kprof-inject"].split(":")
    script = run_python("-c", f"from {module} import {function}; {function}()", "--version", folder=tmp_path)
    assert script == kprof("--version")
    assert script.stdout == f"kprof-inject, version {kprof_inject.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(kprof: CommandLine, command: str) -> None:
    ended = kprof(command, "--help")
    assert ended.exit_code == 0
    assert ended.stdout.startswith(f"Usage: kprof-inject {command} ")
    assert ended.stderr == ""


def test_help_lists_every_command_with_what_it_does(kprof: CommandLine) -> None:
    listed = {line.split()[0]: line.split()[1:] for line in kprof("-h").stdout.splitlines() if line.strip()}
    for command in COMMANDS:
        assert len(listed[command]) > 3


def test_help_has_groups_and_examples(kprof: CommandLine) -> None:
    text = kprof("--help").stdout
    titles = ["Find out what limits a kernel:", "Read what was captured:", "Go step by step:", "Get help:", "Examples:"]
    assert sorted(titles, key=text.index) == titles
    assert text.count("kprof-inject profile ") == 2


@pytest.mark.parametrize("name", grouped_help.GONE_COMMANDS)
def test_a_command_that_is_gone_says_what_to_use(kprof: CommandLine, name: str) -> None:
    ended = kprof(name)
    assert ended.exit_code == 2 and ended.errors() == [
        f"error: The command {name} is gone: {grouped_help.GONE_COMMANDS[name]}."
    ]


@pytest.mark.parametrize(("name", "option"), grouped_help.GONE_OPTIONS)
def test_an_option_that_is_gone_says_what_to_use(kprof: CommandLine, name: str, option: str) -> None:
    ended = kprof(name, option)
    assert ended.exit_code == 2
    assert ended.errors() == [f"error: The option {option} is gone: {grouped_help.GONE_OPTIONS[name, option]}."]


@pytest.mark.parametrize("command", ["profile", "run"])
def test_many_options_are_in_groups(kprof: CommandLine, command: str) -> None:
    text = kprof(command, "--help").stdout
    titles = re.findall(r"^([A-Z].*):$", text, re.MULTILINE)
    assert titles[0] == "What to record" and len(titles) == len(set(titles)) > 3
    assert len(re.findall(r"^  -", text, re.MULTILINE)) == len(set(re.findall(r"^  (-[^ ]+)", text, re.MULTILINE)))


def test_rare_options_are_listed_by_help_all_alone(kprof: CommandLine) -> None:
    few, all_of_them = kprof("run", "--help").stdout, kprof("run", "--help-all").stdout
    assert "--clock32" not in few and "--help-all" in few
    assert "--clock32" in all_of_them and len(all_of_them) > 1.5 * len(few)


@pytest.mark.parametrize(("word", "meant"), [("reprot", "report"), ("cuasal", "causal")])
def test_a_command_that_is_misspelt_is_answered_with_the_right_one(kprof: CommandLine, word: str, meant: str) -> None:
    ended = kprof(word)
    assert ended.exit_code == 2
    assert f"'{word}'" in ended.stderr and f" {meant}?" in ended.stderr


@pytest.mark.parametrize("command", ["list", "insert", "trace", "report", "diff"])
def test_without_a_place_the_default_workspace_is_meant(kprof: CommandLine, command: str) -> None:
    ended = kprof(command)
    assert ended.exit_code == 1
    assert "kprof_out" in ended.errors()[0]


def test_a_program_that_can_be_run_is_no_workspace(kprof: CommandLine) -> None:
    kprof.write("prog.py", "")
    for words in (["prog.py"], ["--", "python3", "prog.py"]):
        assert kprof("run", *words).errors() == kprof("run", "kprof_out", *words).errors()
        assert "kprof_out" in kprof("run", *words).errors()[0]
    assert "elsewhere" in kprof("run", "elsewhere", "prog.py").errors()[0]
    assert "kprof_out" in kprof("run", "no_such_program.py").errors()[0]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--nope", "--nope"),
        ("dump", ": kprof-inject dump -- python train.py"),
        ("run", "Missing argument 'PROGRAM...'."),
        ("run --buffer-type heap kprof_out prog.py", "'heap' is not one of "),
        ("run --buffer-size 8 kprof_out prog.py", "8 is not in the range"),
        ("run --buffer-size many kprof_out prog.py", "'many' is not a valid integer"),
        ("run --warps 0,x kprof_out prog.py", "--warps:1:3: error: 'x' is "),
        ("profile --launches 5:3 prog.py", "--launches:1:3: error: "),
        ("", "Usage: kprof-inject"),
    ],
)
def test_wrong_usage_ends_with_2(kprof: CommandLine, arguments: str, complaint: str) -> None:
    ended = kprof(*arguments.split())
    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr
    if arguments:
        check("cli/wrong_usage", ended.stderr, arguments)
