"""Changes of time by source line, of the demo's captures and of made ones: their figures, and what is shown."""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Scope
from known_sides import ITER_NS, side, usual
from programs.child import REPO
from replacing import replace
from rich.console import Console
from snapshots import check
from timelines import Ran, cta_rows, made_timeline, scope_rows, scope_statistics

from kprof_inject.analysis.comparison.causes import net_cta_change_ns
from kprof_inject.analysis.comparison.verdicts import CaptureDiff, diff_captures
from kprof_inject.capture.capture_files import write
from kprof_inject.capture.measurements import MeasurementsRecord, SampledInstruction, SamplesRecord
from kprof_inject.capture.schema import SOURCES_FILE, TTGIR_FILE
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction, MachineFunction
from kprof_inject.pipeline.captures import decode_capture, open_capture
from kprof_inject.report.diff.page import write_diff_page
from kprof_inject.report.diff.rows import MAX_LINES, diff_json
from kprof_inject.report.diff.terminal import print_diff_tables
from kprof_inject.timeline.timeline import Timeline

Place = tuple[str, int]
DEMO = REPO / "kprof_inject" / "demo" / "captures"
PATH = "/src/matmul.py"
TEXT = ["import triton", "def kernel(x):", "    a = load(x)", "    acc = dot(a)", "    store(acc)"]
CTA_NS = 40_000 + 5 * 30_000 + 200
"""What each CTA of ``exact`` takes."""


def lines_in(diff: CaptureDiff) -> list[dict[str, Any]]:
    (kernel,) = json.loads(json.dumps(diff_json(diff)))["kernels"]
    found: list[dict[str, Any]] = kernel["lines"]
    return found


def printed(diff: CaptureDiff, width: int = 160) -> list[str]:
    out = io.StringIO()
    print_diff_tables(diff, Console(file=out, width=width))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    first = next((at for at, line in enumerate(lines) if line.startswith("source lines: ")), len(lines))
    ends = (at for at, line in enumerate(lines) if at > first and line.startswith(("code", "differs", "builds")))
    return lines[first : next(ends, first)]


def page_of(diff: CaptureDiff, folder: Path) -> str:
    write_diff_page(folder / "page.html", diff, ("before", "after"))
    return (folder / "page.html").read_text()


@pytest.fixture(scope="module")
def demo() -> tuple[list[Timeline], list[Timeline]]:
    a, b = (list(decode_capture(open_capture(DEMO / name), print)) for name in ("one-stage", "three-stages"))
    return a, b


class DemoSide:
    """A side's figures from its files, with none of the code that is tested."""

    def __init__(self, name: str, timelines: list[Timeline]) -> None:
        (folder,) = (DEMO / name / "process" / "kernels").iterdir()
        self.sources: dict[str, str] = json.loads((folder / "sources.json").read_text())
        ttgir = (folder / "kernel.ttgir").read_text().splitlines()
        aliases = dict(re.findall(r"^(#loc\w*) = loc\((.*)\)$", "\n".join(ttgir), re.MULTILINE))
        code = json.loads((folder / "machine_code.json").read_text())["instructions"]
        line_at = {row[0]: row[4] for row in code}
        sampled = json.loads((folder / "measurements.json").read_text())["samples"]["instructions"]
        self.samples: Counter[Place] = Counter()
        for address, reasons in sampled:
            count = sum(count for reason, count in reasons.items() if not reason.endswith("_not_issued"))
            self.samples[self._source_of(line_at[address], ttgir, aliases)] += count
        later = [one for one in timelines if one.launch.index > 0]
        self.cta_ns = float(np.median([self._cta_ns(one) for one in (later if len(later) >= 2 else timelines)]))

    @staticmethod
    def _source_of(line: int, ttgir: list[str], aliases: dict[str, str]) -> Place:
        """The file and the number of the source line; 0 if there is none."""
        text = ttgir[line - 1] if line else ""
        if text.endswith("{"):
            indent = len(text) - len(text.lstrip())
            text = next(end for end in ttgir[line:] if end.startswith(f"{' ' * indent}}}"))
        place = text.rpartition(" loc(")[2]
        while place and not (found := re.match(r'[^#]*?"([^"]*)":(\d+):', place)):
            place = aliases.get("".join(re.findall(r"#loc\w*", place)[:1]), "")
        return (found[1], int(found[2])) if place and found else ("", 0)

    @staticmethod
    def _cta_ns(timeline: Timeline) -> float:
        """A warp's time in a CTA, without the cost of its records."""
        warps = len(timeline.warps)
        whole_ns = warps * int((timeline.ctas["pre_final_ns"] - timeline.ctas["init_ns"]).sum())
        return (whole_ns - sum(one.subtracted_ns for one in scope_statistics(timeline))) / (len(timeline.ctas) * warps)

    def line(self, place: Place) -> tuple[float, float]:
        """The time at a source line, and its error."""
        whole = self.samples.total()
        share = self.samples[place] / whole
        return share * self.cta_ns, 1.96 * math.sqrt(share * (1 - share) / whole) * self.cta_ns


