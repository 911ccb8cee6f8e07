"""``insert`` and ``strip`` on single files: what goes where, and what they say of bad input."""

from __future__ import annotations

import json
import os
import re
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
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("cut.ttgir:3:32: error: ")
    check("cli/insert", ended.stderr, "cut.ttgir")
    if before is None:
        assert sorted(os.listdir(kprof.folder)) == ["cut.ttgir", "home"]
    else:
        assert kprof.read("out.ttgir") == before


def test_a_later_stage_given_by_mistake_is_pointed_at(kprof: CommandLine) -> None:
    kprof.write("kernel.ptx", "//\n\n.version 8.7\n.target sm_90a\n")
    ended = kprof("insert", "kernel.ptx")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("kernel.ptx:3:1: error: ")
    check("cli/insert", ended.stderr, "kernel.ptx")


@pytest.mark.parametrize("words", ["insert gone.ttgir", "strip gone.ttgir"])
def test_a_missing_file(kprof: CommandLine, words: str) -> None:
    ended = kprof(*words.split(), "-o", "out.ttgir")
    assert ended.exit_code == 1
    check("cli/insert", ended.stderr, words)
    assert not (kprof.folder / "out.ttgir").exists()


def test_a_folder_that_is_no_workspace(kprof: CommandLine) -> None:
    (kprof.folder / "folder").mkdir()
    check("cli/insert", kprof("insert", "folder").stderr, "insert of a folder")
    check("cli/insert", kprof("strip", "folder").stderr, "strip of a folder")


def test_bytes_that_are_no_text(kprof: CommandLine) -> None:
    (kprof.folder / "kernel.cubin").write_bytes(b"\x7fELF\xff")
    ended = kprof("insert", "kernel.cubin")
    assert ended.exit_code == 1
    assert ended.stderr.startswith("kernel.cubin:1:5: error: ")
    check("cli/insert", ended.stderr, "kernel.cubin")


def test_bytes_on_stdin_that_are_no_text(kprof: CommandLine) -> None:
    ended = kprof("insert", "-", "-o", "out.ttgir", stdin=b"// caf\xe9\n" + SOFTMAX.encode())
    assert ended.exit_code == 1
    assert ended.stderr.startswith("<stdin>:1:7: error: ")
    assert "byte 6 is not UTF-8" in ended.stderr
    assert not (kprof.folder / "out.ttgir").exists()


@pytest.mark.parametrize("command", ["insert", "strip"])
def test_stdin_is_called_by_its_name_in_diagnostics(kprof: CommandLine, command: str) -> None:
    ended = kprof(command, "-", stdin=CUT.encode())
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("<stdin>:3:32: error: ")


def test_markers_of_a_source_that_was_not_dumped(kprof: CommandLine) -> None:
    text = (REPO / "ttgir_fixtures/3.6.0/cuda-90/marked_matmul.ttgir").read_text()
    kprof.write("marked.ttgir", text.replace("/kprof-inject/", f"{REPO}/"))
    said, *_ = kprof("insert", "marked.ttgir", "--dry-run").stderr.splitlines()

    check("cli/insert", said, "marked.ttgir")
    assert said not in kprof("insert", "marked.ttgir", "--dry-run", "--at", "line(34)").stderr.splitlines()


def test_a_selector_that_finds_nothing_names_what_there_is(kprof: CommandLine, softmax: str) -> None:
    ended = kprof("insert", softmax, "--at", "func", "--at", "loop[7]", "-o", "out.ttgir")
    assert ended.exit_code == 1
    check("cli/insert", ended.stderr, "loop[7]")
    assert not (kprof.folder / "out.ttgir").exists()


def test_a_malformed_selector_is_pointed_at(kprof: CommandLine, softmax: str) -> None:
    ended = kprof("insert", softmax, "--at", "loop[0.x]")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("--at:1:8: error: ")
    check("cli/insert", ended.stderr, "loop[0.x]")


def test_records_are_not_inserted_twice(kprof: CommandLine, softmax: str) -> None:
    kprof("insert", softmax, "-o", "once.ttgir")
    ended = kprof("insert", "once.ttgir")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "error: this file already has records" in ended.stderr


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


def test_the_diff_is_the_records(kprof: CommandLine, softmax: str) -> None:
    ended = kprof("insert", softmax, "--at", "iter[1]", "--diff")
    lines = ended.stdout.splitlines()

    assert lines[:2] == ["--- softmax.ttgir", "+++ softmax.ttgir with records"]
    assert [line for line in lines[2:] if line[0] in "+-"] == [
        '+    proton.record start "kernel body"',
        '+      proton.record start "iter[1]"',
        '+    proton.record end "iter[1]"',
        '+    proton.record end "kernel body"',
    ]
    assert "\x1b[" not in ended.stdout


