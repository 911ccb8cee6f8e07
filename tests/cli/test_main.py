"""How the command line ends: errors that nobody foresaw, and readers that go away."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest
from command_line import CommandLine
from programs.child import REPO, clean_environment, run_child
from snapshots import check

from kprof_inject.cli import main as main_module
from kprof_inject.cli.main import main

VECTOR_ADD = REPO / "ttgir_fixtures/3.6.0/cuda-90/vector_add.ttgir"
FAULT = "kprof-inject: an internal error in kprof-inject: "


def ended_with(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    """The exit code and stderr of a command line that comes to this error."""

    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(main_module.root, "main", fail)
    monkeypatch.setattr(sys, "argv", ["kprof-inject", "list", "a b"])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ValueError("no\nluck"), "ValueError: no"),
        (MemoryError(), "MemoryError"),
        (AssertionError("\x1b[2J"), "AssertionError:  [2J"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_that_nobody_foresaw_is_one_line_and_a_file(
    error: Exception,
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    exit_code, said = ended_with(error, monkeypatch, capsys)

    (file,) = tmp_path.iterdir()
    assert exit_code == 1
    assert said.startswith(f"{FAULT}{what}; ") and f" {file}, " in said
    check("cli/main", said.replace(what, "ERROR").replace(str(file), "FILE"), "FAULT")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    details = file.read_text()
    assert details.startswith("kprof-inject list 'a b'\n\nTraceback (")
    assert "in fail\n" in details and f"\n{type(error).__name__}" in details
    assert "\nkprof-inject 0." in details and "\nPython 3." in details and "\nlark 1." in details


def test_without_a_place_for_the_file_the_details_are_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")

    exit_code, said = ended_with(ValueError("no luck"), monkeypatch, capsys)

    assert exit_code == 1
    assert said.startswith("Traceback (most recent call last):\n")
    check("cli/main", said.splitlines()[-1], "/nowhere")


@pytest.mark.parametrize(
    ("command", "exit_code", "said"),
    [
        ("strip", 1, ["error: stdout is closed", "hint: name a file with -o"]),
        ("check", 0, []),
    ],
)
def test_without_a_stdout(kprof: CommandLine, command: str, exit_code: int, said: list[str]) -> None:
    ended = run_child(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "kprof_inject", command, VECTOR_ADD], kprof.folder
    )
    assert (ended.exit_code, ended.stderr.splitlines()) == (exit_code, said)


@pytest.mark.parametrize("command", [["list"], ["insert"]], ids=" ".join)
def test_a_reader_that_has_enough_ends_it_quietly(kprof: CommandLine, command: list[str]) -> None:
    """As ``kprof-inject list FILE | head -0`` does."""
    name, *options = command
    with subprocess.Popen(
        [sys.executable, "-m", "kprof_inject", name, VECTOR_ADD, *options],
        cwd=kprof.folder,
        env=clean_environment(kprof.folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
    assert (process.returncode, said) == (1, "")


@pytest.mark.parametrize("threads", [None, "3"])
def test_programs_inherit_the_users_number_of_threads(threads: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", threads)
    root = main_module.root
    assert root.get_command(click.Context(root), "report") is not None
    assert os.environ.get("OPENBLAS_NUM_THREADS") == threads
