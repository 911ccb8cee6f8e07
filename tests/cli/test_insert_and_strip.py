"""``insert`` and ``strip`` on single files: what goes where, and what they say of bad input."""

from __future__ import annotations

import json
import os

import pytest
from command_line import CommandLine
from programs.child import REPO

SOFTMAX = (REPO / "ttgir_fixtures/3.6.0/cuda-90/softmax.ttgir").read_bytes().decode()
SOFTMAX_RECORDS = [
    'proton.record start "func"',
    'proton.record start "loop[0]"',
    'proton.record start "iter[0]"',
    'proton.record end "iter[0]"',
    'proton.record end "loop[0]"',
    'proton.record start "loop[1]"',
    'proton.record start "iter[1]"',
    'proton.record end "iter[1]"',
    'proton.record end "loop[1]"',
    'proton.record end "func"',
]

CUT = """\
module {
  tt.func public @cut() {
    %0 = arith.constant 1 : i32
"""


@pytest.fixture
def softmax(kprof: CommandLine) -> str:
    kprof.write("softmax.ttgir", SOFTMAX)
    return "softmax.ttgir"


def test_insert_adds_whole_lines_and_changes_no_other(kprof: CommandLine, softmax: str) -> None:
    ended = kprof("insert", softmax)
    lines = ended.stdout.splitlines(keepends=True)
    assert ended.exit_code == 0
    assert [line.strip() for line in lines if "proton.record" in line] == SOFTMAX_RECORDS
    assert "".join(line for line in lines if "proton.record" not in line) == SOFTMAX


def test_progress_goes_to_stderr(kprof: CommandLine, softmax: str) -> None:
    source = "/kprof-inject/ttgir_fixtures/kernels/softmax.py"
    assert kprof("insert", softmax, "--at", "loop=pass").stderr.splitlines() == [
        "kprof-inject: softmax_kernel: 2 scope(s)",
        f"kprof-inject:   pass (loop=pass) at {source}:21",
        f"kprof-inject:   pass (loop=pass) at {source}:27",
    ]


