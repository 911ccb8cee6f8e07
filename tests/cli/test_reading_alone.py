"""Every command where neither torch nor Triton is installed: what reads captures and TTGIR works, the rest says in one
error what is missing."""

from __future__ import annotations

import json
import shutil
import sys

import pytest
from command_line import without_sizes
from golden import FIXTURES
from programs.child import REPO, python_path, run_python
from snapshots import check

# Of every Python process, those of programs too.
WITHOUT = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name in ("triton", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
"""

COMMANDS = [
    ["list", "softmax.ttgir"],
    ["insert", "softmax.ttgir", "-o", "inserted.ttgir"],
    ["strip", "inserted.ttgir", "-o", "stripped.ttgir"],
    ["report", "capture", "--html", "page.html"],
    ["trace", "capture", "-o", "trace.json"],
    ["diff", "capture", "capture"],
    ["diff", "softmax.ttgir", "other.ttgir"],
    ["demo", "-o", "ws"],
    ["insert", "ws"],
    ["doctor"],
    ["check", "softmax.ttgir", "inserted.ttgir"],
    ["dump", "-o", "of_program", "program.py"],
    ["profile", "-o", "of_program", "program.py"],
    ["run", "ws", "program.py"],
]

ALL_IN_ONE_PROCESS = """
import contextlib, io, json, sys
from kprof_inject.cli.main import main
ended = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["kprof-inject", *arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as error:
            code = error.code or 0
    ended.append((code, out.getvalue(), err.getvalue()))
json.dump(ended, open("ended.json", "w"))
"""

Ended = dict[str, tuple[int, str, str]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """How each command ended: its exit code, stdout and stderr."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "site").mkdir()
    (folder / "site/sitecustomize.py").write_text(WITHOUT)
    (folder / "program.py").write_text("import triton\n")
    shutil.copytree(REPO / "tests/captures/matmul", folder / "capture")
    shutil.copy(FIXTURES / "3.6.0/cuda-90/softmax.ttgir", folder)
    other = (folder / "softmax.ttgir").read_text().replace('"ttg.num-warps" = 4', '"ttg.num-warps" = 8')
    (folder / "other.ttgir").write_text(other)
    env = {"PYTHONPATH": python_path(folder / "site")}
    child = run_python("-c", ALL_IN_ONE_PROCESS, json.dumps(COMMANDS), folder=folder, env=env)
    assert child.exit_code == 0, child.stderr
    # A program's own words pass by what a command prints.
    assert child.stderr.count("ModuleNotFoundError: No module named 'triton'") == 3
    results = json.loads((folder / "ended.json").read_bytes())
    assert (folder / "stripped.ttgir").read_bytes() == (folder / "softmax.ttgir").read_bytes()
    assert (folder / "page.html").is_file() and (folder / "ws/trace.json").is_file()
    return {" ".join(words[:2]): result for words, result in zip(COMMANDS, results, strict=True)}


def test_what_reads_captures_and_ttgir_works(ended: Ended) -> None:
    works = [words for words, (code, _, _) in ended.items() if code == 0]
    assert works == [
        "list softmax.ttgir",
        "insert softmax.ttgir",
        "strip inserted.ttgir",
        "report capture",
        "trace capture",
        "diff capture",
        "diff softmax.ttgir",
        "demo -o",
        "insert ws",
        "doctor",
    ]


def test_modules_are_compared_without_being_compiled(ended: Ended) -> None:
    assert ended["diff softmax.ttgir"] == [0, "4 → 8 warps\n", ""]


def test_the_demo_says_why_it_replays(ended: Ended) -> None:
    said = ended["demo -o"][2]
    check("cli/reading_alone", without_sizes(said), "demo")
    assert "compiled" not in said


def test_the_doctor_warns(ended: Ended) -> None:
    rows = [line.split() for line in ended["doctor"][1].splitlines()]
    assert {row[0]: row[1:4] for row in rows if row[0] in ("Triton", "torch")} == {
        "Triton": ["warning", "not", "installed"],
        "torch": ["warning", "not", "installed"],
    }


def test_check_says_once_what_is_missing(ended: Ended) -> None:
    code, out, said = ended["check softmax.ttgir"]
    assert (code, out) == (1, "")
    check("cli/reading_alone", said, "check")


@pytest.mark.parametrize("words", ["dump -o", "profile -o", "run ws"])
def test_a_program_that_lacks_them_is_told_what_to_do(ended: Ended, words: str) -> None:
    code, _, said = ended[words]
    error, hint = said.splitlines()[-2:]
    assert code == 1
    assert error.startswith("error: the program ")
    check("cli/reading_alone", f"{error}\n{hint}".replace(sys.executable, "PYTHON"), words)
