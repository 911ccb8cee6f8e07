"""Prints how the package is built: modules, lines, classes, who imports whom, and the functions that each flow enters.

    python benchmarks/structure.py [--json FILE]

A flow is one command, run in this process and traced: how many functions of ours it enters, in how many modules.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "kprof_inject"
FIXTURE = ROOT / "ttgir_fixtures" / "3.6.0" / "cuda-90" / "matmul.ttgir"
MOST_LINES = 400
# Many of a kind stand beside each other there, each alone: commands, formats, rules, devices.
OF_A_KIND = ("cli.", "analysis.findings.", "report.findings.", "export.", "runtime.devices.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "runtime")]
    figures = {**modules_of_the_package(), **{name: entered_by(flow) for name, flow in FLOWS.items()}}
    for name, value in figures.items():
        print(f"{name:55} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


def modules_of_the_package() -> dict[str, Any]:
    trees = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
    trees = {path: tree for path, tree in trees.items() if len(tree.body) > (ast.get_docstring(tree) is not None)}
    names = {path: ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in trees}
    importers: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for imported in _imports(tree):
            importers[imported].add(names[path])
    lines = {path: path.read_text().count("\n") for path in trees}
    alone = [
        name
        for name in names.values()
        if len(importers[name]) == 1
        and _folder(next(iter(importers[name]))) == _folder(name)
        and not name.startswith(OF_A_KIND)
    ]
    classes = [node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    public = [name for name in classes if not name.startswith("_")]
    return {
        "modules with code": len(trees),
        "lines": sum(lines.values()),
        "lines that are not blank": sum(bool(line.strip()) for path in trees for line in path.read_text().splitlines()),
        "classes": len(classes),
        "public class names that stand for two classes": sorted({name for name in public if public.count(name) > 1}),
        "modules with one importer, in their own folder": sorted(alone),
        f"modules over {MOST_LINES} lines": sorted(names[path] for path in trees if lines[path] > MOST_LINES),
    }


def _folder(name: str) -> str:
    return name.rpartition(".")[0]


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kprof_inject"):
            module = (node.module or "").removeprefix("kprof_inject").removeprefix(".")
            for alias in node.names:
                below = f"{module}.{alias.name}".removeprefix(".")
                is_module = PACKAGE.joinpath(*below.split(".")).with_suffix(".py").exists()
                yield below if is_module else module


def entered_by(flow: Callable[[Path, Callable[[Callable[[], Any]], None]], None]) -> str:
    """How many functions of ours a flow enters, and in how many modules."""
    entered: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)) and frame.f_code.co_name != "<module>":
            entered.add(frame.f_code)

    def traced(work: Callable[[], Any]) -> None:
        sys.setprofile(note)
        try:
            _quietly(work)
        finally:
            sys.setprofile(None)

    with tempfile.TemporaryDirectory() as folder:
        for way in (_quietly, traced):  # what is only called by imports is no part of a flow
            flow(Path(tempfile.mkdtemp(dir=folder)), way)
    functions = {code for code in entered if not code.co_name.startswith("<")}
    return f"{len(functions)} functions in {len({code.co_filename for code in functions})} modules"


def _quietly(work: Callable[[], Any]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        work()


def _command(*arguments: str | Path) -> None:
    from kprof_inject.cli.main import root

    root(list(map(str, arguments)), standalone_mode=False)


def _insert(folder: Path, traced: Callable[[Callable[[], Any]], None]) -> None:
    traced(lambda: _command("insert", FIXTURE, "-o", folder / "out.ttgir"))


def _chrome(folder: Path, traced: Callable[[Callable[[], Any]], None]) -> None:
    traced(lambda: _command("trace", ROOT / "tests/captures/matmul", "-o", folder / "trace.json"))


def _page(folder: Path, traced: Callable[[Callable[[], Any]], None]) -> None:
    traced(lambda: _command("report", ROOT / "tests/captures/matmul", "--html", folder / "page.html"))


def _launch(folder: Path, traced: Callable[[Callable[[], Any]], None]) -> None:
    from fake_runs import FakeRuns

    runs = FakeRuns(folder, folder / "workspace")
    runs.dump()
    with runs.here() as run:
        traced(lambda: run.launch(1))


FLOWS = {
    "text to instrumented text": _insert,
    "buffer to Chrome JSON": _chrome,
    "launch to capture": _launch,
    "capture to HTML": _page,
}

if __name__ == "__main__":
    main()
