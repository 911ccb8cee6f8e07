"""``check``: what Triton makes of .ttgir files, one line for each, and diagnostics that point into them."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
import triton
from command_line import CommandLine
from golden import fixture_id, read
from programs.child import run_child
from snapshots import check
from triton_oracle import installed_fixtures


def fixture(kernel: str) -> str:
    """What the installed Triton printed of a kernel for the H200."""
    (path,) = (
        path
        for path in installed_fixtures()
        if path.parent.name == "cuda-90" and fixture_id(path).endswith(f"/{kernel}")
    )
    return read(path)


SOFTMAX = fixture("softmax")
OK_NUMBERS = {"target": "cuda:90", "functions": 1, "error": None, "where": None}


def rows(stdout: str) -> list[list[str]]:
    """The table's cells, without its head."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in stdout.splitlines() if "│" in line]


def changed(old: str, new: str) -> str:
    assert old in SOFTMAX
    return SOFTMAX.replace(old, new, 1)


@pytest.fixture(scope="session")
def with_records(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The softmax kernel with ten records."""
    return CommandLine(tmp_path_factory.mktemp("inserted"))(
        "insert", "-", "--at", "func", "--at", "loop", "--at", "iter", stdin=SOFTMAX.encode()
    ).stdout


@pytest.mark.triton
def test_each_good_file_gets_a_line(kprof: CommandLine, with_records: str) -> None:
    kprof.write("plain.ttgir", SOFTMAX)
    name = "a_name_that_is_longer_than_a_terminal_is_wide_" * 3 + ".ttgir"
    kprof.write(name, with_records)
    kprof.write("helper.ttgir", fixture("noinline_helper"))
    kprof.write("crlf.ttgir", SOFTMAX.replace("\n", "\r\n"))
    kprof.write("no_last_end.ttgir", SOFTMAX.rstrip("\n"))
    files = ["plain.ttgir", name, "helper.ttgir", "crlf.ttgir", "no_last_end.ttgir"]
    ended = kprof("check", *files)
    plain, recorded, helper, *others = rows(ended.stdout)
    assert [row[1:] for row in others] == [plain[1:]] * 2 and "moved" not in ended.stdout
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert plain[:3] == ["plain.ttgir", "cuda:90", "1"]
    assert plain[4:6] == ["0", "0"]
    assert recorded[:3] == [name, "cuda:90", "1"]
    assert recorded[4:6] == ["10", "10"]
    assert int(recorded[3]) == int(plain[3]) + 10
    assert int(recorded[6]) > int(plain[6]) > 1000
    assert helper[1:3] == ["cuda:90", "2"]
    assert [row[-1] for row in (plain, recorded, helper)] == ["ok"] * 3
    assert sorted(os.listdir(kprof.folder)) == sorted(["home", *files])
    assert os.listdir(kprof.folder / "home") == []


def test_json_has_what_the_table_has(kprof: CommandLine, with_records: str) -> None:
    kprof.write("cut.ttgir", "module {\n")
    ended = kprof("check", "--json", "-", "cut.ttgir", stdin=with_records.encode())
    good, bad = json.loads(ended.stdout)
    assert ended.exit_code == 1
    assert good["file"] == "<stdin>"
    assert good.items() >= OK_NUMBERS.items()
    assert (good["records"], good["clock_reads"]) == (10, 10)
    assert good["binary_bytes"] > 1000
    assert {name: value for name, value in bad.items() if value is not None} == {
        "file": "cut.ttgir",
        "error": ended.stderr.splitlines()[0].removeprefix("cut.ttgir:1:9: error: "),
        "where": "cut.ttgir:1:9",
    }


BAD = {
    "unknown_operation.ttgir": (
        "tt.get_program_id",
        "tt.get_something",
        "custom op 'tt.get_something' is unknown",
    ),
    "unknown_dialect.ttgir": (
        "    tt.return",
        "    foo.bar\n    tt.return",
        "Dialect `foo' not found",
    ),
    # Triton's verifier knows the operation's line in the program; ours is the line in the file.
    "invalid_operation.ttgir": (
        "    tt.return",
        "    tt.return %row : i32",
        "'tt.return' op has 1 operands",
    ),
}
"""What is replaced, by what, and how Triton's error begins."""


@pytest.mark.triton
def test_what_triton_does_not_take_is_pointed_at(kprof: CommandLine) -> None:
    places: list[str] = []
    shown_lines: list[str] = []
    for name, (old, new, _) in BAD.items():
        text = changed(old, new)
        kprof.write(name, text)
        bad = new.split("\n")[0].split()[0]
        number, shown = next((n, shown) for n, shown in enumerate(text.splitlines(), 1) if bad in shown)
        column = shown.index(bad) + 1
        places.append(f"{name}:{number}:{column}: ")
        shown_lines += [f"  {shown}", f"  {' ' * (column - 1)}^"]
    kprof.write("good.ttgir", SOFTMAX)

    ended = kprof("check", *BAD, "good.ttgir")

    assert ended.exit_code == 1
    lines = ended.stderr.splitlines()
    assert [line for line in lines if line.startswith("  ")] == shown_lines
    for error, hint, place, (_, _, what) in zip(lines[::4], lines[3::4], places, BAD.values(), strict=True):
        assert error.startswith(place)
        ours, found, _ = error.removeprefix(place).partition(what)
        assert found
        check("cli/check", f"{ours.replace(triton.__version__, 'VERSION')}\n{hint}", "REJECTED")
    assert [row[-1] for row in rows(ended.stdout)] == ["failed", "failed", "failed", "ok"]


WRONG_ASSEMBLY = """\
module attributes {"ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func public @k(%p: !tt.ptr<i32>) {
    %x = tt.get_program_id x : i32
    %y = tt.elementwise_inline_asm "nonsense $0, $1;" {constraints = "=r,r", packed_element = 1 : i32, pure = true} %x : i32 -> i32
    tt.store %p, %y : !tt.ptr<i32>
    tt.return
  }
}
"""  # noqa: E501


@pytest.mark.triton
def test_what_does_not_lower_says_why(kprof: CommandLine) -> None:
    kprof.write("asm.ttgir", WRONG_ASSEMBLY)
    ended = kprof("check", "asm.ttgir")
    first, *_, hint = ended.stderr.splitlines()
    assert ended.exit_code == 1
    assert first.startswith(f"error: asm.ttgir: Triton {triton.__version__} ") and " cuda:90: " in first
    assert "'nonsense'" in ended.stderr
    assert "Repro command" not in ended.stderr
    ours = first.partition(" cuda:90: ")[0].replace(triton.__version__, "VERSION")
    check("cli/check", f"{ours} cuda:90\n{hint}", "not lowered")


def test_a_record_without_a_partner_is_pointed_at(kprof: CommandLine, with_records: str) -> None:
    kprof.write("half.ttgir", with_records.replace('    proton.record start "func"\n', ""))
    ended = kprof("check", "half.ttgir")
    number = kprof.read("half.ttgir").splitlines().index('    proton.record end "func"') + 1
    assert ended.exit_code == 1
    assert ended.stderr.startswith(f"half.ttgir:{number}:5: error: ")
    check("cli/check", ended.stderr.replace(f":{number}:", ":LINE:"), "half.ttgir")


def test_a_compiler_that_dies_takes_no_other_file_with_it(
    kprof: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    kprof.write("crash.ttgir", changed('"cuda:90"', '"cuda:999"'))
    kprof.write("good.ttgir", SOFTMAX)
    ended = kprof("check", "good.ttgir", "crash.ttgir", "good.ttgir")
    assert ended.exit_code == 1
    assert [row[-1] for row in rows(ended.stdout)] == ["ok", "failed", "ok"]
    first, *rest = ended.stderr.splitlines()
    check("cli/check", first, "crash.ttgir")
    assert "LLVM ERROR" in rest[-1]
    assert os.listdir(temporary) == []


def test_a_file_that_takes_too_long_is_given_up(kprof: CommandLine) -> None:
    kprof.write("slow.ttgir", SOFTMAX)
    ended = kprof("check", "--time-limit", "0.001", "slow.ttgir")
    assert ended.exit_code == 1
    check("cli/check", ended.stderr, "slow.ttgir")


def test_a_module_without_a_target_of_ours(kprof: CommandLine) -> None:
    kprof.write("no.ttgir", changed('ttg.target = "cuda:90", ', ""))
    kprof.write("metal.ttgir", changed('ttg.target = "cuda:90", ', 'ttg.target = "metal:9", '))
    ended = kprof("check", "no.ttgir", "metal.ttgir")
    number = next(n for n, line in enumerate(SOFTMAX.splitlines(), 1) if line.startswith("module"))
    assert ended.exit_code == 1
    for name, case in (("no.ttgir", "no target"), ("metal.ttgir", "metal:9")):
        (error,) = (line for line in ended.stderr.splitlines() if line.startswith(f"{name}:{number}:1: error: "))
        check("cli/check", error.partition(": error: ")[2], case)


def test_a_module_without_a_kernel(kprof: CommandLine) -> None:
    kprof.write("private.ttgir", changed("tt.func public", "tt.func private"))
    ended = kprof("check", "private.ttgir", "gone.ttgir")
    assert ended.exit_code == 1
    assert ended.errors() == [
        "error: private.ttgir: the module has no public tt.func to lower",
        "error: gone.ttgir does not exist",
    ]


def test_nothing_is_imported_from_the_folder_that_a_file_was_received_in(tmp_path: Path) -> None:
    """Python starts children with the current folder on its path, before its own library."""
    (tmp_path / "pickle.py").write_text("print('imported'); raise SystemExit(3)\n")
    (tmp_path / "selectors.py").write_text("print('imported'); raise SystemExit(3)\n")
    (tmp_path / "kernel.ttgir").write_text(SOFTMAX)
    command = Path(sys.executable).with_name("kprof-inject")
    ended = run_child([command, "check", "kernel.ttgir"], tmp_path)
    assert ended.exit_code == 0, ended
    assert "imported" not in ended.stdout + ended.stderr


FILE = "recorded.ttgir"


@pytest.mark.skipif(triton.__version__ != "3.6.0", reason="each version moves other instructions")
def test_what_the_compiler_moved_across_records(kprof: CommandLine) -> None:
    """LLVM moves the instruction of both loads to the loop where the result is used."""
    kprof.write("rotary.ttgir", fixture("rotary"))
    selectors = [word for one in ("func", "loop", "op(tt.load)") for word in ("--at", one)]
    kprof("insert", "rotary.ttgir", *selectors, "-o", "recorded.ttgir")
    kprof("insert", "rotary.ttgir", "--at", "func", "-o", "func.ttgir")
    ended = kprof("check", "--machine-code", "recorded.ttgir", "func.ttgir")
    assert ended.exit_code == 0, ended.stderr
    said = [line for line in ended.stdout.splitlines() if line.startswith("recorded.ttgir: ")]
    (as_json,) = json.loads(kprof("check", "--machine-code", "--json", "recorded.ttgir").stdout)
    moved = {one["scope"]: one["moved"] for one in as_json["scopes"]}
    assert moved["func"] == moved["tt.load#2"] == []
    lines = [moved[name][0]["line"] for name in ("tt.load#0", "tt.load#1")]
    assert said == [
        *(f"{FILE}: tt.load#{number}: the LDG of line {line} is after its end" for number, line in enumerate(lines)),
        *(f"{FILE}: loop[0]: 1 LDG of line {line}, which is outside, is in it" for line in lines),
    ]
    recorded = kprof.read("recorded.ttgir").splitlines()
    assert all("tt.load" in recorded[line - 1] for line in lines)
    (nothing,) = [line for line in ended.stdout.splitlines() if line.startswith("func.ttgir: ")]
    assert "was moved across a record" in nothing
