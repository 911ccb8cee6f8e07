"""The page of a comparison, with names as long as compilers make them."""

from __future__ import annotations

from pathlib import Path

import pytest
from buffers import Cta, Scope, buffer_words, end, kernel_json, save_launches, start
from playwright.sync_api import Browser

from kprof_inject.analysis.comparison.verdicts import diff_captures
from kprof_inject.report.diff.page import write_diff_page
from kprof_inject.timeline.timeline import decode_launch

KERNEL = "triton_per_fused_add_native_layer_norm_backward_view_" * 4
SCOPE = "at::native::elementwise_kernel<" * 8


@pytest.mark.parametrize("width", [1280, 1920])
def test_long_names_leave_the_figures_in_sight(browser: Browser, tmp_path: Path, width: int) -> None:
    scopes = [Scope(SCOPE, "func", -1, ("/src/" + "very_long_" * 12 + "name.py", 3)), Scope("loop", "loop", 0)]
    words = buffer_words([Cta([[start(0, 5), start(1, 90), end(1, 800), end(0, 900)]])], slots=8)
    kernel = kernel_json(scopes, words, 1, name=KERNEL)
    sides = [[decode_launch(launch) for launch in save_launches(tmp_path / side, kernel, [words])] for side in "ab"]
    write_diff_page(tmp_path / "diff.html", diff_captures(*sides), ("a", "b"))
    page = browser.new_page(viewport={"width": width, "height": 900})
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto((tmp_path / "diff.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    change = page.locator("tr.scope td").nth(3).bounding_box()
    assert change is not None and change["x"] + change["width"] <= width
    # The page's own policy lets its style sheet in, the rooms for the depths of scopes too.
    rooms = page.locator("tr.scope td.scope").evaluate_all(
        "cells => cells.map(cell => getComputedStyle(cell).paddingLeft)"
    )
    assert rooms == ["8px", "27.2px"]
    assert refused == []
    page.close()
