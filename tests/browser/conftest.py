from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from altered import report_of
from attention_capture import save_attention
from chromium import FLAGS, chromium
from playwright.sync_api import Browser, expect, sync_playwright
from programs.child import GUARD_S
from shown_page import Show, ShownPage, open_page

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program import Report
from kprof_inject.report.html.document import MAX_SCOPES, write_html
from kprof_inject.timeline.timeline import Timeline, decode_launch

_FEW_SCOPES = 30_000


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
    return _attention_page(tmp_path_factory.mktemp("few"), _FEW_SCOPES)


def _attention_page(folder: Path, scopes: int) -> Path:
    timeline = decode_launch(save_attention(folder, scopes))
    assert timeline.scope_count >= scopes
    write_html(folder / "page.html", report_of(LaunchAnalysis.of(timeline)))
    return folder / "page.html"
