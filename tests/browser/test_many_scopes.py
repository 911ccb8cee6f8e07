"""Half a million scopes: the page is small, loads at once, and each frame is drawn in no time.

The times are printed (``pytest -s``); that they are small hangs on the machine, so that no more is asserted than what
holds on any."""

from __future__ import annotations

from pathlib import Path

from shown_page import Show

_SLOW = 10
"""How many times slower than wanted a machine may be that has other things to do."""


def test_half_a_million_scopes_load_and_draw(show: Show, many_scopes: Path) -> None:
    size = many_scopes.stat().st_size
    page = show(many_scopes)
    print(f"\n{size / 1e6:.1f} MB, first picture after {page.ready_ms:.0f} ms, drawn in {page.draw_ms} ms")
    assert size < 12_500_000
    assert page.ready_ms < _SLOW * 3000


def test_frames_are_drawn_in_no_time(show: Show, many_scopes: Path) -> None:
    page = show(many_scopes)
    page.press("e")
    times = []
    page.point(0.3, 200)
    for key in [*"wwwwwwwwddddssssssss", *["PageDown"] * 5]:
        page.press(key)
        times.append(page.draw_ms)
    print(f"\nframes: {sorted(times)[len(times) // 2]} ms on the middle, {max(times)} ms at most")
    assert max(times) < _SLOW * 16


def test_a_search_finds_all_of_a_kind(show: Show, many_scopes: Path) -> None:
    page = show(many_scopes)
    title = page.page.locator(".legend-row", has_text="softmax").get_attribute("title") or ""
    kind_count = title.rpartition(", ")[2].removesuffix(" times in this page")
    assert page.search("softmax") == f"{kind_count} scopes"
    assert page.search("softmax cta:1 warp:2") == "48 scopes"
