"""Changes that ended waits for flags, and tasks, as the page's own modules read them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Scope
from flag_launches import SCOPES, SET, WAIT, WORK, Use, launch
from programs.child import REPO
from replacing import replace
from unpacked import unpacked

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.reader import read_capture
from kprof_inject.report.flag_notes import wait_ends_in
from kprof_inject.report.html.document import write_html
from kprof_inject.report.html.flags import PageFlags
from kprof_inject.timeline.timeline import Timeline, decode_launch

WITH_TASKS: list[Scope] = [*SCOPES[:WORK], replace(SCOPES[WORK], tags=("task", "other"))]
LATE = [
    *(Use(0, WORK, 1_000, 6_000), Use(0, SET, 5_000, 5_900, 1)),
    *(Use(1, WORK, 1_000, 29_950), Use(1, SET, 29_000, 29_900, 3)),
    *(Use(2, WAIT, 10_000, 30_500, 3), Use(2, WORK, 31_000, 33_000), Use(2, WAIT, 40_000, 40_400, 3)),
]


def made(folder: Path, uses: Sequence[Use], scopes: Sequence[Scope] = SCOPES) -> Timeline:
    return replace(launch(folder, uses, scopes=scopes).timeline, scope_count=len(uses))


def pages_of(timelines: Sequence[Timeline], folder: Path, **options: Any) -> list[dict[str, Any]]:
    reports = LaunchAnalysis.all_of(timelines)
    write_html(folder / "page.html", reports, **options)
    return unpacked(folder / "page.html")


def column(flags: dict[str, Any], name: str) -> list[int]:
    values: list[int] = np.frombuffer(base64.b64decode(flags[name]["base64"]), "<i4").tolist()
    return values


def place(page: dict[str, Any], index: int) -> tuple[str, int]:
    """Name and CTA of a scope, by its index on the page."""
    scopes = page["scopes"]
    return page["meta"]["scopes"][scopes["scope"][index]]["name"], scopes["cta"][index]


def test_a_wait_leads_to_what_ended_it(tmp_path: Path) -> None:
    (page,) = pages_of([made(tmp_path, LATE)], tmp_path)
    flags = page["sections"]["flags"]
    (wait,), (change,) = column(flags, "wait"), column(flags, "change")
    assert (place(page, wait), place(page, change)) == (("wait", 2), ("set", 1))
    assert page["scopes"]["start"][wait] == 10_000
    assert flags["scopes"] == ["set"] and flags["launches"] == []
    assert (column(flags, "launch"), column(flags, "cta"), column(flags, "scope")) == ([-1], [1], [0])


def test_a_change_that_the_page_leaves_out_is_still_named(tmp_path: Path) -> None:
    # Those of the first SMs are shown: the waiting CTA is on the first, and the others are not on the page.
    uses = [
        *(Use(0, WAIT, 10_000, 30_500, 3), Use(0, WORK, 31_000, 32_000)),
        *(Use(1, SET, 29_000, 29_900, 3), Use(2, WORK, 1_000, 2_000)),
    ]
    timeline = made(tmp_path, uses)
    whole, part = (pages_of([timeline], tmp_path, max_scopes=most)[0] for most in (4, 2))
    assert part["meta"]["shown_ctas"] == 1
    for page, is_there in ((whole, True), (part, False)):
        flags = page["sections"]["flags"]
        assert place(page, column(flags, "wait")[0]) == ("wait", 0)
        assert (column(flags, "change")[0] >= 0) == is_there
        assert (column(flags, "launch"), column(flags, "cta")) == ([-1], [1])
    # A wait that is not on the page has no row.
    others = [use._replace(cta=2 - use.cta) for use in uses]
    assert "flags" not in pages_of([made(tmp_path, others)], tmp_path, max_scopes=1)[0]["sections"]


def test_rows_count_the_scopes_of_the_ctas_on_the_page(tmp_path: Path) -> None:
    timeline = made(tmp_path, LATE)
    # CTA 1 has the first SM here, and then CTA 2.
    ctas = timeline.ctas.copy()
    ctas["sm"] = [9, 1, 2]
    (page,) = pages_of([replace(timeline, ctas=ctas)], tmp_path, max_scopes=5)
    assert page["meta"]["shown_scopes"] == 5
    flags = page["sections"]["flags"]
    assert [place(page, column(flags, name)[0]) for name in ("wait", "change")] == [("wait", 2), ("set", 1)]


def test_changes_by_another_rank_have_its_launch() -> None:
    launches = read_capture(REPO / "tests/captures/late-flags").launches
    reports = LaunchAnalysis.all_of(decode_launch(one) for one in launches if one.index in (3, 4))
    flags = PageFlags(reports)
    (ends,) = wait_ends_in(reports)
    found = {id(report.launch): flags.arrows(report, None) for report in reports}
    counts = [len(base64.b64decode(arrows.wait.base64)) // 4 if arrows else 0 for arrows in found.values()]
    assert sum(counts) == len(ends.arrows()) > 100
    for report in reports:
        arrows = found[id(report.launch)]
        if arrows is not None:
            assert {title.partition(",")[0] for title in arrows.launches} == {
                f"rank {1 - (report.launch.place.rank or 0)}"
            }


def test_a_wait_that_nothing_is_known_to_have_ended_has_no_arrow(tmp_path: Path) -> None:
    alone = [use for use in LATE if use.scope != SET]
    assert "flags" not in pages_of([made(tmp_path, alone)], tmp_path)[0]["sections"]


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
