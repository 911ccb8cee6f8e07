"""The rank of each launch, and of each kernel's longest launches, where a capture has several."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import median

from altered import report_of
from programs.child import REPO
from replacing import replace
from screens import WIDE, lines_shown

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.reader import read_capture
from kprof_inject.report.terminal.screens import print_answers
from kprof_inject.timeline.timeline import decode_launch

CAPTURE = REPO / "tests/captures/late-rank"


def reports(rank: Callable[[int], int | None] = lambda rank: rank, copy: Path | None = None) -> list[LaunchAnalysis]:
    """Launches of two ranks; in a copy of the capture, the kernel has the name of its folder."""
    if copy is not None:
        shutil.copytree(CAPTURE, copy, dirs_exist_ok=True)
    found = []
    for one in read_capture(copy or CAPTURE).launches:
        if one.index <= 4:
            kernel = replace(one.kernel, name=copy.name, variant=copy.name) if copy else one.kernel
            process = replace(one.process, rank=rank(one.process.rank or 0))
            found.append(LaunchAnalysis.of(decode_launch(replace(one, process=process, kernel=kernel))))
    return found


def screen(chosen: list[LaunchAnalysis]) -> list[str]:
    return lines_shown(lambda console: print_answers(report_of(*chosen), console), WIDE)


def row_after(lines: list[str], heading: str) -> tuple[list[str], list[str]]:
    at = next(at for at, line in enumerate(lines) if line.startswith(heading))
    return lines[at].split(), lines[at + 1].split()


def test_launches_of_several_ranks_have_theirs() -> None:
    chosen = reports()
    headings, row = row_after(screen(chosen), "launch ")
    assert headings[:3] == ["launch", "rank", "span"]
    longest = max(chosen, key=lambda report: report.summary.duration_ns)
    assert row[:2] == [f"#{longest.launch.index}", str(longest.launch.place.rank)]


def test_launches_of_one_rank_have_the_column_that_they_had() -> None:
    for rank in (0, None):
        headings, _ = row_after(screen(reports(lambda _, rank=rank: rank)), "launch ")  # type: ignore[misc]
        assert headings[:3] == ["launch", "where", "span"]


def test_a_rank_with_two_devices_has_both_columns() -> None:
    chosen = reports()
    first = next(report for report in chosen if report.launch.place.rank == 0)
    timeline = replace(first.timeline, launch=replace(first.timeline.launch, device=3))
    headings, _ = row_after(screen([*chosen, LaunchAnalysis.of(timeline)]), "launch ")
    assert headings[:4] == ["launch", "rank", "where", "span"]


def test_a_process_without_a_rank_has_none() -> None:
    found = [report for rank in (0, 1) for report in reports(lambda one, rank=rank: rank + one) if rank]  # type: ignore[misc]
    alone = reports(lambda one: None if one else 0)
    headings, _ = row_after(screen([*found, *alone]), "launch ")
    assert headings[:3] == ["launch", "rank", "where"]
    rows = [line.split() for line in screen([*found, *alone]) if line.startswith("    #")]
    assert {row[1] for row in rows} == {"-", "0", "1", "2"}


def test_each_kernel_has_the_rank_on_which_it_takes_longest(tmp_path: Path) -> None:
    several = [*reports(copy=tmp_path / "one"), *reports(copy=tmp_path / "two")]
    headings, row = row_after(screen(several), "kernel ")
    assert headings[2:6] == ["span", "longest", "on", "rank"]
    own = [report for report in several if report.launch.kernel.name == row[0]]
    times_ns = {
        rank: median(report.summary.duration_ns for report in own if report.launch.place.rank == rank)
        for rank in (0, 1)
    }
    assert f"{max(times_ns, key=times_ns.__getitem__)}:" in row
    alone = [*reports(lambda _: 0, tmp_path / "one"), *reports(lambda _: 0, tmp_path / "two")]
    assert "rank" not in row_after(screen(alone), "kernel ")[0]
