from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from altered import report_of
from attention_capture import save_attention
from playwright.sync_api import Browser, expect, sync_playwright
from programs.child import GUARD_S
from shown_page import Show, ShownPage, open_page

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program import Report
from kprof_inject.report.html.document import MAX_SCOPES, write_html
from kprof_inject.timeline.timeline import Timeline, decode_launch

_FEW_SCOPES = 30_000
# The first draws as the others do, without their windows: that takes half the time.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Nothing of the browser's own talks to a network, and software draws, as on a machine without a screen.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def chromium() -> str:
    """Its executable. Without one the test is skipped; where ``KPROF_BROWSER`` is ``required``, as in CI, it fails."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    reason = "no Chromium on PATH (Debian: apt-get install chromium)"
    if os.environ.get("KPROF_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    expect.set_options(timeout=1e3 * GUARD_S)
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Show]:
    """Opens a page that is there, or of timelines. At the test's end nothing may have gone wrong in any."""
    shown: list[ShownPage] = []

    def opened(*what: Path | Timeline, max_scopes: int = MAX_SCOPES, **options: Any) -> ShownPage:
        path = tmp_path / f"page-{len(shown)}.html"
        report = Report.of(one for one in what if isinstance(one, Timeline))
        if what and isinstance(what[0], Path):
            path = what[0]
        else:
            write_html(path, report, max_scopes=max_scopes)
        shown.append(open_page(browser, path, **options))
        return shown[-1]

    yield opened
    for page in shown:
        assert page.errors == []
        assert page.requests == []
        page.page.context.close()


@pytest.fixture(scope="session")
def few_scopes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of an attention kernel with a CTA on each of 31 SMs."""
    folder = tmp_path_factory.mktemp("few")
    write_html(folder / "page.html", report_of(LaunchAnalysis.of(decode_launch(save_attention(folder, _FEW_SCOPES)))))
    return folder / "page.html"
