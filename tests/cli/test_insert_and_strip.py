"""``insert`` and ``strip`` on single files: what goes where, and what they say of bad input."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import REPO
from snapshots import check

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


def test_what_was_inserted_is_said_on_stderr(kprof: CommandLine, softmax: str) -> None:
    ended = kprof("insert", softmax, "--at", "loop=pass", "--at", "line(21-24)", "--at", "line(23)=max")

    check("cli/insert", ended.stderr, "what was inserted")


def test_the_output_file_holds_what_stdout_would(kprof: CommandLine, softmax: str) -> None:
    to_stdout = kprof("insert", softmax).stdout
    (kprof.folder / "sub").mkdir()
    to_file = kprof("insert", softmax, "-o", "sub/out.ttgir")
    assert (to_file.exit_code, to_file.stdout) == (0, "")
    assert kprof.read("sub/out.ttgir") == to_stdout
    assert os.listdir(kprof.folder / "sub") == ["out.ttgir"]


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


@pytest.mark.parametrize("command", ["insert", "strip"])
def test_a_cut_file_is_pointed_at_and_writes_nothing(kprof: CommandLine, command: str) -> None:
    kprof.write("cut.ttgir", CUT)
    kprof.write("out.ttgir", "precious")
    ended = kprof(command, "cut.ttgir", "-o", "out.ttgir")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("cut.ttgir:3:32: error: ")
    check("cli/insert", ended.stderr, "cut.ttgir")
    assert kprof.read("out.ttgir") == "precious"
    assert sorted(os.listdir(kprof.folder)) == ["cut.ttgir", "home", "out.ttgir"]


def test_a_later_stage_given_by_mistake_is_pointed_at(kprof: CommandLine) -> None:
    kprof.write("kernel.ptx", "//\n\n.version 8.7\n.target sm_90a\n")
    ended = kprof("insert", "kernel.ptx")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("kernel.ptx:3:1: error: ")
    check("cli/insert", ended.stderr, "kernel.ptx")


def test_a_folder_that_is_no_workspace(kprof: CommandLine) -> None:
    (kprof.folder / "folder").mkdir()
    check("cli/insert", kprof("insert", "folder").stderr, "insert of a folder")
    check("cli/insert", kprof("strip", "folder").stderr, "strip of a folder")


def test_bytes_on_stdin_that_are_no_text(kprof: CommandLine) -> None:
    ended = kprof("insert", "-", "-o", "out.ttgir", stdin=b"// caf\xe9\n" + SOFTMAX.encode())
    assert ended.exit_code == 1
    assert ended.stderr.startswith("<stdin>:1:7: error: ")
    assert "byte 6 is not UTF-8" in ended.stderr
    assert not (kprof.folder / "out.ttgir").exists()


def test_markers_of_a_source_that_was_not_dumped(kprof: CommandLine) -> None:
    text = (REPO / "ttgir_fixtures/3.6.0/cuda-90/marked_matmul.ttgir").read_text()
    kprof.write("marked.ttgir", text.replace("/kprof-inject/ttgir_fixtures/kernels/", f"{kprof.folder}/src/"))
    (kprof.folder / "src").mkdir()
    shutil.copy(REPO / "ttgir_fixtures/kernels/marked_matmul.py", kprof.folder / "src")
    said, *_ = kprof("insert", "marked.ttgir", "--dry-run").stderr.splitlines()

    check("cli/insert", said, "marked.ttgir")
    assert said not in kprof("insert", "marked.ttgir", "--dry-run", "--at", "line(34)").stderr.splitlines()


@pytest.mark.parametrize("place", ["file", "link", "up", "pipe"])
def test_a_module_opens_no_file_outside_its_own_folder(kprof: CommandLine, place: str) -> None:
    """A location is a stranger's word: what it names may be private, or never end."""
    inside = kprof.folder / "received"
    inside.mkdir()
    marked = REPO / "ttgir_fixtures/kernels/marked_matmul.py"
    names = {"file": marked, "link": inside / "link.py", "up": inside / ".." / "mine.py", "pipe": inside / "pipe.py"}
    shutil.copy(marked, kprof.folder / "mine.py")
    names["link"].symlink_to(marked)
    os.mkfifo(names["pipe"])
    text = (REPO / "ttgir_fixtures/3.6.0/cuda-90/marked_matmul.ttgir").read_text()
    text = text.replace("/kprof-inject/ttgir_fixtures/kernels/marked_matmul.py", str(names[place]))
    (inside / "marked.ttgir").write_text(text)
    listed = kprof("list", "received/marked.ttgir")
    assert listed.exit_code == 0, listed.stderr
    assert "marker" not in listed.stdout


