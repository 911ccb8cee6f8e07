"""Print how the package is built: modules, lines, classes, who imports whom, and how much of it each flow runs.

    python benchmarks/structure.py [--json FILE]

A flow is one command or step, run in this process and traced: the files, functions and calls of the package in it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "kprof_inject"
FIXTURE = ROOT / "ttgir_fixtures" / "3.6.0" / "cuda-90" / "matmul.ttgir"
DEMO = PACKAGE / "demo" / "captures" / "three-stages"
MOST_LINES = 400
# Many of a kind stand beside each other there, each alone: commands, formats, rules, devices.
OF_A_KIND = ("cli.", "analysis.findings.", "report.findings.", "export.", "runtime.devices.")

Traced = Callable[[Callable[[], Any]], None]
"""Calls a function, and traces it or not."""
Flow = Callable[[Path, Traced], None]
"""Prepares something in an empty folder, and then runs the flow itself through ``Traced``."""


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


def entered_by(flow: Flow) -> str:
    """Count the package's files, functions and calls that a flow runs.

    Everything that only the first run does, such as imports, is no part of a flow. So each flow runs twice, and the
    second run is traced. Functions that Python makes for lambdas and comprehensions are not counted.
    """
    calls: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and not code.co_name.startswith("<"):
            calls[code] += 1

    def traced(work: Callable[[], Any]) -> None:
        sys.setprofile(note)
        try:
            _quietly(work)
        finally:
            sys.setprofile(None)

    with tempfile.TemporaryDirectory() as folder:
        for way in (_quietly, traced):
            flow(Path(tempfile.mkdtemp(dir=folder)), way)
    files = len({code.co_filename for code in calls})
    return f"{files:4} files {len(calls):5} functions {calls.total():8,} calls"


def _quietly(work: Callable[[], Any]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        work()


def _command(*arguments: str | Path) -> None:
    from kprof_inject.cli.main import root

    root(list(map(str, arguments)), standalone_mode=False)


def _insert(folder: Path, traced: Traced) -> None:
    traced(lambda: _command("insert", FIXTURE, "-o", folder / "out.ttgir"))


def _limit(folder: Path, traced: Traced) -> None:
    """Judge a launch by its counters and its CTAs' times, without its module and its records."""
    import numpy as np

    from kprof_inject.analysis.limits.judges import limit_by_counters
    from kprof_inject.analysis.limits.limit import measured_of
    from kprof_inject.capture.reader import read_capture
    from kprof_inject.timeline.columns import CTA_COLUMNS
    from kprof_inject.timeline.records import read_raw
    from kprof_inject.timeline.waves import idle_sms_of, waves_of_ctas

    def limit() -> None:
        launch = read_capture(DEMO).launches[0]
        raw, measured = read_raw(launch), measured_of(launch.kernel)
        times = raw.cta, raw.sm, raw.init_ns, raw.pre_final_ns, raw.post_final_ns
        ctas = np.rec.fromarrays(times, CTA_COLUMNS)
        waves = waves_of_ctas(ctas, launch.kernel.with_records.ctas_per_sm, is_sample=False)
        assert measured and waves
        print(limit_by_counters(measured, waves, idle_sms_of(ctas, waves.slots_per_sm)).sentence)

    traced(limit)


def _analysis(folder: Path, traced: Traced) -> None:
    from kprof_inject.analysis.launch import LaunchAnalysis
    from kprof_inject.capture.reader import read_capture
    from kprof_inject.timeline.captures import timeline_of

    traced(lambda: LaunchAnalysis.of(timeline_of(read_capture(DEMO).launches[0])))


def _json(folder: Path, traced: Traced) -> None:
    traced(lambda: _command("report", DEMO, "--json"))


def _page(folder: Path, traced: Traced) -> None:
    traced(lambda: _command("report", DEMO, "--html", folder / "page.html"))


def _drawing(folder: Path, traced: Traced) -> None:
    """Trace only what draws and encodes: launches are decoded before."""
    import msgspec

    import kprof_inject
    from kprof_inject.export import chrome, drawing

    timelines = [
        msgspec.structs.replace(timeline, _blocks=list(timeline.blocks()))
        for timeline in kprof_inject.load(DEMO).timelines
    ]
    traced(lambda: (folder / "trace.json").write_bytes(b"".join(chrome.encode(drawing.draw(timelines, "sm")))))


def _trace(folder: Path, traced: Traced) -> None:
    traced(lambda: _command("trace", DEMO, "-o", folder / "trace.json"))


def _launch(folder: Path, traced: Traced) -> None:
    from fake_runs import FakeRuns

    runs = FakeRuns(folder, folder / "workspace")
    runs.dump()
    with runs.here() as run:
        traced(lambda: run.launch(1))


FLOWS: dict[str, Flow] = {
    "text to instrumented text": _insert,
    "launch to capture": _launch,
    "capture to LIMIT": _limit,
    "capture to LIMIT, units and findings": _analysis,
    "capture to report --json": _json,
    "capture to report --html": _page,
    "timeline to Chrome JSON": _drawing,
    "capture to Chrome JSON (trace)": _trace,
}

if __name__ == "__main__":
    main()
