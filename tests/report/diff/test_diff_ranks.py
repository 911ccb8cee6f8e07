"""Comparisons of captures with several ranks: each rank with itself, and who comes last on each side."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from programs.child import REPO
from replacing import replace
from rich.console import Console
from snapshots import check

from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.report.diff.gate import crossings
from kprof_inject.report.diff.kernel_diff import CaptureDiff, diff_captures
from kprof_inject.report.diff.page import write_diff_page
from kprof_inject.report.diff.rank_changes import RankChange, rank_changes
from kprof_inject.report.diff.table import diff_json, print_diff_tables
from kprof_inject.timeline.timeline import Timeline, decode_launch


def side(rank: Callable[[int], int | None] = lambda rank: rank, *, launches: int = 5) -> list[Timeline]:
    """Launches of two ranks, of which rank 1 is late by one CTA; ``rank`` returns the new number of each."""
    captured = read_capture(REPO / "tests/captures/late-rank").launches
    return [
        decode_launch(replace(one, origin=replace(one.origin, rank=rank(one.origin.rank or 0))))
        for one in captured
        if one.index <= launches
    ]


def swapped(rank: int) -> int:
    return 1 - rank


def on_the_other_device(launch: Launch) -> Launch:
    """A copy of a launch whose process numbers its GPU otherwise."""
    origin = launch.origin
    readings = tuple(replace(one, device=1 - one.device) for one in origin.host_readings)
    names, uuids = origin.device_names[::-1], origin.device_uuids[::-1]
    renumbered = replace(origin, device_names=names, device_uuids=uuids, host_readings=readings)
    return replace(launch, device=1 - launch.device, origin=renumbered)


def printed(diff: CaptureDiff) -> str:
    out = io.StringIO()
    print_diff_tables(diff, Console(file=out, width=200))
    return out.getvalue()


def change_in(diff: CaptureDiff, scope: str) -> RankChange:
    (found,) = (change for change in rank_changes(diff) if change.scope == scope)
    return found


def test_each_rank_is_compared_with_itself() -> None:
    diff = diff_captures(side(), side())
    assert [(kernel.a.rank, kernel.b.rank) for kernel in diff.kernels] == [(0, 0), (1, 1)]
    for kernel in diff.kernels:
        ranks = {timeline.launch.place.rank for timeline in (*kernel.a.timelines, *kernel.b.timelines)}
        assert ranks == {kernel.a.rank}
    assert not diff.only_a and not diff.only_b
    pairs = {kernel.b.rank: kernel for kernel in diff_captures(side(), side(swapped)).kernels}
    assert pairs[0].duration_ns.b == pairs[1].duration_ns.a != pairs[0].duration_ns.a


def test_the_ranks_and_who_is_last_come_before_the_kernels() -> None:
    text = printed(diff_captures(side(), side(swapped)))
    head = text.partition("all_reduce_kernel of rank")[0]
    check("report/diff-ranks", head, "swapped")
    assert text.count("A → B: grid") == 2
    check("report/diff-ranks", printed(diff_captures(side(), side())).partition("all_reduce_kernel of rank")[0], "same")


def test_the_last_rank_may_be_another_one() -> None:
    same, other = (change_in(diff_captures(side(), side(rank)), "spin[3]") for rank in (lambda rank: rank, swapped))
    assert same.a and same.b and other.a and other.b
    assert (same.changed, same.a.last, same.b.last) == (False, "rank 1", "rank 1")
    assert (other.changed, other.a.last, other.b.last) == (True, "rank 1", "rank 0")


def test_the_devices_of_ranks_need_not_be_the_same() -> None:
    moved = [replace(one, launch=on_the_other_device(one.launch)) for one in side()]
    assert {(one.launch.place.rank, one.launch.device) for one in moved} == {(0, 1), (1, 0)}
    found = change_in(diff_captures(side(), moved), "spin[3]")
    assert found.a and found.b and (found.a.last, found.b.last) == ("rank 1", "rank 1")


def test_a_side_of_several_captures_counts_the_launches_of_all(tmp_path: Path) -> None:
    other = [replace(one, launch=replace(one.launch, capture_folder=tmp_path)) for one in side()]
    found = change_in(diff_captures([*side(), *other], side()), "spin[3]")
    assert found.a and found.b and found.a.launches == 2 * found.b.launches


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
    assert rank_changes(diff) == []
    values = diff_json(diff)
    assert "ranks" not in values and "rank" not in values["kernels"][0]
    assert "rank 0" not in printed(diff)


def test_a_rank_of_one_side_alone_is_named(tmp_path: Path) -> None:
    a = [*side(), *(one for one in side(lambda rank: rank + 2) if one.launch.place.rank == 3)]
    diff = diff_captures(a, side())
    assert [runs.rank for runs in diff.only_a] == [3]
    (line,) = (line for line in printed(diff).splitlines() if line.startswith("only in A"))
    assert "rank 3" in line
    assert any("rank 3" in crossing for crossing in crossings(diff, 0.05, ()))


def test_json_has_the_rank_of_each_and_who_is_last() -> None:
    values = json.loads(json.dumps(diff_json(diff_captures(side(), side(swapped)))))
    assert sorted(kernel["rank"] for kernel in values["kernels"]) == [0, 1]
    (found,) = (one for one in values["ranks"] if one["scope"] == "spin[3]")
    assert (found["changed"], found["a"]["last"], found["b"]["last"]) == (True, "rank 1", "rank 0")


def test_the_page_has_a_row_for_each_rank(tmp_path: Path) -> None:
    write_diff_page(tmp_path / "ranks.html", diff_captures(side(), side(swapped)), ("a", "b"))
    page = (tmp_path / "ranks.html").read_text()
    (table,) = page.split('<table class="ranks">')[1:]
    assert table.partition("</table>")[0].count("<tr>") == 1 + 2
    assert "who comes last changed" in page
    write_diff_page(tmp_path / "one.html", diff_captures(side(lambda _: 0), side(lambda _: 0)), ("a", "b"))
    assert "ranks" not in (tmp_path / "one.html").read_text().partition("</style>")[2]
