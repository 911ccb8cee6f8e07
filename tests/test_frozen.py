"""Frozen outputs: everything that is made of the captures in the tests and of the demo's, to the byte or as digests.

Whoever changes one of them decides to: ``scripts/snapshots tests/test_frozen.py`` rewrites them, and the commit says
which differ and why.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest
from command_line import CommandLine
from numpy._core._multiarray_umath import __cpu_dispatch__
from programs.child import run_python
from snapshots import check

sys.path.append(str(Path(__file__).with_name("report") / "html"))
from unpacked import unpacked

REPO = Path(__file__).resolve().parents[1]
DEMO, TESTS = REPO / "kprof_inject/demo/captures", REPO / "tests/captures"
CAPTURES = {
    **{name: DEMO / name for name in ("attention", "one-stage", "three-stages")},
    **{name: TESTS / name for name in ("matmul", "matmul-one-stage", "matmul-three-stages")},
    **{name: TESTS / name for name in ("late-at-barrier", "late-rank")},
}
PAIRS = ["one-stage three-stages", "matmul-one-stage matmul-three-stages"]
SELECTORS = ["func", "loop", "iter", "op(*dot*)", "op(tt.load)", "async", "spin"]


def digest(data: object) -> str:
    """Return the first bytes of a checksum of bytes or JSON values."""
    raw = data if isinstance(data, bytes) else json.dumps(data, sort_keys=True, ensure_ascii=False).encode()
    return hashlib.sha256(raw).hexdigest()[:12]


def by_key(records: Iterable[dict[str, Any]]) -> str:
    """Return a line with a digest for each key that any of the records has."""
    values = defaultdict(list)
    for record in records:
        for key, value in record.items():
            values[key].append(value)
    return "\n".join(f"{key} {digest(value)}" for key, value in values.items())


@pytest.fixture
def kprof(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def printed(kprof: CommandLine, *words: str | Path) -> str:
    """Return what a command prints; it has to succeed."""
    ended = kprof(*words, env={"COLUMNS": "160"})
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("name", CAPTURES)
def test_reports_and_pages(kprof: CommandLine, name: str) -> None:
    check("frozen/screens", printed(kprof, "report", CAPTURES[name]), name)
    details = printed(kprof, "report", "-v", "--html", "page.html", CAPTURES[name])
    check("frozen/details", digest(details.encode()), name)
    shown = ({"meta": launch["meta"], **launch["sections"]} for launch in unpacked(kprof.folder / "page.html"))
    check("frozen/pages", by_key(shown), name)
    check("frozen/json", by_key(json.loads(printed(kprof, "report", "--json", "--launch", "0-", CAPTURES[name]))), name)


@pytest.mark.parametrize("pair", PAIRS)
def test_comparisons(kprof: CommandLine, pair: str) -> None:
    check("frozen/diffs", printed(kprof, "diff", *(CAPTURES[name] for name in pair.split())), pair)


@pytest.mark.parametrize("name", CAPTURES)
def test_insertions(kprof: CommandLine, name: str) -> None:
    lines = []
    for module in sorted(CAPTURES[name].rglob("kernel.ttgir")):
        found = module.read_text()
        for selector in SELECTORS:
            ended = kprof("insert", module, "--at", selector, "-o", "out.ttgir")
            made = (
                kprof.read("out.ttgir")
                if ended.exit_code == 0
                else ended.stderr.splitlines()[0].replace(str(module), "")
            )
            lines.append(f"{module.parent.name} {selector}: {digest(made.encode())}")
            if ended.exit_code == 0:
                assert printed(kprof, "strip", "out.ttgir") == found
    check("frozen/insertions", "\n".join(lines), name)


@pytest.mark.parametrize("name", CAPTURES)
def test_traces(kprof: CommandLine, name: str) -> None:
    for ending in ("json", "pftrace", "csv"):
        printed(kprof, "trace", CAPTURES[name], "-o", f"trace.{ending}")
    lines = [f"{ending} {digest((kprof.folder / f'trace.{ending}').read_bytes())}" for ending in ("json", "pftrace")]
    kinds = Counter(
        f"{event['ph']} {','.join(event.get('args', ()))}"
        for event in json.loads(kprof.read("trace.json"))["traceEvents"]
    )
    lines += [f"{kind}: {count}" for kind, count in sorted(kinds.items())]
    check("frozen/traces", "\n".join(lines), name)
    rows = pyarrow.csv.read_csv(kprof.folder / "trace.csv")
    totals = [("scope", "count"), *((column, "sum") for column in ("start_cycles", "end_cycles", "start_ns", "end_ns"))]
    sums = rows.group_by(["kernel", "name"], use_threads=False).aggregate(totals)
    columns = [*rows.column_names, "", *(" ".join(map(str, row.values())) for row in sums.to_pylist())]
    check("frozen/timelines", "\n".join(columns), name)


@pytest.mark.slow
def test_no_output_depends_on_the_processor(kprof: CommandLine) -> None:
    """Without its SIMD instructions, numpy sorts what is equal in another order, and BLAS adds in another one."""
    other = {"NPY_DISABLE_CPU_FEATURES": " ".join(__cpu_dispatch__), "OPENBLAS_CORETYPE": "Nehalem"}
    for option in ("--html=page.html", "--json"):
        here = printed(kprof, "report", option, DEMO / "one-stage")
        page = unpacked(kprof.folder / "page.html")
        words = ("-m", "kprof_inject", "report", option, DEMO / "one-stage")
        there = run_python(*words, folder=kprof.folder, env={**other, "COLUMNS": "160"})
        assert (there.exit_code, there.stdout) == (0, here), there.stderr
        assert unpacked(kprof.folder / "page.html") == page
