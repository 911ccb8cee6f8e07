"""A comparison as terminals, files, browsers and programs get it."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from buffers import Scope
from elements import Elements
from known_sides import FUNC, HEAD_NS, ITER_NS, SCOPES, around, usual, with_rows
from replacing import replace
from rich.console import Console
from snapshots import check

from kprof_inject.analysis.comparison.verdicts import CaptureDiff, diff_captures
from kprof_inject.report.diff.page import axis_length, interval_bar, write_diff_page
from kprof_inject.report.diff.rows import Row, diff_json
from kprof_inject.report.diff.terminal import print_diff_tables
from kprof_inject.timeline.comparison import Change
from kprof_inject.timeline.timeline import Timeline

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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(diff: CaptureDiff, height: int) -> list[str]:
    out = Terminal()
    print_diff_tables(diff, Console(file=out, width=200, height=height, color_system=None))
    return out.getvalue().splitlines()


def test_the_answer_comes_first_and_then_the_table(tmp_path: Path) -> None:
    check("report/diff-printed", "\n".join(printed(faster(tmp_path))), "a faster kernel")


@pytest.mark.parametrize(
    ("width", "left_out"),
    [(140, ()), (120, ("p50",)), (80, ("p50", "share", "count")), (60, ("p50", "source"))],
)
def test_on_a_narrow_terminal_columns_are_left_out_and_rows_are_whole(
    tmp_path: Path, width: int, left_out: tuple[str, ...]
) -> None:
    lines = printed(faster(tmp_path), width=width)
    at = next(number for number, line in enumerate(lines) if "verdict" in line)
    titles = lines[at].split()
    assert titles[0] == "scope" and not set(left_out) & set(titles)
    rows = lines[at + 2 : at + 5]
    assert [row.split()[0] for row in rows] == ["func", "loop[0]", "iter[0]"]
    assert all("faster" in row and "→ 255 µs" in row for row in rows[1:])
    assert all(len(line) <= width for line in lines)
    assert any(
        line.startswith("columns hidden: ") and all(name in line for name in left_out[:2]) for line in lines
    ) == (bool(left_out))


def test_launches_are_counted_in_english(tmp_path: Path) -> None:
    a, b = usual(tmp_path / "a", 1, launches=2), usual(tmp_path / "b", 2, launches=1)
    mul = usual(tmp_path / "mul", 3, launches=2, kernel={"name": "mul", "variant": "mul-0"})
    lines = printed(diff_captures([*a, *mul], b))
    check("report/diff-printed", "\n".join(lines), "too few launches")
    of_one = "\n".join(printed(diff_captures(a[:1], b)))
    assert "grid 1x1x1, 1 launch each\n" in of_one and of_one.count("1 launch each") == 3


def test_without_a_scope_on_both_sides_there_is_no_table(tmp_path: Path) -> None:
    other = [Scope(name, "marker", parent) for parent, name in enumerate(("alpha", "beta", "gamma"), -1)]
    diff = diff_captures(usual(tmp_path / "a", 1), usual(tmp_path / "b", 2, iter_ns=1.2 * ITER_NS, scopes=other))
    lines = printed(diff)
    assert lines[0].startswith("B takes ") and not any("verdict" in line for line in lines)
    assert sum(line.startswith(("only in A: ", "only in B: ")) for line in lines) == 6
    write_diff_page(tmp_path / "diff.html", diff, ("a", "b"))
    assert (tmp_path / "diff.html").read_text().count('<tr class="launch">') == 1
    assert diff_json(diff)["kernels"][0]["scopes"] == []


def many(folder: Path) -> CaptureDiff:
    """Kernel n is slower by n %; of those that are slower, the shortest was launched most often."""
    sides: list[list[Timeline]] = [[], []]
    for number in range(12):
        kernel = {"name": f"k{number}", "variant": f"k{number}", "launches": 1000 if number == 3 else 1}
        for seed, mine in enumerate(sides):
            factor = 1 + seed * number / 100
            mine += usual(folder / f"{seed}{number}", seed, factor * HEAD_NS, factor * ITER_NS, kernel=kernel)
    return diff_captures(*sides)


def test_the_kernel_whose_change_is_worth_most_comes_first_and_the_list_is_bounded(tmp_path: Path) -> None:
    diff = many(tmp_path)
    names = [kernel.b.kernel.name for kernel in diff.kernels]
    assert names[:9] == ["k3", *(f"k{number}" for number in range(11, 3, -1))]
    assert [kernel["kernel"] for kernel in diff_json(diff)["kernels"]] == names
    lines = printed(diff)
    assert [line.partition(",")[0] for line in lines if ", A → B: grid" in line] == names[:10]
    assert lines[-1].startswith("2 kernels ") and "--kernel GLOB" in lines[-1]
    check("report/diff-printed", lines[-1], "more kernels")
    high, low = (on_terminal(diff, height) for height in (60, 24))
    shown = [sum(", A → B: grid" in line for line in screen) for screen in (high, low)]
    assert shown[1] == 1 < shown[0] < 10 and len(high) <= 60
    assert low[-1].startswith("11 kernels ")
    assert not any("\x1b[" in line for line in low)


def test_names_are_neither_markup_nor_orders(tmp_path: Path) -> None:
    evil = "<b onclick='x'>&\x1b[31m[/b]"
    scopes = [Scope(evil, "func", -1, ("/src/<i>.py", 3)), *SCOPES[1:]]
    diff = faster(tmp_path, scopes=scopes)
    assert any("<b onclick='x'>& [31m[/b]" in line for line in printed(diff))
    write_diff_page(tmp_path / "diff.html", diff, ("<script>a</script>", "b"))
    page = (tmp_path / "diff.html").read_text()
    assert "<script" not in page and "<b " not in page and "<i>" not in page and "\x1b" not in page
    assert "&lt;b onclick=&#x27;x&#x27;&gt;&amp; [31m[/b]" in page


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    diff = faster(tmp_path)
    write_diff_page(tmp_path / "diff.html", diff, ("before", "after"))
    page = (tmp_path / "diff.html").read_text()
    elements = Elements(page)
    tags = {tag for tag, _, _ in elements.found}
    assert not tags & {"script", "link", "img", "iframe"}
    assert not re.search(r"https?:|url\(|@import", page)
    assert "prefers-color-scheme: dark" in page
    assert "".join(text for _, _, text in elements.found).count(printed(diff)[0]) == 1
    policy = next(values["content"] for values, _ in elements.named("meta") if "http-equiv" in values) or ""
    style = page.partition("<style>")[2].partition("</style>")[0]
    style_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ") and "script-src" not in policy and "unsafe" not in policy
    assert re.findall(r"'sha256-([^']+)'", policy) == [style_hash]
    # A policy by hashes lets no element have a style of its own.
    assert not any("style" in values for _, values, _ in elements.found)
    # Two of the launch, and one for each scope; a median CTA of each side is another picture.
    pictures = [values for values, _ in elements.named("svg") if values.get("role") == "img"]
    assert [values.get("class") for values in pictures].count(None) == 5 and len(pictures) == 6


def test_bars_reach_to_the_estimate_and_whiskers_over_the_interval() -> None:
    def row(change: Change | None) -> Row:
        interval = (change.percent, change.low_percent, change.high_percent) if change else ()
        return Row("scope", "func", {"change": "-10.0 %"}, interval=interval)

    faster = row(Change(-0.1054, 0.02))
    assert axis_length([faster, row(None)]) == 20
    drawing = interval_bar(faster, 20)
    numbers = [float(number) for number in re.findall(r'whisker" d="M([\d.]+) [\d.]+H([\d.]+)', drawing)[0]]
    zero = float(re.findall(r'zero" d="M([\d.]+)', drawing)[0])
    bar = [float(number) for number in re.findall(r'bar" x="([\d.]+)" y="4" width="([\d.]+)"', drawing)[0]]
    assert bar[0] + bar[1] == pytest.approx(zero, abs=0.11)
    assert numbers[0] < bar[0] < numbers[1] < zero
    assert drawing.count("V") == 3
    # Beyond the axis there is no end to see.
    assert interval_bar(row(Change(0.0, 3.0)), 20).count("V") == 1
    assert interval_bar(row(None), 20) == ""


def test_a_scope_of_which_no_start_has_its_end_has_no_figures(tmp_path: Path) -> None:
    """Its records were lost in B; that is no time of 0 ns."""
    a = usual(tmp_path / "a", 1)
    b = [with_rows(one, rows[rows["scope"] != FUNC]) for one in usual(tmp_path / "b", 2) for rows in [one.scopes]]
    diff = diff_captures(a, [replace(one, records_lost=10) for one in b])
    (func,) = (line for line in printed(diff) if line.startswith("│ func "))
    cells = [cell.strip() for cell in func.strip("│").split("│")]
    assert cells[2:4] == ["cannot tell", "-"]
    assert [cell.rpartition(" ")[2] for cell in cells[4:]] == ["0", "-", "-", "-", "-"]
    func_values = diff_json(diff)["kernels"][0]["scopes"][FUNC]
    for figure in ("total_ns", "mean_ns", "p50_ns", "share", "compared_ns"):
        assert func_values[figure]["b"] is None
