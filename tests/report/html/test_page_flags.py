"""Tasks, as the page's own modules read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from buffers import Scope
from flag_launches import SCOPES, SET, WAIT, WORK, Use, launch
from replacing import replace
from unpacked import unpacked

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.report.html.document import write_html
from kprof_inject.timeline.timeline import Timeline

WITH_TASKS: list[Scope] = [*SCOPES[:WORK], replace(SCOPES[WORK], tags=("task", "other"))]
LATE = [
    *(Use(0, WORK, 1_000, 6_000), Use(0, SET, 5_000, 5_900, 1)),
    *(Use(1, WORK, 1_000, 29_950), Use(1, SET, 29_000, 29_900, 3)),
    *(Use(2, WAIT, 10_000, 30_500, 3), Use(2, WORK, 31_000, 33_000), Use(2, WAIT, 40_000, 40_400, 3)),
]


def made(folder: Path, uses: Sequence[Use], scopes: Sequence[Scope] = SCOPES) -> Timeline:
    return replace(launch(folder, uses, scopes=scopes).timeline, scope_count=len(uses))


def pages_of(timelines: Sequence[Timeline], folder: Path) -> list[dict[str, Any]]:
    reports = LaunchAnalysis.all_of(timelines)
    write_html(folder / "page.html", reports)
    return unpacked(folder / "page.html")


def test_tasks_are_those_of_the_terminal(tmp_path: Path) -> None:
    uses = [use._replace(address=use.cta + 5, value=0) if use.scope == WORK else use for use in LATE]
    (page,) = pages_of([made(tmp_path, uses, WITH_TASKS)], tmp_path)
    (table,) = page["sections"]["tasks"]
    assert (table["scope"], table["left_out"]) == (WORK, 0)
    rows = {row["task"]: row for row in table["rows"]}
    assert [row["task"] for row in table["rows"]] == [6, 5, 7]
    assert (rows[6]["runs"], rows[6]["total_ns"], rows[6]["sms"]) == (1, 28_950, 1)
    assert rows[6]["share"] == pytest.approx(28_950 / (28_950 + 5_000 + 2_000))


def test_more_tasks_than_anybody_reads_are_left_out(tmp_path: Path) -> None:
    uses = [Use(0, WORK, 1_000 * task, 1_000 * task + 100 + task, 0, task) for task in range(1, 80)]
    (page,) = pages_of([made(tmp_path, uses, WITH_TASKS)], tmp_path)
    (table,) = page["sections"]["tasks"]
    assert (len(table["rows"]), table["left_out"]) == (64, 15)
    assert table["rows"][0]["task"] == 79
