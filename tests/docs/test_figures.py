"""Figures that the documentation quotes more than once, or that the demo prints, are the same everywhere."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from pages import PAGES, Command, Reader, blocks_of
from programs.child import REPO

# What they are, and where they are quoted: by page, a pattern whose groups are the figures.
QUOTED = {
    "error of spins": {
        "docs/costs.md": r"(-\d+) to (\+\d+) \[without",
        "docs/reading-the-numbers.md": r"(-\d+) to (\+\d+) cycles off",
    },
    "cost of a record": {
        "docs/timeline.md": r"(\d+) ± \d+ cycles\.",
        "docs/reading-the-numbers.md": r"midpoint, (\d+)",
    },
    "launch overhead in CUDA events": {
        "docs/costs.md": r"launch overhead of (\d+ to \d+ µs)",
        "docs/statistics.md": r"(\d+ to \d+ µs) of any time",
    },
    "roof of the demo's loop": {
        "docs/speed-of-light.md": r"loop needs at least ([\d.]+) %",
        "docs/tutorial.md": r"would need ([\d.]+) %",
        "demo": r"LIMIT .*tensor.* at least ([\d.]+) % in loop\[0\]",
    },
    "times around the demo's loop": {
        "docs/findings.md": r"([\d.]+) % of the CTA's time before[^.]*? ([\d.]+) % after",
        "demo": r"CTA +\| before ([\d.]+) %.*\| after ([\d.]+) % \|(?=[\s\S]*B against A)(?![\s\S]*CTA +\| before)",
    },
}
MEASURED = re.compile(r"\d (?:µs|ns|%|MB|cycles)(?!\w)")
FIGURE = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?: (?:%|µs|ns|kB|MHz)(?!\w))?")


@cache
def demo(folder: Path) -> str:
    _, printed = Reader(folder).run(Command(0, "kprof-inject demo", "", needs_gpu=False))
    return printed


@pytest.fixture(scope="module")
def printed_by_demo(tmp_path_factory: pytest.TempPathFactory) -> str:
    return demo(tmp_path_factory.mktemp("demo"))


@pytest.mark.parametrize("what", QUOTED)
def test_a_figure_is_the_same_wherever_it_is_quoted(what: str, printed_by_demo: str) -> None:
    found = {}
    for place, pattern in QUOTED[what].items():
        text = printed_by_demo if place == "demo" else (REPO / place).read_text()
        quoted = re.search(pattern, text)
        assert quoted, f"{place} does not quote it: {pattern}"
        found[place] = quoted.groups()
    assert len(set(found.values())) == 1, found


def test_rows_that_stand_in_tables_of_several_pages_are_the_same() -> None:
    rows: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for page in PAGES:
        heading = ""
        for line, below in zip(lines := page.read_text().splitlines(), [*lines[1:], ""], strict=True):
            if re.fullmatch(r"[|\- ]+", below) and line.startswith("|"):
                heading = line
            elif not line.startswith("|"):
                heading = ""
            elif heading and MEASURED.search(line):
                rows[heading, line.split("|")[1]][page.name] = line
    quoted_twice = [found for found in rows.values() if len(found) > 1]
    assert quoted_twice  # the overhead of the small kernels
    for found in quoted_twice:
        assert len(set(found.values())) == 1, found


def test_the_overhead_of_small_kernels_is_that_of_its_table() -> None:
    costs = (REPO / "docs/costs.md").read_text()
    # Of the column of func, loop and iter: those that are known.
    shares = [float(share) for share in re.findall(r"^\|[^|]+\| [\d.]+ µs \|[^|]+\| \+([\d.]+) %", costs, re.MULTILINE)]
    mean = 100 * (math.prod(1 + share / 100 for share in shares) ** (1 / len(shares)) - 1)
    assert re.search(rf"geometric mean[^|]*? \+{mean:.1f} %", costs)
    comparison = (REPO / "docs/comparison.md").read_text()
    assert f"+{min(shares)} to +{max(shares)} %" in comparison and f"geometric mean +{mean:.1f} %" in comparison
    assert f"small kernels by {min(shares):.0f} to {max(shares):.0f} %" in (REPO / "README.md").read_text()


def test_the_screens_in_the_readme_have_the_figures_that_the_demo_prints(printed_by_demo: str) -> None:
    screens = [
        block
        for block in blocks_of((REPO / "README.md").read_text())
        if any("matmul.py:" in line for line in block.lines)
    ]
    assert len(screens) == 2
    printed = set(FIGURE.findall(printed_by_demo))
    for block in screens:
        figures = FIGURE.findall("\n".join(block.lines))
        assert len(figures) > 10
        assert [figure for figure in figures if figure not in printed] == []
