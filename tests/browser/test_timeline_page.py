"""The timeline in a browser: zooming, moving, pointing, choosing, searching."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_launches import in_order
from playwright.sync_api import expect
from shown_page import Show, ShownPage

# Where rows stand at first: the first SM, its CTA and its warps are open. In CSS pixels below the ruler.
SM_ROW, CTA_ROW, WARP_ROW = 10, 31, 42
LEVEL = 17
FUNC_Y, LOOP_Y, ITER_Y, PHASE_Y = (WARP_ROW + 10 + LEVEL * level for level in range(4))


@pytest.fixture
def page(show: Show, few_scopes: Path) -> ShownPage:
    return show(few_scopes)


def length_ns(page: ShownPage) -> float:
    """What the timeline shows, by its own words."""
    number, unit = page.range_text.rpartition("(")[2].rstrip(")").split()
    return float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6}[unit]


def begin_text(page: ShownPage) -> str:
    return page.range_text.partition(" to ")[0]


@pytest.mark.parametrize(("closer", "wider"), [("w", "s"), ("+", "-")])
def test_keys_zoom(page: ShownPage, closer: str, wider: str) -> None:
    whole = length_ns(page)
    page.press(closer, closer)
    near = length_ns(page)
    page.press(wider)
    assert near < length_ns(page) < whole
    page.press("0")
    assert length_ns(page) == whole


def test_the_wheel_zooms_with_ctrl_and_over_the_ruler(page: ShownPage) -> None:
    whole = length_ns(page)
    page.point(0.5, 100)
    page.page.keyboard.down("Control")
    page.page.mouse.wheel(0, -300)
    page.page.keyboard.up("Control")
    page.settle()
    near = length_ns(page)
    assert near < whole
    page.point(0.5, -10)
    page.page.mouse.wheel(0, -300)
    page.settle()
    assert length_ns(page) < near


def test_the_wheel_scrolls(page: ShownPage) -> None:
    page.point(0.5, FUNC_Y)
    assert page.tooltip().startswith("attention")
    page.page.mouse.wheel(0, 5000)
    page.settle()
    assert not page.tooltip().startswith("attention")


@pytest.mark.parametrize(("later", "earlier"), [("d", "a"), ("ArrowRight", "ArrowLeft")])
def test_keys_move_in_time(page: ShownPage, later: str, earlier: str) -> None:
    page.press("w", "w", "w")
    begin = begin_text(page)
    page.press(later)
    assert begin_text(page) != begin
    page.press(earlier)
    assert begin_text(page) == begin


def test_dragging_moves_in_time(page: ShownPage) -> None:
    page.press("w", "w", "w")
    begin, length = begin_text(page), length_ns(page)
    page.page.mouse.move(*page.at(0.6, 300))
    page.page.mouse.down()
    page.page.mouse.move(*page.at(0.3, 300), steps=4)
    page.page.mouse.up()
    page.settle()
    assert begin_text(page) != begin
    assert length_ns(page) == pytest.approx(length, rel=1e-3)


def test_dragging_on_the_ruler_zooms_into_the_window(page: ShownPage) -> None:
    whole = length_ns(page)
    page.page.mouse.move(*page.at(0.2, -10))
    page.page.mouse.down()
    page.page.mouse.move(*page.at(0.45, -10), steps=4)
    page.page.mouse.up()
    page.settle()
    assert length_ns(page) == pytest.approx(whole / 4, rel=0.02)


def test_a_range_has_totals_until_it_is_cleared(page: ShownPage) -> None:
    whole = length_ns(page)
    page.page.keyboard.down("Shift")
    page.page.mouse.move(*page.at(0.25, 300))
    page.page.mouse.down()
    page.page.mouse.move(*page.at(0.5, 300), steps=4)
    page.page.mouse.up()
    page.page.keyboard.up("Shift")
    totals = page.page.locator(".range-totals")
    expect(totals).to_be_visible()
    assert length_ns(page) == whole, "selecting moves nothing"
    rows = [row.inner_text().split("\t") for row in totals.locator("tr").all()]
    assert rows[0] == ["scope", "count", "total", "share"]
    shares = {name.strip(): float(share.split()[0]) for name, _, _, share in rows[1:] if share}
    assert 90 < shares["attention"] <= 100 and shares["loop[0]"] <= shares["attention"]
    legend = page.page.locator(".side-legend")
    expect(legend).to_be_hidden()
    totals.get_by_role("button", name="softmax").click()
    expect(page.page.locator(".side-panel .chosen")).to_contain_text("All of softmax")
    page.page.get_by_role("button", name="Zoom in", exact=True).click()
    page.settle()
    assert length_ns(page) == pytest.approx(whole / 4, rel=0.02)
    page.press("Escape")
    expect(totals).to_be_hidden()
    expect(legend).to_be_visible()
    page.press("m")
    expect(totals).to_be_visible()


def test_the_tooltip_tells_of_the_scope(page: ShownPage) -> None:
    page.point(0.5, LOOP_Y)
    lines = page.tooltip().splitlines()
    assert lines[:3] == ["loop[0]", "loop", "attention.py:41"]
    facts = dict(zip(lines[3::2], lines[4::2], strict=True))
    assert {"duration", "between iterations", "as recorded", "begins at", "where"} == set(facts)
    assert facts["where"] == "SM 0, CTA 0, warp 0"
    assert facts["as recorded"].endswith(" cycles")


def test_the_tooltip_of_an_iteration_has_its_number(page: ShownPage) -> None:
    page.point(0.5, ITER_Y)
    assert "iteration" in page.tooltip()


def test_the_tooltip_goes_with_the_pointer(page: ShownPage) -> None:
    page.point(0.5, LOOP_Y)
    assert page.tooltip()
    page.page.mouse.move(5, 5)
    assert page.tooltip() == ""


def test_a_click_chooses_a_scope_and_dims_the_others(page: ShownPage) -> None:
    # Inside the bars, at their left edge, where no label is.
    before = [page.pixel(0.5, y - 5) for y in (FUNC_Y, LOOP_Y)]
    page.click(0.5, LOOP_Y)
    after = [page.pixel(0.5, y - 5) for y in (FUNC_Y, LOOP_Y + 3 * LEVEL + 22)]
    assert after[0] != before[0], "the function is dim"
    assert page.panel().startswith("loop[0]")
    assert "All of loop[0]" in page.panel()
    page.press("Escape")
    assert page.pixel(0.5, FUNC_Y - 5) == before[0]


def test_f_fits_the_chosen_scope(page: ShownPage) -> None:
    page.click(0.5, ITER_Y)
    page.press("f")
    assert "iter[0]" in page.panel()
    assert length_ns(page) < 4000
    page.press("f")
    assert length_ns(page) > 50_000


def test_a_double_click_zooms_to_the_scope(page: ShownPage) -> None:
    page.page.mouse.dblclick(*page.at(0.5, ITER_Y))
    page.settle()
    assert length_ns(page) < 4000


def test_sms_open_and_close(page: ShownPage) -> None:
    page.point(0.5, LOOP_Y)
    assert page.tooltip().startswith("loop[0]")
    page.gutter_click(SM_ROW)
    page.point(0.5, LOOP_Y + 1)
    assert page.tooltip().startswith("CTA")
    page.gutter_click(SM_ROW)
    page.point(0.5, LOOP_Y)
    assert page.tooltip().startswith("loop[0]")


def test_a_search_is_walked_through(page: ShownPage) -> None:
    count = page.page.locator(".search-count")
    assert page.search("qk cta:5 warp:3") == "48 scopes"
    page.press("Enter")
    expect(count).to_have_text("1 of 48")
    assert "SM 5, CTA 5, warp 3" in page.panel()
    page.press("Shift+Enter")
    expect(count).to_have_text("48 of 48")
    page.page.locator("canvas.minimap").click()
    page.press("n")
    expect(count).to_have_text("1 of 48")
    page.press("/", "Escape")
    expect(count).to_have_text("")


def test_a_search_for_nothing_that_is_there(page: ShownPage) -> None:
    assert page.search("no such scope") == "nothing found"
    assert page.page.get_by_label("Next match (n)").is_disabled()


def test_a_kind_of_the_legend_stands_out(page: ShownPage) -> None:
    row = page.page.locator(".legend-row", has_text="softmax")
    row.click()
    expect(row).to_have_attribute("aria-pressed", "true")
    assert "All of softmax" in page.panel()
    assert page.panel().splitlines()[-13:-1:2] == ["count", "mean", "min", "p50", "p99", "max"]
    row.click()
    expect(row).to_have_attribute("aria-pressed", "false")


def test_the_address_brings_the_view_back(page: ShownPage, show: Show, few_scopes: Path) -> None:
    page.press("w", "w", "d")
    state = page.hash
    again = show(few_scopes, fragment="#" + "&".join(f"{name}={value}" for name, value in state.items()))
    assert set(state) == {"from", "to"}
    assert again.range_text == page.range_text


def test_keys_do_nothing_while_a_word_is_typed(page: ShownPage) -> None:
    whole = length_ns(page)
    page.page.locator(".search-input").press_sequentially("wwssdd?t")
    assert length_ns(page) == whole
    assert not page.page.locator("dialog").is_visible()


def test_the_list_of_keys(page: ShownPage) -> None:
    page.press("?")
    assert page.page.locator("dialog").is_visible()
    page.press("Escape")
    assert not page.page.locator("dialog").is_visible()


def test_what_was_in_flight_stands_below_the_warps(show: Show, tmp_path: Path) -> None:
    page = show(in_order(tmp_path))
    first_lane = WARP_ROW + 2 * (LEVEL + 5) + 10
    page.point(0.15, first_lane)
    lines = page.tooltip().splitlines()
    assert lines[0] == "copies in flight"
    facts = dict(zip(lines[1::2], lines[2::2], strict=True))
    assert facts["in flight"] == "2.600 µs"
    assert facts["its wait"] == "blocked for 500 ns"
    page.click(0.15, first_lane)
    assert page.panel().startswith("ttg.async_commit_group")
