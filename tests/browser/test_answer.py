"""What limits the launch, what to try and whether to trust that, over all views; and the kernels side by side."""

from __future__ import annotations

from pathlib import Path

from buffers import Cta, Scope, end, save_launch, start
from playwright.sync_api import expect
from replacing import replace
from several_kernels import save_kernels
from shown_page import Show
from snapshots import check

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.capture_files import write
from kprof_inject.capture.measurements import GpuWork, GpuWorkRecord
from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import Timeline, decode_launch


def launched(folder: Path, loop_begin_cycles: int) -> Timeline:
    """Four CTAs whose loop ends at cycle 9,000."""
    warp = [start(0, 100), start(1, loop_begin_cycles), end(1, 9_000), end(0, 9_100)]
    scopes = [Scope("kernel", "func", -1), Scope("loop[0]", "loop", 0)]
    return decode_launch(save_launch(folder, scopes, [Cta([warp], sm=sm) for sm in range(4)], slots=8))


def test_it_stands_over_the_timeline_and_leads_to_all(show: Show, tmp_path: Path) -> None:
    timeline = launched(tmp_path, 6_000)
    shown = show(timeline)
    strip = shown.page.locator("#answer")
    assert strip.locator("dt").all_inner_texts() == ["LIMIT", "TRY", "TRUST"]
    expect(strip).to_contain_text(LaunchAnalysis.of(timeline).verdict.text)
    check("browser/answer", strip.inner_text())
    strip.get_by_role("button").click()
    expect(shown.page.get_by_role("tab", selected=True)).to_have_text("Overview")
    advice = shown.page.locator(".finding .view-hint").first.inner_text()
    assert strip.locator("dd").nth(1).inner_text() in advice
    assert not shown.errors


def test_findings_and_scopes_lead_to_examples_in_the_timeline(show: Show, tmp_path: Path) -> None:
    shown = show(launched(tmp_path, 6_000), fragment="#tab=overview")
    shown.page.get_by_role("button", name="show an example").first.click()
    expect(shown.page.get_by_role("tab", selected=True)).to_have_text("Timeline")
    shown.settle()
    assert "loop[0]" in shown.panel()
    assert shown.hash["ctas"] == "3"
    for name in ("Slowest", "Median"):
        shown.page.get_by_role("tab", name="Scopes").click()
        shown.page.get_by_role("button", name=name).click()
        expect(shown.page.get_by_role("tab", selected=True)).to_have_text("Timeline")


def test_of_several_kernels_the_first_tab_leads_to_each(show: Show, tmp_path: Path) -> None:
    one, other = launched(tmp_path / "one", 300), launched(tmp_path / "other", 6_000)
    kernel = replace(other.launch.kernel, name="other", variant="other")
    again = replace(one, launch=replace(one.launch, index=1))
    shown = show(one, replace(other, launch=replace(other.launch, kernel=kernel)), again)
    page = shown.page
    expect(page.get_by_role("tab", selected=True)).to_have_text("Kernels")
    rows = page.locator(".kernel-table tr.kernel")
    assert sorted(row.split()[0] for row in rows.all_inner_texts()) == ["kernel", "other"]
    # What is shown is the kernel that takes the most time.
    expect(page.locator(".launch-title h1")).to_have_text(rows.first.inner_text().split()[0])
    launch = page.get_by_role("button", name="launch 1")
    expect(launch).to_be_hidden()
    page.get_by_role("button", name="launches").click()
    expect(launch).to_be_visible()
    page.get_by_role("row", name="other").get_by_role("cell").first.click()
    expect(page.get_by_role("tab", selected=True)).to_have_text("Timeline")
    expect(page.locator(".launch-title h1")).to_have_text("other")
    assert page.locator("#launch").input_value() == "1"
    assert shown.hash["tab"] == "timeline" and shown.hash["launch"] == "1"
    assert not shown.errors and not shown.requests


def test_what_was_not_recorded_has_rows_below_the_kernels(show: Show, tmp_path: Path) -> None:
    folder = save_kernels(tmp_path, {"a": (9000, 100)})
    work = (
        GpuWork(name="gemm", kind="kernel", count=10, total_ns=1e6),
        GpuWork(name="Memcpy HtoD", kind="copy", count=1, total_ns=1e5),
    )
    write(folder, GpuWorkRecord(processes=1, work=work))
    shown = show(*map(decode_launch, read_capture(folder).launches))
    rows = shown.page.locator(".kernel-table tr")
    texts = [" ".join(text.split()) for text in rows.all_inner_texts()]
    assert texts[-2].startswith("gemm 10 100 µs 50.0 %") and texts[-2].endswith("not recorded")
    assert texts[-1].startswith("Memcpy HtoD 1 100 µs 5.0 %") and texts[-1].endswith("copy")
    rows.last.click()
    assert not shown.errors
