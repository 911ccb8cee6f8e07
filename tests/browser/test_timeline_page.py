"""The timeline of chosen CTAs in a browser: choosing, zooming, moving, pointing, searching, and Perfetto."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from async_launches import in_order
from playwright.sync_api import Browser, Route, expect
from shown_page import Show, ShownPage, open_page

# Heights below the ruler: the CTA's bar, and each level of its first warp.
CTA_Y = 11
LEVEL = 17
FUNC_Y, LOOP_Y, ITER_Y, PHASE_Y = (24 + 10 + LEVEL * level for level in range(4))
WARP = 4 * LEVEL + 6


@pytest.fixture
def page(show: Show, few_scopes: Path) -> ShownPage:
    return show(few_scopes)


def range_ns(page: ShownPage) -> list[float]:
    """What the timeline shows, by its own words."""
    sizes = {"ns": 1, "µs": 1e3, "ms": 1e6}
    texts = page.range_text.replace("−", "-").split(" to ")
    return [float(number) * sizes[unit] for number, unit in (text.split() for text in texts)]


def length_ns(page: ShownPage) -> float:
    begin, end = range_ns(page)
    return end - begin


def pressed(page: ShownPage) -> list[str]:
    return page.page.locator(".bar-group [aria-pressed=true]").all_inner_texts()


def names(page: ShownPage) -> str:
    """The CTA below the pointer at the top, by its tooltip."""
    page.point(0.2, CTA_Y)
    return page.tooltip().partition("\n")[0]


def test_it_opens_on_the_median_cta_and_shows_others_below(page: ShownPage) -> None:
    buttons = page.page.locator(".bar-group [aria-pressed]")
    assert {name.rsplit(" ", 1)[0] for name in buttons.all_inner_texts()} <= {
        *("median", "longest", "first", "last", "longest, last", "median, first", "median, last")
    }
    (median,) = pressed(page)
    assert names(page) == f"CTA {median.split()[-1]}"
    buttons.nth(1).click()
    assert len(pressed(page)) == 2
    other = buttons.nth(1).inner_text().split()[-1]
    assert page.hash == {"ctas": f"{median.split()[-1]},{other}"}
    buttons.nth(0).click()
    assert names(page) == f"CTA {other}"
    buttons.nth(1).click()
    assert names(page) == f"CTA {other}", "one stays"


def test_a_cta_is_shown_by_its_number(page: ShownPage) -> None:
    number = page.page.get_by_label("Show or hide a CTA by its number")
    number.fill("7")
    number.press("Enter")
    page.page.locator(".timeline-room").focus()
    page.press("End")
    page.point(0.2, page.canvas.bounding_box()["height"] - 24 - 4 * WARP - 12)  # type: ignore[index]
    assert page.tooltip().startswith("CTA 7\n")
    number.fill("5000")
    number.press("Enter")
    assert page.panel() == "CTA 5000 was not recorded."


def test_keys_zoom_and_move_in_time_and_do_nothing_while_a_word_is_typed(page: ShownPage) -> None:
    whole = length_ns(page)
    for closer, wider in (("w", "s"), ("+", "-")):
        page.press(closer, closer, closer)
        near = length_ns(page)
        page.press(wider)
        assert near < length_ns(page) < whole
    for later, earlier in (("d", "a"), ("ArrowRight", "ArrowLeft")):
        shown = range_ns(page)
        page.press(later)
        assert range_ns(page)[0] > shown[0]
        page.press(earlier)
        assert range_ns(page) == shown
    page.press("0", "?")
    assert length_ns(page) == whole
    assert page.page.locator("dialog").is_visible()
    page.press("Escape")
    page.page.locator(".search-input").press_sequentially("wwssdd?t")
    assert length_ns(page) == whole
    assert not page.page.locator("dialog").is_visible()


def test_the_wheel_scrolls_and_zooms_with_ctrl_and_over_the_ruler(page: ShownPage) -> None:
    whole = length_ns(page)
    page.page.set_viewport_size({"width": 1280, "height": 420})
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
    nearer = length_ns(page)
    assert nearer < near
    page.point(0.5, 100)
    page.page.mouse.wheel(0, 300)
    expect(page.page.locator(".timeline-room")).not_to_have_js_property("scrollTop", 0)
    assert length_ns(page) == nearer


def test_dragging_moves_in_time(page: ShownPage) -> None:
    page.press("w", "w", "w")
    shown = range_ns(page)
    page.page.mouse.move(*page.at(0.6, 200))
    page.page.mouse.down()
    page.page.mouse.move(*page.at(0.3, 200), steps=4)
    page.page.mouse.up()
    page.settle()
    moved = range_ns(page)
    assert moved[0] > shown[0]
    assert moved[1] - moved[0] == pytest.approx(shown[1] - shown[0], rel=1e-3)


def test_the_tooltip_tells_of_the_scope(page: ShownPage) -> None:
    page.point(0.5, LOOP_Y)
    lines = page.tooltip().splitlines()
    assert lines[:3] == ["loop[0]", "loop", "attention.py:41"]
    facts = dict(zip(lines[3::2], lines[4::2], strict=True))
    assert {"duration", "between iterations", "begins", "where"} == set(facts)
    assert facts["where"].endswith("warp 0")
    page.point(0.5, ITER_Y)
    assert "iteration" in page.tooltip()
    page.page.mouse.move(5, 5)
    assert page.tooltip() == ""


def test_a_click_chooses_a_scope_and_dims_the_others(page: ShownPage) -> None:
    # Inside the bars, at their upper edge, where no label is.
    before = [page.pixel(0.4, y - 5) for y in (FUNC_Y, LOOP_Y + WARP)]
    page.click(0.5, LOOP_Y)
    after = [page.pixel(0.4, y - 5) for y in (FUNC_Y, LOOP_Y + WARP)]
    assert (after[0] != before[0], after[1]) == (True, before[1]), "only the loops stand out"
    assert page.panel().startswith("loop[0]")
    expect(page.page.locator("#view-timeline .scope-list [aria-current=true]")).to_contain_text("loop[0]")
    page.press("Escape")
    assert page.pixel(0.4, FUNC_Y - 5) == before[0]


def test_f_fits_the_chosen_scope(page: ShownPage) -> None:
    whole = length_ns(page)
    page.click(0.5, ITER_Y)
    page.press("f")
    assert "iter[0]" in page.panel()
    assert length_ns(page) < 4000
    page.press("f")
    assert length_ns(page) == whole
    page.page.mouse.dblclick(*page.at(0.5, ITER_Y))
    page.settle()
    assert length_ns(page) < 4000


def test_a_search_is_walked_through(page: ShownPage) -> None:
    count = page.page.locator(".search-count")
    assert page.search("qk") == "192 scopes"
    page.press("Enter")
    expect(count).to_have_text("1 of 192")
    assert "warp 0" in page.panel()
    page.press("Shift+Enter")
    expect(count).to_have_text("192 of 192")
    assert "warp 3" in page.panel()
    page.page.locator("#view-timeline .timeline-room").focus()
    page.press("n")
    expect(count).to_have_text("1 of 192")
    page.press("/", "Escape")
    expect(count).to_have_text("")
    assert page.search("no such scope") == "nothing found"


def test_the_address_brings_the_view_back(page: ShownPage, show: Show, few_scopes: Path) -> None:
    page.page.locator(".bar-group [aria-pressed]").nth(1).click()
    page.press("w", "w", "d")
    state = page.hash
    again = show(few_scopes, fragment="#" + "&".join(f"{name}={value}" for name, value in state.items()))
    assert set(state) == {"ctas", "from", "to"}
    assert (again.range_text, pressed(again)) == (page.range_text, pressed(page))


def test_what_was_in_flight_stands_below_the_warps(show: Show, tmp_path: Path) -> None:
    page = show(in_order(tmp_path))
    page.point(0.15, CTA_Y + 13 + 2 * (LEVEL + 6) + 10)
    lines = page.tooltip().splitlines()
    assert lines[0] == "copies in flight"
    facts = dict(zip(lines[1::2], lines[2::2], strict=True))
    assert facts["in flight"] == "2.600 µs"
    assert facts["its wait"] == "blocked for 500 ns"
    assert facts["issued by"] == "ttg.async_commit_group, warp 0"


UI = """<script>
addEventListener("message", ({ data, source }) => {
  if (data === "PING") source.postMessage("PONG", "*");
  else document.title = new TextDecoder().decode(data.perfetto.buffer);
});
</script>"""


def test_perfetto_gets_the_ctas_of_the_page(browser: Browser, few_scopes: Path) -> None:
    shown = open_page(browser, few_scopes)

    def answer(route: Route) -> None:
        route.fulfill(body=UI, content_type="text/html")

    shown.page.context.route("https://ui.perfetto.dev/**", answer)
    with shown.page.context.expect_page() as opened:
        shown.page.get_by_role("button", name="Open in Perfetto").click()
    expect(opened.value).not_to_have_title("")
    events = json.loads(opened.value.title())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["name"] for event in slices} >= {"attention", "loop[0]", "iter[0]", "softmax"}
    tracks = {(event["pid"], event["tid"]) for event in slices}
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {
        f"warp {n}" for n in range(4)
    }
    assert len(tracks) == 4 * len({pid for pid, _ in tracks})
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in slices)
    shown.page.context.close()
