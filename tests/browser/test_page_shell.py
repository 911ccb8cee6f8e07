"""Around the views: tabs, launches, themes, and captures that are unusual."""

from __future__ import annotations

from pathlib import Path

import pytest
from buffers import Cta, Scope, buffer_words, end, kernel_json, save_launch, save_launches, start
from playwright.sync_api import expect
from shown_page import Show
from snapshots import check

from kprof_inject.timeline.timeline import Timeline, decode_launch

TABS = ["Timeline", "Overview", "SMs", "Scopes", "Source", "TTGIR"]


def timeline_of(folder: Path, name: str = "kernel", slots: int = 8, sms: int = 1) -> Timeline:
    scopes = [Scope(name, "func", -1, (f"/src/{name}.py", 3)), Scope("wait", "marker", 0), Scope("here", "mark", 0)]
    warp = [start(0, 100), start(2, 200), end(2, 205), start(1, 300), end(0, 900), end(1, 1200)]
    words = buffer_words([Cta([warp] * 2, sm=sm) for sm in range(sms)], slots)
    return decode_launch(save_launches(folder, kernel_json(scopes, words, 2, name=name), [words])[0])


def test_tabs_are_chosen_by_click_and_key(show: Show, few_scopes: Path) -> None:
    page = show(few_scopes)
    tabs = page.page.get_by_role("tab")
    assert tabs.all_inner_texts() == TABS
    for title in TABS:
        page.page.get_by_role("tab", name=title, exact=True).click()
        expect(page.page.get_by_role("tab", selected=True)).to_have_text(title)
        expect(page.page.get_by_role("tabpanel")).to_have_count(1)
        expect(page.page.get_by_role("tabpanel")).not_to_be_empty()
    page.page.keyboard.press("ArrowRight")
    expect(page.page.get_by_role("tab", selected=True)).to_have_text("Timeline")
    page.page.keyboard.press("End")
    assert page.hash == {"tab": "ttgir"}


def test_the_address_opens_a_tab(show: Show, few_scopes: Path) -> None:
    page = show(few_scopes, fragment="#tab=overview")
    expect(page.page.get_by_role("tab", selected=True)).to_have_text("Overview")
    # It was not looked at before, and has its size only now.
    page.page.get_by_role("tab", name="Timeline").click()
    page.settle()
    assert page.draw_ms >= 0
    page.point(0.5, 51)
    assert page.tooltip().startswith("loop[0]")


def test_light_and_dark(show: Show, tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path)
    page = show(timeline)
    light = page.pixel(0.999, 400)
    page.press("t")
    dark = page.pixel(0.999, 400)
    assert min(light) > 200 and max(dark) < 60
    page.page.get_by_label("Light or dark").click()
    page.settle()
    assert page.pixel(0.999, 400) == light
    assert show(timeline, dark=True).pixel(0.999, 400) == dark


def test_several_launches(show: Show, tmp_path: Path) -> None:
    scopes = [Scope("kernel", "func")]
    words = [buffer_words([Cta([[start(0, 5), end(0, stop)]])] * count, 4) for count, stop in ((1, 900), (3, 700))]
    launches = save_launches(tmp_path, kernel_json(scopes, words[0], 1), words)
    timelines = [decode_launch(launch) for launch in launches]
    page = show(*timelines)
    chooser = page.page.get_by_label("Launch", exact=True)
    expect(chooser.locator("option")).to_have_count(2)
    assert "grid 1×1×1" in page.page.locator(".launch-title").inner_text()
    chooser.select_option(index=1)
    expect(page.page.locator(".launch-title")).to_contain_text("grid 3×1×1")
    assert page.hash == {"launch": "1"}
    page.page.get_by_role("tab", name="Timeline").click()
    assert page.search("kernel") == "1 scope"
    assert "grid 3×1×1" in show(*timelines, fragment="#launch=1").page.locator(".launch-title").inner_text()


def test_scopes_that_cross_have_a_row_of_their_own(show: Show, tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path)
    assert timeline.lanes.tolist() == [0, 1, 0]
    page = show(timeline)
    seen = set()
    for y in range(26, 80, 4):
        page.point(0.55, y)
        seen.add(page.tooltip().partition("\n")[0])
    assert {"kernel", "wait"} <= seen
    assert page.search("wait") == "2 scopes"
    page.press("Enter")
    assert "crosses" in page.panel()


def test_lost_records_are_hatched_and_told(show: Show, tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, slots=2)
    assert timeline.records_lost
    page = show(timeline)
    assert "overwritten" in page.page.locator("#notice").inner_text()
    page.point(0.02, 34)
    assert "lost records" in page.tooltip()


def test_a_cta_that_does_not_fit_into_the_page_is_told(show: Show, tmp_path: Path) -> None:
    page = show(timeline_of(tmp_path, sms=4), max_scopes=6)
    number = page.page.get_by_label("Show or hide a CTA by its number")
    number.fill("2")
    number.press("Enter")
    check("browser/missing-cta", page.panel())
    assert "the 3 CTAs of this page" in (
        page.page.get_by_role("button", name="Open in Perfetto").get_attribute("title") or ""
    )


def test_no_launch(show: Show) -> None:
    page = show()
    assert "no launch" in page.page.locator("main").inner_text()


@pytest.mark.parametrize("ctas", [[None, None], [Cta([[]])]], ids=["no CTA ran", "no records"])
def test_a_launch_without_scopes(show: Show, tmp_path: Path, ctas: list[Cta | None]) -> None:
    timeline = decode_launch(save_launch(tmp_path, [Scope("kernel", "func")], ctas, slots=4))
    page = show(timeline)
    for title in TABS:
        page.page.get_by_role("tab", name=title, exact=True).click()
    page.page.get_by_role("tab", name="Timeline").click()
    page.press("w", "f", "n")
    expect(page.page.locator("#view-timeline")).not_to_be_empty()