def test_the_demo_has_its_samples_scaled_to_the_time_of_a_cta(demo: tuple[list[Timeline], list[Timeline]]) -> None:
    a, b = DemoSide("one-stage", demo[0]), DemoSide("three-stages", demo[1])
    found = lines_in(diff_captures(*demo))
    places = {place for side in (a, b) for place, count in side.samples.items() if place[1] and count}
    assert {(line["file"], line["line"]) for line in found} == places and len(found) == len(places) > MAX_LINES
    for line in found:
        (a_ns, a_error), (b_ns, b_error) = (side.line((line["file"], line["line"])) for side in (a, b))
        assert (line["a_ns"], line["b_ns"]) == pytest.approx((a_ns, b_ns))
        assert line["change_ns"] == pytest.approx(b_ns - a_ns)
        assert line["error_ns"] == pytest.approx(math.hypot(a_error, b_error))
        assert line["is_noise"] == (abs(line["change_ns"]) <= line["error_ns"])
        assert line["source"] == "samples"
        text = b.sources.get(line["file"], "").splitlines()
        assert line["text"] == (text[line["line"] - 1].strip() if text else "")
    assert any(line["text"] for line in found)
    sizes = [abs(line["change_ns"]) for line in found]
    assert sizes == sorted(sizes, reverse=True)


def test_the_lines_of_the_demo_add_up_to_its_change(demo: tuple[list[Timeline], list[Timeline]]) -> None:
    diff = diff_captures(*demo)
    unknown = [
        DemoSide(name, side).line(("", 0))[0] for name, side in zip(("one-stage", "three-stages"), demo, strict=True)
    ]
    change_ns = sum(line["change_ns"] for line in lines_in(diff)) + unknown[1] - unknown[0]
    assert change_ns == pytest.approx(net_cta_change_ns(diff.kernels[0]))


