"""What limits the launch, over all views."""

from __future__ import annotations

from pathlib import Path

from buffers import Cta, Scope, end, save_launch, start
from playwright.sync_api import expect
from shown_page import Show

from kprof_inject.timeline.timeline import Timeline, decode_launch


def launched(folder: Path, loop_begin_cycles: int) -> Timeline:
    """Four CTAs whose loop ends at cycle 9,000."""
    warp = [start(0, 100), start(1, loop_begin_cycles), end(1, 9_000), end(0, 9_100)]
    scopes = [Scope("kernel", "func", -1), Scope("loop[0]", "loop", 0)]
    return decode_launch(save_launch(folder, scopes, [Cta([warp], sm=sm) for sm in range(4)], slots=8))


def test_it_stands_over_the_timeline_and_leads_to_all(show: Show, tmp_path: Path) -> None:
    page = show(launched(tmp_path, 6_000)).page
    strip = page.locator("#first-finding")
    expect(strip).to_contain_text("slow prologue")
    strip.get_by_role("button").click()
    expect(page.get_by_role("tab", selected=True)).to_have_text("Overview")
    assert page.locator(".finding-says").first.inner_text() in strip.inner_text()


def test_where_nothing_was_found_it_is_not_there(show: Show, tmp_path: Path) -> None:
    page = show(launched(tmp_path, 300)).page
    expect(page.locator("#first-finding")).to_be_hidden()