def test_a_workspace_keeps_its_own_output(kprof: CommandLine, workspace: object) -> None:
    ended = kprof("insert", "workspace", "-o", "out.ttgir")
    assert ended.exit_code == 2
    assert "a workspace keeps its own" in ended.stderr


# ---- what is shown instead of written --------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_nothing_is_written(kprof: CommandLine, softmax: str, option: str) -> None:
    ended = kprof("insert", softmax, option, "-o", "out.ttgir", "--plan", "plan.json")

    assert ended.exit_code == 0
    assert ended.stderr.startswith("kprof-inject: softmax_kernel: 5 scopes, 10 records\n")
    assert sorted(os.listdir(kprof.folder)) == ["home", "softmax.ttgir"]
    assert (ended.stdout == "") == (option == "--dry-run")


def test_a_dry_run_of_a_workspace_keeps_its_plans(kprof: CommandLine, workspace: Path) -> None:
    kprof("insert", "workspace", "--at", "func")
    before = {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()}

    assert kprof("insert", "workspace", "--at", "loop", "--dry-run").exit_code == 0
    assert kprof("insert", "workspace", "--at", "loop", "--diff").exit_code == 0
    assert {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()} == before


def test_the_diff_is_coloured_where_that_is_asked_for(kprof: CommandLine, softmax: str) -> None:
    coloured = kprof("insert", softmax, "--diff", env={"FORCE_COLOR": "1"}).stdout

    assert re.search(r'\x1b\[32m(\x1b\[\d+m)*\+    proton\.record start "loop\[1\]"\x1b\[0m', coloured)
    assert "\x1b[" not in kprof("insert", softmax, "--diff", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


def test_the_json_needs_stdout_for_itself(kprof: CommandLine, softmax: str) -> None:
    ended = kprof("insert", softmax, "--json")

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "give -o or --dry-run" in ended.stderr
    written = kprof("insert", softmax, "--json", "-o", "out.ttgir")
    assert json.loads(written.stdout)[0]["records"] == kprof.read("out.ttgir").count("proton.record")


# ---- ranges that the compiler took apart -----------------------------------------------------------------

CROSSING = """\
module {
  tt.func public @k(%p: !tt.ptr<f32>) {
    %a = tt.load %p : !tt.ptr<f32> loc("k.py":5:0)
    %b = tt.load %p : !tt.ptr<f32> loc("k.py":6:0)
    tt.store %p, %a : !tt.ptr<f32> loc("k.py":5:0)
    tt.store %p, %b : !tt.ptr<f32> loc("k.py":6:0)
    tt.return
  }
}
"""


def test_scopes_that_cross_are_marked_so(kprof: CommandLine) -> None:
    kprof.write("k.ttgir", CROSSING)
    ended = kprof("insert", "k.ttgir", "--at", "line(5)=a", "--at", "line(6)=b", "--plan", "plan.json")

    assert [line.split()[-1] for line in ended.stderr.splitlines()[2:4]] == ["b", "a"]
    assert "--split runs" in ended.stderr.splitlines()[-1]
    check("cli/insert", ended.stderr, "crossing scopes")
    assert [scope["crosses"] for scope in json.loads(kprof.read("plan.json"))["scopes"]] == [[1], [0]]


# ---- sources ---------------------------------------------------------------------------------------------

PROGRAM = """\
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def twice(x_ptr):
    x = tl.load(x_ptr)
    tl.store(x_ptr, x + x)  # kprof: write


triton.compile(ASTSource(twice, {"x_ptr": "*fp32"}, {}, {}), target=GPUTarget("cuda", 90, 32))
"""


def test_markers_are_those_of_the_dump(kprof: CommandLine) -> None:
    kprof.write("twice.py", PROGRAM)
    assert kprof("dump", "-o", "ws", "--", "twice.py").exit_code == 0

    unchanged = kprof("insert", "ws")
    assert "has changed" not in unchanged.stderr
    assert "twice: 1 scope, 4 records" in unchanged.stderr

    kprof.write("twice.py", "\n\n" + PROGRAM.replace("# kprof: write", "# kprof: renamed"))
    changed = kprof("insert", "ws")
    assert changed.exit_code == 0
    check("cli/insert", changed.stderr, "a source that has changed")
    assert changed.stderr.splitlines()[1:] == unchanged.stderr.splitlines()

    (kprof.folder / "twice.py").unlink()
    assert kprof("insert", "ws").stderr == unchanged.stderr
