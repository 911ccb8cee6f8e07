"""Figures in the documentation are those of its file of measurements, of the code's constants, or of the demo.

``95 %<!-- =MODULE:NAME -->`` quotes a constant, and ``+1.6 %<!-- =KEY -->`` a fact of docs/measurements.toml.
"""

from __future__ import annotations

import importlib
import math
import operator
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, Command, Reader, blocks_of
from programs.child import REPO, run_python

from kprof_inject.capture.mode import SHIPPED

MEASURED = tomllib.loads((REPO / "docs/measurements.toml").read_text())
FACTS: dict[str, dict[str, Any]] = MEASURED.pop("fact")

COMMENT = re.compile(r"<!-- =(\S+) -->")
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
NUMBERS = {word: float(value) for value, word in enumerate(WORDS)} | {"twenty": 20.0, "half": 0.5, "quarter": 0.25}
QUANTITY = re.compile(
    rf"(?<![\w.])(\d[\d,]*(?:\.\d+)?|(?:{'|'.join(NUMBERS)})\b)(?: ?(%|points\b|[nµm]?s\b|[kMG]i?B\b))?"
)
FIGURE = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?: (?:%|µs|ns|kB|MHz)(?!\w))?")

# The modes of the table of record costs.
MODES = {
    "`--buffer-type global`": ("global", 64, False, False),
    "`--buffer-type shared`": ("shared", 64, False, False),
    "`--buffer-type shared --clock32`": ("shared", 32, False, False),
}


def quotes_of(page: Path) -> Iterator[tuple[str, str]]:
    """Yield each key that a page quotes, and the words before it up to another comment or the cell's begin."""
    text, begin = page.read_text(), 0
    for comment in COMMENT.finditer(text):
        before = text[begin : comment.start()].rpartition("\n\n")[2].rpartition("|")[2]
        yield comment[1], " ".join(before.split())
        begin = comment.end()


def constant(key: str) -> float:
    module, _, name = key.partition(":")
    name, _, of = name.partition("[")
    found = operator.attrgetter(name)(importlib.import_module(module))
    value: float = found[of.rstrip("]")] if of else found
    return value


def equals(number: str, unit: str, value: float) -> bool:
    """Return whether a quantity in prose is this constant, in any unit."""
    figure = NUMBERS.get(number) or float(number.replace(",", ""))
    scales: list[float] = [1]
    if unit in ("%", "points"):
        scales = [1, 0.01]
    elif unit:
        scales = [1000.0**power for power in range(-3, 4)]
    if unit.endswith("B"):
        scales += [1024.0**power for power in range(1, 4)]
    # Sizes are rounded: 1.07 GB.
    tolerance = 0.005 if unit.endswith("B") else 1e-9
    return any(math.isclose(figure * scale, value, rel_tol=tolerance) for scale in scales)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_figure_is_the_constant_or_the_fact_that_it_quotes(page: Path) -> None:
    for key, before in quotes_of(page):
        if ":" in key:
            quantities = QUANTITY.findall(before[-40:])
            assert quantities, f"{page.name}: no figure before {key}: {before[-40:]}"
            assert equals(*quantities[-1], constant(key)), f"{page.name}: {key} is {constant(key)}: {before[-40:]}"
        else:
            assert key in FACTS, f"{page.name}: {key} is not in docs/measurements.toml"
            assert before.endswith(FACTS[key]["value"]), f"{page.name}: {key} is {FACTS[key]['value']}: {before[-40:]}"


# Facts from outside, sizes of examples, and what a rule of thumb says.
FREE = {
    "README.md": ["5 µs"],
    "accuracy.md": ["80GB", "4 ms", "100 ns", "10 %", "1 µs", "1 %", "3 %", "50 µs"],
    "compare.md": ["2.4 %"],
    "comparison.md": ["8.2 %", "2 %", "1%", "32 ns", "1 µs"],
    "file-formats.md": ["2.1 s", "16.8 ms"],
    "how-it-works.md": ["32 ns", "10 ns", "1 µs"],
}
# The demo prints what these explain.
OF_DEMO = ("reading-a-report.md", "tutorial.md")
WITH_UNIT = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)? ?(?:%|points\b|[nµm]?s\b|[kMG]i?B\b)(?!<!-- =)")


def prose_of(page: Path) -> str:
    """A page's text without its code, its generated tables, and quoted words of programs."""
    text = re.sub(
        r"^(```.*?^```|<!-- measured: .*?<!-- end -->)$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    return re.sub(r"`[^`]*`", "", re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in OF_DEMO], ids=lambda page: page.name)
def test_a_figure_in_prose_says_where_it_is_from(page: Path) -> None:
    free = FREE.get(page.name, [])
    found = [figure for figure in WITH_UNIT.findall(prose_of(page)) if figure not in free]
    assert found == [], "name a constant, or a fact of docs/measurements.toml, after it"


@pytest.fixture(scope="module")
def printed_by_demo(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """By each command that these pages explain."""
    reader = Reader(tmp_path_factory.mktemp("demo"))
    commands = ("demo", "report kprof_demo/captures/003 --launch 16 -v", "report kprof_demo/captures/001")
    return [reader.run(Command(0, f"kprof-inject {words}", "", needs_gpu=False))[1] for words in commands]


@pytest.mark.parametrize("name", OF_DEMO)
def test_a_figure_in_prose_is_what_the_demo_prints(name: str, printed_by_demo: list[str]) -> None:
    found = WITH_UNIT.findall(prose_of(REPO / "docs" / name))
    assert len(found) > 3
    assert [figure for figure in found if figure not in "".join(printed_by_demo)] == []


def test_the_tables_are_those_of_the_file(tmp_path: Path) -> None:
    ended = run_python(REPO / "scripts/measurements", "--check", folder=tmp_path)
    assert ended.exit_code == 0, ended.stderr
    shown = re.findall(r"^<!-- measured: (\S+) -->$", (REPO / "docs/accuracy.md").read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(MEASURED)
    for key, table in MEASURED.items():
        assert {len(row) for row in table["rows"]} == {len(table["columns"])}, key


def test_a_mean_is_that_of_its_rows() -> None:
    means = {key: fact for key, fact in FACTS.items() if "mean_of" in fact}
    assert means
    for key, fact in means.items():
        table, column = fact["mean_of"]
        place = MEASURED[table]["columns"].index(column)
        factors = [1 + float(row[place].removesuffix(" %")) / 100 for row in MEASURED[table]["rows"]]
        mean = 100 * (math.prod(factors) ** (1 / len(factors)) - 1)
        assert fact["value"] == f"{mean:+.1f} %", key


def test_the_cost_of_a_record_is_the_one_that_ships() -> None:
    for mode, *costs in MEASURED["record_cost"]["rows"]:
        for device, cost in zip(("NVIDIA H100 80GB HBM3", "NVIDIA H200"), costs, strict=True):
            start, end, error = SHIPPED[device, "3.6"][MODES[mode]]
            assert start == end
            assert cost == f"{start} ± {error}", (mode, device)


def test_the_screens_in_the_readme_have_the_figures_that_the_demo_prints(printed_by_demo: list[str]) -> None:
    blocks = blocks_of((REPO / "README.md").read_text())
    screens = [block for block in blocks if any(re.search(r"\b\w+\.py:\d", line) for line in block.lines)]
    assert screens
    printed = set(FIGURE.findall(printed_by_demo[0]))
    for block in screens:
        figures = FIGURE.findall("\n".join(block.lines))
        assert len(figures) > 10
        assert [figure for figure in figures if figure not in printed] == []