@pytest.mark.parametrize(
    ("choice", "end", "ended_by_next"),
    [("one", '+    proton.record end "iter[1]"', True), ("two", '+      proton.record end "iter[1]"', False)],
)
def test_an_iteration_gets_as_many_records_as_are_asked_for(
    kprof: CommandLine, softmax: str, choice: str, end: str, ended_by_next: bool
) -> None:
    selected = ("insert", softmax, "--at", "func", "--at", "iter[1]", "--iter-records", choice)
    lines = kprof(*selected, "--diff").stdout.splitlines()
    kprof(*selected, "--plan", "plan.json")

    assert [line for line in lines[2:] if line[0] in "+-"] == [
        '+    proton.record start "func"',
        '+      proton.record start "iter[1]"',
        end,
        '+    proton.record end "func"',
    ]
    function, iteration = json.loads(kprof.read("plan.json"))["scopes"]
    assert iteration.get("ended_by_next", False) == ended_by_next
    assert "ended_by_next" not in function


def test_another_number_of_records_for_an_iteration_is_refused(kprof: CommandLine, softmax: str) -> None:
    ended = kprof("insert", softmax, "--iter-records", "three")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "'three'" in ended.stderr and "'one', 'two'" in ended.stderr


def test_the_diff_of_a_workspace_has_each_kernel(kprof: CommandLine, workspace: Path) -> None:
    lines = kprof("insert", "workspace", "--at", "accumulate/loop", "--diff").stdout.splitlines()

    names = sorted(path.relative_to(kprof.folder) for path in workspace.glob("kernels/accumulate-*/kernel.ttgir"))
    assert [line for line in lines if line.startswith("--- ")] == [f"--- {name}" for name in names]


def test_the_diff_is_coloured_where_that_is_asked_for(kprof: CommandLine, softmax: str) -> None:
    coloured = kprof("insert", softmax, "--diff", env={"FORCE_COLOR": "1"}).stdout

    assert re.search(r'\x1b\[32m(\x1b\[\d+m)*\+    proton\.record start "loop\[1\]"\x1b\[0m', coloured)
    assert "\x1b[" not in kprof("insert", softmax, "--diff", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


def test_the_plan_as_json(kprof: CommandLine, softmax: str) -> None:
    ended = kprof("insert", softmax, "--dry-run", "--json", "--at", "line(23)=max", "--at", "op(tt.reduce*)")
    (plan,) = json.loads(ended.stdout)

    assert (plan["kernel"], plan["records"]) == ("softmax_kernel", 8)
    assert [(scope["record"], scope["block"], scope["operations"]) for scope in plan["scopes"]] == [
        ("max", "body", 3),
        ("tt.reduce#0", "body", 3),
        ("tt.reduce#1", "body", 3),
    ]
    lines, operations = plan["selectors"]
    assert {**lines, "not_covered": []} == {
        "selector": "line(23)=max",
        "sites": 1,
        "operations_found": 4,
        "operations_covered": 3,
        "not_covered": [],
        "dropped": [],
    }
    (missed,) = lines["not_covered"]
    assert (missed["operation"], missed["reason"]) == ("arith.maxnumf", "index arithmetic elsewhere")
    assert "arith.maxnumf" in SOFTMAX.splitlines()[missed["line"] - 1]
    assert (operations["sites"], len(operations["not_covered"])) == (2, 2)


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


def test_split_runs_takes_them_apart(kprof: CommandLine) -> None:
    kprof.write("k.ttgir", CROSSING)
    ended = kprof("insert", "k.ttgir", "--at", "line(5)=a", "--at", "line(6)=b", "--split", "runs")

    assert re.findall(r'record (start|end) "(.*#.)"', ended.stdout) == [
        (place, name) for name in ("a#0", "b#0", "a#1", "b#1") for place in ("start", "end")
    ]
    assert "crossing" not in ended.stderr
    assert "line(5)=a: 2 sites, 2 of 2 " in ended.stderr


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


def test_a_dumped_file_by_itself_has_its_sources_too(kprof: CommandLine) -> None:
    kprof.write("twice.py", PROGRAM)
    kprof("dump", "-o", "ws", "--", "twice.py")
    (ttgir,) = (kprof.folder / "ws").glob("kernels/*/kernel.ttgir")
    kprof.write("twice.py", "")

    assert 'proton.record start "write"' in kprof("insert", ttgir).stdout


def test_a_wrong_marker_is_pointed_at_and_leaves_the_kernel_alone(kprof: CommandLine) -> None:
    kprof.write("twice.py", PROGRAM.replace("# kprof: write", "# kprof: begin"))
    kprof("dump", "-o", "ws", "--", "twice.py")

    ended = kprof("insert", "ws")
    assert ended.exit_code == 1
    assert f"{kprof.folder}/twice.py:10:38: error: 'begin' " in ended.stderr
    check("cli/insert", ended.stderr, "a wrong marker")
    assert kprof("insert", "ws", "--at", "func").exit_code == 0