def test_the_page_of_the_demo_has_the_first_ten(demo: tuple[list[Timeline], list[Timeline]], tmp_path: Path) -> None:
    diff = diff_captures(*demo)
    found = lines_in(diff)
    (table,) = re.findall(r'<table class="lines">(.*?)</table>', page_of(diff, tmp_path), re.DOTALL)
    rows = re.findall(r"<tr class.*?</tr>", table, re.DOTALL)
    assert len(rows) == MAX_LINES
    zero = {x for row in rows for x in re.findall(r'zero" d="M([\d.]+) ', row)}
    assert len(zero) == 1
    middle = float(zero.pop())
    widths = []
    for row, line in zip(rows, found, strict=False):
        cells = [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", row)]
        assert cells[0] == f"matmul.py:{line['line']}" and cells[1].replace("&#x27;", "'") == line["text"]
        assert float(cells[3].removesuffix(" µs")) == pytest.approx(line["change_ns"] / 1e3, abs=0.006)
        assert re.match(r"[+-]", cells[3]) or float(cells[3].split()[0]) == 0
        assert float(cells[4].split()[1]) == pytest.approx(line["error_ns"] / 1e3, abs=0.006)
        assert ("noise" in cells[4]) == line["is_noise"]
        x, width = map(float, re.findall(r'class="bar" x="([\d.]+)" y="4" width="([\d.]+)"', row)[0])
        assert (x if line["change_ns"] > 0 else x + width) == pytest.approx(middle, abs=0.11)
        widths.append(width / abs(line["change_ns"]))
    assert widths[:2] == pytest.approx([widths[0]] * 2, rel=0.05)


def exact(
    folder: Path,
    samples: dict[int, int],
    text: list[str] | None = TEXT,
    path: str = PATH,
    sampled: bool = True,
) -> list[Timeline]:
    """Launches whose kernel has these samples by source line, and 100 of instructions without a line."""
    launches = side(folder, [40_000] * 2, [30_000] * 2)
    kernel = launches[0].launch.kernel
    ttgir = [f'  %{number} = arith.constant 0 : i32 loc("{path}":{number}:0)' for number in samples]
    code = tuple(Instruction(INSTRUCTION_BYTES * at, "FADD", "", line=at + 1) for at in range(len(samples)))
    unknown = Instruction(INSTRUCTION_BYTES * len(code), "EXIT", "", line=0)
    counts = (*samples.values(), 100)
    (kernel.folder / TTGIR_FILE).write_text("\n".join(ttgir) + "\n")
    (kernel.folder / SOURCES_FILE).write_text(json.dumps({} if text is None else {path: "\n".join(text) + "\n"}))
    write(kernel.folder, MachineFunction("kernel", (*code, unknown)))
    record = SamplesRecord(
        period_cycles=256,
        launches=1,
        total=sum(counts),
        dropped=0,
        instructions=tuple(SampledInstruction(INSTRUCTION_BYTES * at, {"wait": n}) for at, n in enumerate(counts)),
    )
    kernel = replace(kernel, measurements=MeasurementsRecord(samples=record) if sampled else None)
    return [replace(one, launch=replace(one.launch, kernel=kernel)) for one in launches]


def times(lines: list[dict[str, Any]]) -> dict[tuple[int | None, int | None], tuple[float, float]]:
    return {(line["line_a"], line["line_b"]): (line["a_ns"] / CTA_NS, line["b_ns"] / CTA_NS) for line in lines}


def test_lines_are_paired_by_their_texts(tmp_path: Path) -> None:
    """B has a line more at its begin and one more in the kernel, and lacks the store."""
    text = ["import torch", *TEXT[:3], "    a = a + 1", TEXT[3]]
    a = exact(tmp_path / "a", {3: 300, 4: 500, 5: 100})
    b = exact(tmp_path / "b", {4: 200, 5: 300, 6: 400}, text, "/elsewhere/matmul.py")
    found = lines_in(diff_captures(a, b))
    assert times(found) == {
        (3, 4): (0.3, 0.2),
        (4, 6): (0.5, 0.4),
        (5, None): (0.1, 0),
        (None, 5): (0, 0.3),
    }
    assert [
        (line["text"], line["line"], line["file"]) for line in found if None in (line["line_a"], line["line_b"])
    ] == [
        ("a = a + 1", 5, "/elsewhere/matmul.py"),
        ("store(acc)", 5, PATH),
    ]
    check("report/diff-lines", "\n".join(printed(diff_captures(a, b))), "moved, new and gone")


def test_an_edited_line_is_one_line_and_so_is_one_without_samples(tmp_path: Path) -> None:
    a = exact(tmp_path / "a", {3: 300, 4: 600})
    b = exact(tmp_path / "b", {3: 400, 5: 500}, [*TEXT[:2], "    a = load(x, mask)", *TEXT[3:]])
    found = lines_in(diff_captures(a, b))
    assert times(found) == {(4, 4): (0.6, 0), (5, 5): (0, 0.5), (3, 3): (0.3, 0.4)}
    assert found[2]["text"] == "a = load(x, mask)"
    other = exact(tmp_path / "c", {4: 900}, [*TEXT[:2], "    # nothing", *TEXT[3:]])
    assert times(lines_in(diff_captures(a, other))) == {(4, 4): (0.6, 0.9), (3, None): (0.3, 0)}


@pytest.mark.parametrize("text", [TEXT, None], ids=["texts", "no texts"])
def test_the_only_file_is_the_same_one_whatever_its_name(tmp_path: Path, text: list[str] | None) -> None:
    a = exact(tmp_path / "a", {3: 300, 4: 600}, text)
    b = exact(tmp_path / "b", {3: 400, 4: 500}, text, "/src/faster.py")
    diff = diff_captures(a, b)
    assert times(lines_in(diff)) == {(3, 3): (0.3, 0.4), (4, 4): (0.6, 0.5)}
    assert any(line.startswith("matmul.py:3 → faster.py:3 ") for line in printed(diff))


def test_a_difference_within_the_sampling_error_is_noise(tmp_path: Path) -> None:
    a = exact(tmp_path / "a", {3: 300, 4: 600})
    diff = diff_captures(a, exact(tmp_path / "b", {3: 310, 4: 490, 5: 100}))
    noise = {line["line"]: line["is_noise"] for line in lines_in(diff)}
    assert noise == {3: True, 4: False, 5: False}
    (row,) = (line for line in printed(diff) if line.startswith("matmul.py:3 "))
    assert row.endswith(" µs, noise")
    assert page_of(diff, tmp_path).count("µs, noise</td>") == 1
    same = diff_captures(a, exact(tmp_path / "c", {3: 310, 4: 590}))
    assert len(lines_in(same)) == 2
    check("report/diff-lines", "\n".join(printed(same)), "noise")
    assert 'class="lines"' not in page_of(same, tmp_path)


OPERATIONS = [
    Scope("func", "func", -1, (PATH, 2)),
    Scope("tt.load", "op", 0, (PATH, 3)),
    Scope("line(3)", "line", 0, (PATH, 3)),
    Scope("inner", "op", 2, (PATH, 3)),
    Scope("line(4-5)", "line", 0, (PATH, 4)),
    Scope("tt.store", "op", 0, (PATH, 5)),
]


def recorded(folder: Path, load_ns: int, lost: int = 0, scopes: list[Scope] = OPERATIONS) -> list[Timeline]:
    """Two warps of one CTA that run each scope once."""
    durations = (10_000, load_ns, 500, 400, 3000, 1000)
    rows = [
        Ran(index, ns, 0, warp, 0, start_record=2 * index, end_record=2 * index + 1)
        for warp in range(2)
        for index, ns in enumerate(durations[: len(scopes)])
    ]
    return [made_timeline(folder, scopes, [scope_rows(rows)], cta_rows((0, 0, 0, 11_000, 11_100)), records_lost=lost)]


def test_without_samples_the_recorded_scopes_of_a_line_count(tmp_path: Path) -> None:
    """Not those within another of the same line, and not those of several lines."""
    a, b = recorded(tmp_path / "a", 2000), recorded(tmp_path / "b", 3000)
    diff = diff_captures(a, b)
    found = lines_in(diff)
    assert [(line["line"], line["a_ns"], line["b_ns"]) for line in found] == [(3, 2500, 3500), (5, 1000, 1000)]
    assert {(line["source"], line["error_ns"]) for line in found} == {("scopes", None)}
    check("report/diff-lines", "\n".join(printed(diff)), "by scopes")


def test_there_is_no_figure_where_neither_is_known(tmp_path: Path) -> None:
    a, b = recorded(tmp_path / "a", 2000), recorded(tmp_path / "b", 3000)
    assert lines_in(diff_captures(a, recorded(tmp_path / "c", 3000, lost=4))) == []
    without_store = recorded(tmp_path / "d", 3000, scopes=OPERATIONS[:2])
    assert [line["line"] for line in lines_in(diff_captures(b, without_store))] == [3]
    plain = diff_captures(usual(tmp_path / "e", 1), usual(tmp_path / "f", 2, iter_ns=2 * ITER_NS))
    assert lines_in(plain) == [] and printed(plain) == [] and 'class="lines"' not in page_of(plain, tmp_path)


def test_samples_of_one_side_alone_are_no_comparison(tmp_path: Path) -> None:
    a = exact(tmp_path / "a", {3: 300})
    assert lines_in(diff_captures(a, exact(tmp_path / "b", {3: 300}, sampled=False))) == []
