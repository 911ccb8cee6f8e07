"""What commands say to wrong input: in one style, with one exit code for each kind, and hints that lead somewhere."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import PROGRAMS, REPO, Ended
from snapshots import check

from kprof_inject.workspace_folder import DEFAULT_WORKSPACE, DEMO_WORKSPACE

MODULE = "kernel.ttgir"

FAILED = [
    "report nope",
    "report nope.npy",
    "report kprof_out/captures/01",
    "report 7",
    "report notes.txt",
    f"report {MODULE}",
    "report plain.py",
    "report --html no/page.html",
    "report --html .",
    "report --kernel nope",
    "report --launch 7",
    "trace nope",
    "trace kprof_out/captures/9",
    "trace -o no/t.json",
    "trace -o .",
    "trace --scope nope",
    "trace --hooks nope.py",
    "trace --hooks plain.py",
    "diff nope",
    "diff 1 7",
    f"diff {MODULE} kprof_out",
    "diff --html no/page.html",
    "diff --kernel nope",
    "insert nope",
    "insert kernel.ttgi",
    "insert kprof_out/captures/001",
    "insert kprof_out/captures/9",
    f"insert {MODULE} --at 'op(dot)'",
    f"insert {MODULE} --at 'op(reduce)'",
    f"insert {MODULE} --at 'loop[9]'",
    f"insert {MODULE} --at 'nope/loop'",
    f"insert {MODULE} -o no/out.ttgir",
    f"insert {MODULE} -o notes.txt/out.ttgir",
    f"insert {MODULE} -o .",
    f"insert {MODULE} --plan no/plan.json",
    "list nope",
    "list kprof_out/captures/001",
    f"strip {MODULE} -o no/out.ttgir",
    "strip nope",
    "run -- plain.py",
    "run nope -- plain.py",
    "dump -- nope.py",
    "dump -- 'python3 plain.py --lr 3'",
    "dump -- 'plain.py --lr 3' --more",
    "dump -- LR=3 python3 plain.py",
    "dump -- kprof_out",
    "dump -o notes.txt -- plain.py",
    "profile --trace no/t.json -- plain.py",
    "causal",
    "causal kprof_out --csv no/t.csv",
    "demo -o notes.txt",
    "try kprof_out",
]
USAGE = [
    "nope",
    "repor",
    "report --nope",
    "report --launch x",
    "report a b",
    "trace --layout nope",
    "trace -o t.nope",
    "trace -o t.csv --layout sm",
    "diff --fail-above x",
    "diff --renamed x",
    f"diff {MODULE}",
    f"insert {MODULE} --at loops",
    "insert --tag lr=lr",
    "insert -o out.ttgir",
    "report --json --budget 0",
    "strip",
    "run",
    "dump",
    "profile --at lop -- plain.py",
    "profile --launches nope -- plain.py",
    "profile --trace t.nope -- plain.py",
    "profile --trace t.csv --layout cta -- plain.py",
    "profile --warps nope -- plain.py",
    "causal --seconds nope -- plain.py",
    "demo nope",
]

AT_FIRST = {str(DEFAULT_WORKSPACE), MODULE, "plain.py", "notes.txt", "home"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, captured_once: Path) -> Path:
    """A folder with a workspace, a module, a program, and a text."""
    folder = tmp_path_factory.mktemp("prepared")
    shutil.copytree(captured_once, folder / DEFAULT_WORKSPACE)
    shutil.copy(REPO / "ttgir_fixtures/3.6.0/cuda-90/softmax.ttgir", folder / MODULE)
    (folder / "plain.py").write_text("print('ran')\n")
    (folder / "notes.txt").write_text("some notes\n")
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "folder"))


@pytest.fixture
def kprof(folder: Path) -> CommandLine:
    return CommandLine(folder)


def diagnosis(stderr: str) -> list[str]:
    """An error's lines, without the messages before it."""
    lines = [line for line in stderr.splitlines() if not line.startswith("kprof-inject: ")]
    (begin,) = [number for number, line in enumerate(lines) if re.match(r"(\S+:\d+:\d+: )?error: ", line)]
    return lines[begin:]


def offered(text: str) -> Iterator[str]:
    """The commands that a text offers, as they would be typed."""
    for found in re.findall(r"kprof-inject ([a-z]+(?: [^;,]+)?)", text):
        yield re.sub(r" (where|which|whose|until|for) .*", "", found.split(", ")[0]).strip()


@pytest.fixture(scope="module")
def follow(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ended]:
    """Runs a command that was offered, each once for all tests, but opens nothing."""
    folder = Path(shutil.copytree(prepared, tmp_path_factory.mktemp("followed") / "folder"))
    shutil.copytree(folder / DEFAULT_WORKSPACE, folder / DEMO_WORKSPACE)
    shutil.copytree(folder / DEMO_WORKSPACE / "captures/002", folder / DEMO_WORKSPACE / "captures/003")
    kprof = CommandLine(folder)
    return cache(lambda command: kprof(*(word for word in shlex.split(command) if word != "--open")))


