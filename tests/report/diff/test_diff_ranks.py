"""Comparisons of captures with several ranks: each rank with itself."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from programs.child import REPO
from replacing import replace
from rich.console import Console
from snapshots import check

from kprof_inject.analysis.comparison.verdicts import CaptureDiff, diff_captures
from kprof_inject.capture.reader import read_capture
from kprof_inject.report.diff.page import write_diff_page
from kprof_inject.report.diff.rows import diff_json
from kprof_inject.report.diff.terminal import crossings, print_diff_tables
from kprof_inject.timeline.timeline import Timeline, decode_launch


def side(rank: Callable[[int], int | None] = lambda rank: rank, *, launches: int = 5) -> list[Timeline]:
    """Launches of two ranks, of which rank 1 is late by one CTA; ``rank`` returns the new number of each."""
    captured = read_capture(REPO / "tests/captures/late-rank").launches
    return [
        decode_launch(replace(one, process=replace(one.process, rank=rank(one.process.rank or 0))))
        for one in captured
        if one.index <= launches
    ]


def swapped(rank: int) -> int:
    return 1 - rank


def printed(diff: CaptureDiff) -> str:
    out = io.StringIO()
    print_diff_tables(diff, Console(file=out, width=200))
    return out.getvalue()


def test_each_rank_is_compared_with_itself() -> None:
    diff = diff_captures(side(), side())
    assert [(kernel.a.rank, kernel.b.rank) for kernel in diff.kernels] == [(0, 0), (1, 1)]
    for kernel in diff.kernels:
        ranks = {timeline.launch.place.rank for timeline in (*kernel.a.timelines, *kernel.b.timelines)}
        assert ranks == {kernel.a.rank}
    assert not diff.only_a and not diff.only_b
    pairs = {kernel.b.rank: kernel for kernel in diff_captures(side(), side(swapped)).kernels}
    durations_ns = {rank: pair.sides.duration_ns for rank, pair in pairs.items()}
    assert durations_ns[0].b == durations_ns[1].a != durations_ns[0].a


def test_the_ranks_come_before_the_kernels() -> None:
    text = printed(diff_captures(side(), side(swapped)))
    head = text.partition("all_reduce_kernel of rank")[0]
    check("report/diff-ranks", head, "swapped")
    assert text.count("A → B: grid") == 2
    check("report/diff-ranks", printed(diff_captures(side(), side())).partition("all_reduce_kernel of rank")[0], "same")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (side, lambda: side(lambda _: 0)),
        (lambda: side(lambda _: None), side),
        (side, lambda: side(lambda rank: rank + 2)),
    ],
    ids=["one rank", "no rank", "other ranks"],
)
def test_ranks_that_only_one_side_has_are_compared_together(
    a: Callable[[], list[Timeline]], b: Callable[[], list[Timeline]]
) -> None:
    diff = diff_captures(a(), b())
    (kernel,) = diff.kernels
    assert kernel.a.rank is kernel.b.rank is None
    assert "rank" not in diff_json(diff)["kernels"][0]
    assert "rank 0" not in printed(diff)


def test_a_rank_of_one_side_alone_is_named(tmp_path: Path) -> None:
    a = [*side(), *(one for one in side(lambda rank: rank + 2) if one.launch.place.rank == 3)]
    diff = diff_captures(a, side())
    assert [runs.rank for runs in diff.only_a] == [3]
    (line,) = (line for line in printed(diff).splitlines() if line.startswith("only in A"))
    assert "rank 3" in line
    assert any("rank 3" in crossing for crossing in crossings(diff, 0.05, ()))


def test_the_page_has_a_row_for_each_rank(tmp_path: Path) -> None:
    write_diff_page(tmp_path / "ranks.html", diff_captures(side(), side(swapped)), ("a", "b"))
    page = (tmp_path / "ranks.html").read_text()
    (table,) = page.split('<table class="ranks">')[1:]
    assert table.partition("</table>")[0].count("<tr") == 1 + 2
    write_diff_page(tmp_path / "one.html", diff_captures(side(lambda _: 0), side(lambda _: 0)), ("a", "b"))
    assert "ranks" not in (tmp_path / "one.html").read_text().partition("</style>")[2]
