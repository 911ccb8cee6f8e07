"""A comparison as terminals, files, browsers and programs get it."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from buffers import Scope
from known_sides import HEAD_NS, ITER_NS, SCOPES, around, usual
from rich.console import Console

from kprof_inject.report.diff.captures import diff_captures
from kprof_inject.report.diff.interval_bar import axis_percent, interval_bar
from kprof_inject.report.diff.kernel_diff import CaptureDiff
from kprof_inject.report.diff.page import write_diff_page
from kprof_inject.report.diff.table import print_diff_tables
from kprof_inject.report.diff.to_json import diff_json
from kprof_inject.report.diff.verdict import Clocks, Judged, Verdict, judged
from kprof_inject.timeline.statistics.comparison import Change

STAGES: list[dict[str, Any]] = [
    {"metadata": {"num_warps": 2, "num_stages": count}, "variant": f"v{count}"} for count in (2, 4)
]


def faster(folder: Path, **changes: Any) -> CaptureDiff:
    a = usual(folder / "a", 1, clean_ns=around(170_000, 5, 100), kernel=STAGES[0], **changes)
    b = usual(
        folder / "b", 2, 1.05 * HEAD_NS, 0.85 * ITER_NS, clean_ns=around(151_000, 6, 100), kernel=STAGES[1], **changes
    )
    return diff_captures(a, b)


def printed(diff: CaptureDiff, width: int = 300) -> list[str]:
    out = io.StringIO()
    print_diff_tables(diff, Console(file=out, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_answer_comes_first_and_then_the_table(tmp_path: Path) -> None:
    lines = printed(faster(tmp_path))
    assert re.fullmatch(
        r"B is 11\.\d % ± [01]\.\d faster: iter\[0\] \(-1[45]\.\d % ± 1\.\d\) explains all of it; "
        r"(169|170)\.\d+ µs → 151\.\d+ µs without records",
        lines[0],
    )
    assert lines[2] == "kernel, A → B: grid 1x1x1, 20 and 20 launches"
    titles = [cell.strip() for cell in lines[4].strip("┃").split("┃")]
    assert titles == ["scope", "source", "verdict", "change", "count", "total", "mean", "p50", "share"]
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert [row[:3] for row in rows] == [
        ["func", "matmul.py:12", "faster"],
        ["loop[0]", "matmul.py:15", "faster"],
        ["iter[0]", "matmul.py:15", "faster"],
    ]
    assert rows[2][4:8] == ["10", "300 µs → 255 µs", "30.0 µs → 25.5 µs", "30.0 µs → 25.5 µs"]
    assert "differs: num_stages 2 → 4" in lines


@pytest.mark.parametrize("width", [110, 80, 50])
def test_on_a_narrow_terminal_figures_are_whole(tmp_path: Path, width: int) -> None:
    text = "\n".join(printed(faster(tmp_path), width=width))
    assert "…" not in text
    assert all(figure in text for figure in ("300 µs →", "255 µs", "30.0 µs →", "faster", "matmul.py"))


def test_names_are_neither_markup_nor_orders(tmp_path: Path) -> None:
    evil = "<b onclick='x'>&\x1b[31m[/b]"
    scopes = [Scope(evil, "func", -1, ("/src/<i>.py", 3)), *SCOPES[1:]]
    diff = faster(tmp_path, scopes=scopes)
    assert any("<b onclick='x'>& [31m[/b]" in line for line in printed(diff))
    write_diff_page(tmp_path / "diff.html", diff, ("<script>a</script>", "b"))
    page = (tmp_path / "diff.html").read_text()
    assert "<script" not in page and "<b " not in page and "<i>" not in page and "\x1b" not in page
    assert "&lt;b onclick=&#x27;x&#x27;&gt;&amp; [31m[/b]" in page


class Elements(HTMLParser):
    """What is in a page; every element that is opened is closed."""

    EMPTY = ("meta", "rect", "path")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    diff = faster(tmp_path)
    write_diff_page(tmp_path / "diff.html", diff, ("before", "after"))
    page = (tmp_path / "diff.html").read_text()
    elements = Elements(page)
    tags = {tag for tag, _ in elements.found}
    assert not tags & {"script", "link", "img", "iframe"}
    assert not re.search(r"https?:|url\(|@import", page)
    assert "prefers-color-scheme: dark" in page
    assert "".join(elements.text).count(printed(diff)[0]) == 1
    # Two of the launch, and one for each scope.
    assert sum(tag == "svg" for tag, _ in elements.found) == 5


def test_bars_reach_to_the_estimate_and_whiskers_over_the_interval() -> None:
    faster = Judged(Verdict.FASTER, Change(-0.1054, 0.02), None)
    assert axis_percent([faster, None]) == 20
    drawing = interval_bar(faster, 20)
    numbers = [float(number) for number in re.findall(r'whisker" d="M([\d.]+) [\d.]+H([\d.]+)', drawing)[0]]
    zero = float(re.findall(r'zero" d="M([\d.]+)', drawing)[0])
    bar = [float(number) for number in re.findall(r'bar" x="([\d.]+)" y="4" width="([\d.]+)"', drawing)[0]]
    assert bar[0] + bar[1] == pytest.approx(zero, abs=0.11)
    assert numbers[0] < bar[0] < numbers[1] < zero
    assert drawing.count("V") == 3
    # Beyond the axis there is no end to see.
    assert interval_bar(Judged(Verdict.UNKNOWN, Change(0.0, 3.0), None), 20).count("V") == 1
    assert interval_bar(None, 20) == interval_bar(judged(None, None, Clocks(None, None)), 20) == ""


def test_json_has_all_of_it(tmp_path: Path) -> None:
    values = json.loads(json.dumps(diff_json(faster(tmp_path))))
    (kernel,) = values["kernels"]
    assert values["sentence"] == kernel["sentence"] and values["confidence"] == 0.95
    assert kernel["verdict"] == "faster" and kernel["differences"] == {"num_stages": ["2", "4"]}
    assert kernel["without_records"]["change"]["percent"] == pytest.approx(-11.1, abs=1)
    low, high = (kernel["with_records"]["change"][end] for end in ("low_percent", "high_percent"))
    assert low < -10.8 < high < 0
    iteration = kernel["scopes"][2]
    assert (iteration["name"], iteration["verdict"], iteration["basis"]) == ("iter[0]", "faster", "total")
    assert iteration["count"] == {"a": 10.0, "b": 10.0}
    assert iteration["change"]["percent"] == pytest.approx(-15, abs=1.5)
    assert kernel["a"]["launches"] == list(range(1, 21)) and kernel["a"]["clean_launches"] == 100