@pytest.mark.parametrize("words", FAILED)
def test_what_fails_says_so_in_one_style_with_one_code_and_its_hints_lead_on(
    kprof: CommandLine, follow: Callable[[str], Ended], words: str
) -> None:
    ended = kprof(*shlex.split(words))
    assert ended.exit_code == 1
    error, *rest = diagnosis(ended.stderr)
    assert rest[-1:] and rest[-1].startswith("hint: "), ended.stderr
    assert {path.name for path in kprof.folder.iterdir()} == AT_FIRST
    assert kprof.read("notes.txt") == "some notes\n"
    hint = rest[-1].removeprefix("hint: ")
    for command in offered(hint):
        if not command.startswith("demo"):  # it takes long
            again = follow(command.replace("PROG", "plain.py"))
            assert again.exit_code != 2, f"{command}: {again.stderr}"
            assert error not in again.stderr, f"{command}: {again.stderr}"
    for meant in re.findall(r"did you mean (\S+)\?", hint):
        wrong = next(word for word in shlex.split(words)[1:] if word in error)
        again = follow(shlex.join(meant if word == wrong else word for word in shlex.split(words)))
        assert error not in again.stderr, f"{meant}: {again.stderr}"


@pytest.mark.parametrize("words", USAGE)
def test_what_cannot_be_read_says_so_in_the_same_style_with_another_code(
    kprof: CommandLine, follow: Callable[[str], Ended], words: str
) -> None:
    ended = kprof(*shlex.split(words))
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert {path.name for path in kprof.folder.iterdir()} == AT_FIRST
    _, *rest = diagnosis(ended.stderr)
    assert rest[-1].startswith("hint: ")
    assert "Usage:" not in ended.stderr
    for command in offered(rest[-1]):
        again = follow(command.replace("python train.py", "python3 plain.py"))
        assert again.exit_code != 2, f"{command}: {again.stderr}"


@pytest.mark.parametrize("words", ["report", "diff", "report 2", "insert", "list", "trace"])
def test_no_command_is_offered_twice(follow: Callable[[str], Ended], words: str) -> None:
    ended = follow(words)
    assert ended.exit_code == 0
    commands = [command for line in ended.stderr.splitlines() for command in offered(line)]
    assert len(commands) == len(set(commands)), commands


def test_captures_have_numbers(kprof: CommandLine, follow: Callable[[str], Ended]) -> None:
    a = "kprof_out/captures/001"
    assert follow("diff").stdout == kprof("diff", "1", "2").stdout
    assert kprof("report", "1").stdout == follow(f"report {a}").stdout != follow("report 2").stdout
    assert follow("report 2").stdout == follow("report").stdout
    kprof("trace", "1")
    assert (kprof.folder / a / "trace.json").exists()
    assert diagnosis(kprof("report", "7").stderr) == ["error: kprof_out has no capture 7", "hint: it has 1, 2"]
    (kprof.folder / "1").write_text("a file with such a name")
    assert diagnosis(kprof("report", "1").stderr)[0].startswith("error: 1 is not ")


def test_a_quoted_command_line_is_recognised(kprof: CommandLine) -> None:
    hint = diagnosis(kprof("profile", "--", "python3 'plain.py' --lr 3", "more words").stderr)[1]
    check("cli/dead_ends", hint, "more words")
    (kprof.folder / "odd name.py").write_text("import sys; sys.exit(7)")
    assert kprof("dump", "odd name.py").exit_code == 7


def test_the_programs_own_exit_code_is_not_blamed_on_a_missing_gpu(kprof: CommandLine) -> None:
    torch = "types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False))"
    kprof.write("own.py", f"import sys, types\nsys.modules['torch'] = {torch}\nimport triton\nsys.exit(2)\n")
    ended = kprof("dump", "own.py")
    assert ended.exit_code == 2
    error, hint = diagnosis(ended.stderr)
    assert error.endswith(" 2")
    check("cli/dead_ends", f"{error.removesuffix('2')}CODE\n{hint}", "own.py")


def test_a_file_may_go_to_the_workspace_that_is_made_for_it(kprof: CommandLine) -> None:
    ended = kprof("profile", "-o", "new", "--trace", "new/t.json", "--", PROGRAMS / "ending.py", "0")
    assert "cannot write" not in ended.stderr
    assert (kprof.folder / "new/kernels").is_dir()


def test_no_command_is_offered_twice_by_the_demo_and_each_works(
    demo_once: tuple[Path, Ended], follow: Callable[[str], Ended]
) -> None:
    commands = [command for line in demo_once[1].stderr.splitlines() for command in offered(line)]
    assert len(commands) == len(set(commands)), commands
    for command in commands:
        if "PROG" not in command:
            assert follow(command).exit_code == 0, command