def test_the_output_file_holds_what_stdout_would(kprof: CommandLine, softmax: str) -> None:
    to_stdout = kprof("insert", softmax).stdout
    to_file = kprof("insert", softmax, "-o", "sub/out.ttgir")
    assert (to_file.exit_code, to_file.stdout) == (0, "")
    assert kprof.read("sub/out.ttgir") == to_stdout
    assert os.listdir(kprof.folder / "sub") == ["out.ttgir"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_strip_restores_every_byte_of_a_file(kprof: CommandLine, newline: str) -> None:
    text = SOFTMAX.replace("\n", newline)
    kprof.write("in.ttgir", text)
    kprof("insert", "in.ttgir", "-o", "out.ttgir")
    assert f'proton.record end "func"{newline}' in kprof.read("out.ttgir")
    assert kprof("strip", "out.ttgir", "-o", "back.ttgir").exit_code == 0
    assert kprof.read("back.ttgir") == text


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_a_pipe_through_insert_and_strip_restores_every_byte(kprof: CommandLine, newline: str) -> None:
    text = SOFTMAX.replace("\n", newline)
    inserted = kprof("insert", "-", stdin=text.encode())
    assert inserted.stdout.count("proton.record") == len(SOFTMAX_RECORDS)
    assert kprof("strip", "-", stdin=inserted.stdout.encode()).stdout == text


@pytest.mark.parametrize("command", ["insert", "strip"])
def test_stdout_is_utf_8_whatever_the_terminal_is(kprof: CommandLine, command: str) -> None:
    kprof.write("in.ttgir", "// Größe\n" + SOFTMAX)
    ended = kprof(command, "in.ttgir", env={"PYTHONIOENCODING": "ascii"})
    assert ended.exit_code == 0
    assert ended.stdout.startswith("// Größe\n")


def test_the_plan_is_the_scope_table(kprof: CommandLine, softmax: str) -> None:
    kprof("insert", softmax, "--at", "loop[1]=second", "--at", "iter[1]", "--plan", "plan.json")
    table = json.loads(kprof.read("plan.json"))
    assert table["kernel"] == "softmax_kernel"
    assert [(scope["record"], scope["selector"], scope["parent"]) for scope in table["scopes"]] == [
        ("second", "loop[1]=second", -1),
        ("iter[1]", "iter[1]", 0),
    ]


@pytest.mark.parametrize("command", ["insert", "strip"])
@pytest.mark.parametrize("before", [None, "precious"], ids=["no old output", "old output"])
def test_a_cut_file_is_pointed_at_and_writes_nothing(kprof: CommandLine, command: str, before: str | None) -> None:
    kprof.write("cut.ttgir", CUT)
    if before is not None:
        kprof.write("out.ttgir", before)
    ended = kprof(command, "cut.ttgir", "-o", "out.ttgir")
    first, *rest = ended.stderr.splitlines()
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert first.startswith("cut.ttgir:3:32: error: the file ends inside a region")
    assert rest == [
        "      %0 = arith.constant 1 : i32",
        "                                 ^",
        "hint: the file is cut off; dump it again",
    ]
    if before is None:
        assert sorted(os.listdir(kprof.folder)) == ["cut.ttgir", "home"]
    else:
        assert kprof.read("out.ttgir") == before


def test_a_later_stage_given_by_mistake_is_pointed_at(kprof: CommandLine) -> None:
    kprof.write("kernel.ptx", "//\n\n.version 8.7\n.target sm_90a\n")
    ended = kprof("insert", "kernel.ptx")
    first, *rest = ended.stderr.splitlines()
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert first.startswith("kernel.ptx:3:1: error: this is not TTGIR as Triton prints it")
    assert rest == [
        "  .version 8.7",
        "  ^",
        "hint: give a .ttgir file as Triton writes it (see 'kprof-inject dump')",
    ]


@pytest.mark.parametrize("command", ["insert", "strip"])
def test_a_missing_file(kprof: CommandLine, command: str) -> None:
    ended = kprof(command, "gone.ttgir", "-o", "out.ttgir")
    assert ended.exit_code == 1
    assert ended.stderr == "error: cannot read gone.ttgir: No such file or directory\n"
    assert not (kprof.folder / "out.ttgir").exists()


def test_a_folder_that_is_no_workspace(kprof: CommandLine) -> None:
    (kprof.folder / "folder").mkdir()
    assert kprof("insert", "folder").stderr.splitlines() == [
        "error: folder is no workspace",
        "hint: make one: kprof-inject dump -o folder -- PROG",
    ]
    assert kprof("strip", "folder").stderr == "error: cannot read folder: Is a directory\n"


def test_bytes_that_are_no_text(kprof: CommandLine) -> None:
    (kprof.folder / "kernel.cubin").write_bytes(b"\x7fELF\xff")
    ended = kprof("insert", "kernel.cubin")
    assert ended.exit_code == 1
    assert ended.stderr.splitlines()[0] == "error: kernel.cubin is no text file (byte 4 is not UTF-8)"


def test_bytes_on_stdin_that_are_no_text(kprof: CommandLine) -> None:
    ended = kprof("insert", "-", "-o", "out.ttgir", stdin=b"// caf\xe9\n" + SOFTMAX.encode())
    assert ended.exit_code == 1
    assert ended.stderr.splitlines()[0] == "error: <stdin> is no text file (byte 6 is not UTF-8)"
    assert not (kprof.folder / "out.ttgir").exists()


@pytest.mark.parametrize("command", ["insert", "strip"])
def test_stdin_is_called_by_its_name_in_diagnostics(kprof: CommandLine, command: str) -> None:
    ended = kprof(command, "-", stdin=CUT.encode())
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("<stdin>:3:32: error: ")


def test_a_selector_that_finds_nothing_names_what_there_is(kprof: CommandLine, softmax: str) -> None:
    ended = kprof("insert", softmax, "--at", "func", "--at", "loop[7]", "-o", "out.ttgir")
    assert ended.exit_code == 1
    assert ended.stderr.splitlines() == [
        "error: the selector 'loop[7]' finds nothing in softmax_kernel",
        "hint: what there is to select: func, loop[0], loop[1], iter[0], iter[1]",
    ]
    assert not (kprof.folder / "out.ttgir").exists()


def test_a_malformed_selector_is_pointed_at(kprof: CommandLine, softmax: str) -> None:
    ended = kprof("insert", softmax, "--at", "loop[0.x]")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[:3] == [
        "--at:1:8: error: cannot read the selector 'loop[0.x]'",
        "  loop[0.x]",
        "         ^",
    ]


def test_records_are_not_inserted_twice(kprof: CommandLine, softmax: str) -> None:
    kprof("insert", softmax, "-o", "once.ttgir")
    ended = kprof("insert", "once.ttgir")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "error: this file already has records" in ended.stderr


def test_a_workspace_keeps_its_own_output(kprof: CommandLine, workspace: object) -> None:
    ended = kprof("insert", "workspace", "-o", "out.ttgir")
    assert ended.exit_code == 2
    assert "a workspace keeps its own" in ended.stderr
