"""What is said of launches that lack something."""

from __future__ import annotations

from pathlib import Path

import pytest
from buffers import Cta, Scope, end, save_launch, start
from replacing import replace
from snapshots import check

from kprof_inject.cli.capture_lines import loss_lines
from kprof_inject.timeline.timeline import Timeline, decode_launch

FUNC = [start(0, 100), end(0, 900)]


@pytest.fixture
def whole(tmp_path: Path) -> Timeline:
    return decode_launch(save_launch(tmp_path, [Scope("func")], [Cta([FUNC])], slots=4))


def in_process(timeline: Timeline, rank: int) -> Timeline:
    launch = timeline.launch
    return replace(timeline, launch=replace(launch, process=replace(launch.process, rank=rank, pid=rank)))


def test_of_what_is_whole_nothing_is_said(whole: Timeline) -> None:
    assert list(loss_lines([whole, whole])) == []


def test_a_launch_has_one_line_for_all_that_it_lacks(whole: Timeline) -> None:
    lacking = replace(
        whole,
        records_written=100,
        records_lost=60,
        open_starts=whole.open_starts + 2,
        stray_ends=whole.stray_ends + 1,
        records_damaged=1,
        ctas_never_ran=4,
        ctas_damaged=1,
    )
    (line,) = loss_lines([whole, lacking])
    check("cli/loss_lines", line, "one launch")


def test_of_several_processes_each_is_named(whole: Timeline) -> None:
    ranks = [in_process(replace(whole, ctas_never_ran=rank), rank) for rank in range(3)]
    check("cli/loss_lines", "\n".join(loss_lines(ranks)), "several processes")


def test_of_very_many_launches_some_are_named(whole: Timeline) -> None:
    lacking = replace(whole, ctas_never_ran=1)
    lines = list(loss_lines([lacking] * 50))
    assert len(lines) == 21
    check("cli/loss_lines", lines[-1], "very many launches")
    assert len(list(loss_lines([lacking] * 20))) == 20
