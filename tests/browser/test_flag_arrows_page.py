"""Arrows to waits for flags, and tables of tasks, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from buffers import Scope
from flag_launches import LENGTH_NS, SCOPES, SET, WAIT, WORK, Use, launch
from programs.child import REPO
from replacing import replace
from shown_page import Show, ShownPage

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import decode_launch

WITH_TASKS: list[Scope] = [*SCOPES[:WORK], replace(SCOPES[WORK], tags=("task", "other"))]
# The waiting CTA is on the first SM. It waits for the work of the second one's.
USES = [
    *(Use(0, WAIT, 100_000, 700_000, 3), Use(0, WORK, 750_000, 900_000, 0, 8)),
    *(Use(1, WORK, 100_000, 690_000, 0, 7), Use(1, SET, 695_000, 698_000, 3)),
]
# All rows are open: each SM's has 21 pixels, its CTA's 21 and its warp's one level, and some room.
ROW, FIRST_WARP = 21, 42
WAIT_Y = FIRST_WARP + 10
# Of the launch, as `timeline/range.js` has it.
ROOM = 0.01
MIDDLE_Y = FIRST_WARP + 22 + ROW


@pytest.fixture
def page(show: Show, tmp_path: Path) -> ShownPage:
    timeline = replace(launch(tmp_path, USES, scopes=WITH_TASKS).timeline, scope_count=len(USES))
    shown = show(timeline)
    shown.page.locator("#tabs").get_by_role("tab", name="Timeline").click()
    shown.settle()
    return shown


def share(ns: int) -> float:
    """Return the place of a time in the width of the rows, which have some room before and after the launch."""
    return (ns / LENGTH_NS + ROOM) / (1 + 2 * ROOM)


def test_an_arrow_leads_to_the_wait_and_its_facts_say_who_ended_it(page: ShownPage) -> None:
    page.click(share(400_000), WAIT_Y)
    assert "ended by\nCTA 1, set" in page.panel()
    page.page.get_by_role("button", name="What ended it").click()
    page.settle()
    assert "ends waits of\nCTA 0" in page.panel()


def test_the_arrow_of_a_chosen_wait_is_bold(page: ShownPage) -> None:
    x = share(699_000)
    places = [(x + shift / 2_000, MIDDLE_Y) for shift in range(-6, 7)]
    plain = {page.pixel(*place) for place in places}
    page.click(share(400_000), WAIT_Y)
    page.point(0.99, WAIT_Y)
    assert {page.pixel(*place) for place in places} != plain


def test_a_change_by_another_rank_is_named(show: Show) -> None:
    launches = read_capture(REPO / "tests/captures/late-flags").launches
    shown = show(*(decode_launch(one) for one in launches if one.index == 4))
    shown.page.locator("#tabs").get_by_role("tab", name="Timeline").click()
    shown.settle()
    shown.search("spin[1]")
    shown.press("Escape")
    shown.click(0.5, FIRST_WARP + 10 + 17)
    panel = shown.panel()
    assert "ended by\nrank 1, device 1: all_reduce_kernel launch 4, grid 64x1x1, CTA " in panel
    assert shown.page.get_by_role("button", name="What ended it").count() == 0


def test_the_tasks_of_a_scope_lead_to_their_runs(page: ShownPage) -> None:
    page.page.locator("#tabs").get_by_role("tab", name="Scopes").click()
    page.page.locator(".scope-list").get_by_role("button", name="work").click()
    (table,) = page.page.locator(".task-table").all()
    rows = [row.split("\t") for row in table.locator("tbody tr").all_inner_texts()]
    assert [row[:2] for row in rows] == [["7", "1"], ["8", "1"]]
    # The card of the other tag is as it was.
    titles = page.page.locator(".card h3").all_inner_texts()
    assert "Tasks" in titles and "By task" not in titles and "By other" in titles
    table.get_by_role("button", name="8", exact=True).click()
    page.settle()
    assert "task\n8\n" in page.panel()
