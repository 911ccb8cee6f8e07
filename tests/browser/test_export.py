"""The button "Export": what is saved, read as its reader would."""

from __future__ import annotations

import base64
import csv
import io
from collections import Counter
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect
from programs.child import REPO
from several_kernels import save_kernels
from shown_page import Show, ShownPage
from test_page_shell import timeline_of
from trace_processor.processor import query_many

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.reader import read_capture
from kprof_inject.report.html.document import write_html
from kprof_inject.timeline.timeline import Timeline, decode_launch

# Of the first CTA that is open; as the timeline shows it.
WARPS = 4


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    return decode_launch(read_capture(REPO / "tests/captures/matmul").launches[0])


@pytest.fixture(scope="module")
def matmul(timeline: Timeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("matmul") / "page.html"
    write_html(page, [LaunchAnalysis.of(timeline)])
    return page


def saved(shown: ShownPage, button: Locator) -> tuple[str, bytes]:
    """Return the name and the content of the file that a button saves."""
    with shown.page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, download.value.path().read_bytes()


def exported(shown: ShownPage, text: str) -> tuple[str, bytes]:
    shown.page.get_by_role("button", name="Export").click()
    return saved(shown, shown.page.get_by_role("menuitem", name=text))


def show_tab(shown: ShownPage, name: str) -> Locator:
    shown.page.locator(f"#tab-{name}").click()
    return shown.page.locator(f"#view-{name}")


def rows_of(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode())))


PIXEL_AT = "([x, y]) => [...canvas.getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3)"
PICTURE = """async (_, [base64, places]) => {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const picture = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const drawn = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
    drawn.drawImage(picture, 0, 0);
    const pixels = places.map(([x, y]) => [...drawn.getImageData(x, y, 1, 1).data].slice(0, 3));
    return { size: [picture.width, picture.height], pixels };
}"""


def test_csv_has_the_scopes_of_the_warps_in_sight(show: Show, matmul: Path, timeline: Timeline) -> None:
    name, data = exported(show(matmul), "CSV")
    assert name == f"matmul_kernel-launch-{timeline.launch.index}-timeline.csv"
    head, *rows = rows_of(data)
    assert head == ["scope", "sm", "cta", "warp", "iteration", "start_ns", "duration_ns"]
    (cta,) = {int(row[2]) for row in rows}
    scopes = timeline.scopes[timeline.scopes["cta"] == cta]
    names = [scope.name for scope in timeline.table.scopes]
    expected = [
        (
            names[scope["scope"]],
            *(str(scope[name]) for name in ("sm", "cta", "warp")),
            "" if scope["iteration"] < 0 else str(scope["iteration"]),
            str(scope["start_ns"] - timeline.first_ns),
            str(scope["duration_ns"]),
        )
        for scope in scopes
    ]
    assert sorted(map(tuple, rows)) == sorted(expected)


def test_only_what_is_in_the_window_is_exported(show: Show, matmul: Path, timeline: Timeline) -> None:
    whole = rows_of(exported(show(matmul), "CSV")[1])[1:]
    shown = show(matmul, fragment="#from=3000&to=4000")
    part = rows_of(exported(shown, "CSV")[1])[1:]
    assert 0 < len(part) < len(whole)
    scopes = timeline.scopes[timeline.scopes["cta"] == int(whole[0][2])]
    start_ns, end_ns = (scopes[name] - timeline.first_ns for name in ("start_ns", "end_ns"))
    is_in = (start_ns <= 4000) & (end_ns >= 3000)
    assert Counter(int(row[5]) for row in part) == Counter(start_ns[is_in].tolist()), "what is partly in it, too"
    shown.press("c")
    shown.page.get_by_role("button", name="Export").click()
    assert shown.page.get_by_role("menuitem").all_inner_texts() == ["PNG"]
    expect(shown.page.get_by_role("menu")).to_contain_text("Open a CTA")


def test_the_trace_has_the_same_scopes_nested(show: Show, matmul: Path, tmp_path: Path) -> None:
    shown = show(matmul, fragment="#from=3000&to=9000")
    rows = rows_of(exported(shown, "CSV")[1])[1:]
    name, data = exported(shown, "Perfetto")
    assert name.endswith("-timeline.pftrace")
    slices, threads, process, faults = traced(tmp_path, data)
    # A thread is named after its place.
    of_csv = Counter((scope, f"SM {sm} CTA {cta} warp {warp}", int(ns)) for scope, sm, cta, warp, _, ns, _ in rows)
    assert Counter((row["name"], row["thread"], row["ts"]) for row in slices) == of_csv
    depths = {(row["name"], row["depth"]) for row in slices}
    assert {("func", 0), ("loop[0]", 1), ("iter[0]", 2)} <= depths
    assert all(row["dur"] >= 0 for row in slices), "each has an end"
    assert [row["iteration"] for row in slices if row["name"] == "func"] == [None] * WARPS
    numbered = sorted(int(row["iteration"]) for row in slices if row["name"] == "iter[0]")
    assert numbered == sorted(int(row[4]) for row in rows if row[0] == "iter[0]")
    assert len(threads) == WARPS and process == ["matmul_kernel, launch 29"]
    assert faults == []


def test_scopes_that_cross_are_on_threads_of_their_own(show: Show, tmp_path: Path) -> None:
    shown = show(timeline_of(tmp_path / "capture"))
    slices, threads, _, faults = traced(tmp_path, exported(shown, "Perfetto")[1])
    found = {(row["name"], row["thread"].endswith("(crossing 1)"), row["dur"] > 0) for row in slices}
    assert found == {("kernel", False, True), ("wait", True, True), ("here", False, False)}
    assert (len(slices), len(threads), faults) == (6, 4, [])


def traced(folder: Path, data: bytes) -> tuple[list[dict[str, object]], list[str], list[str], list[dict[str, object]]]:
    path = folder / "part.pftrace"
    path.write_bytes(data)
    slices, threads, process, faults = query_many(
        path,
        [
            "SELECT ts, dur, depth, slice.name AS name, thread.name AS thread,"
            " EXTRACT_ARG(arg_set_id, 'debug.iteration') AS iteration"
            " FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid)",
            "SELECT thread.name AS name FROM thread JOIN process USING (upid) WHERE tid > 1",
            "SELECT name FROM process WHERE name IS NOT NULL",
            "SELECT name, value FROM stats WHERE severity = 'error' AND value > 0",
        ],
    )
    return slices, [row["name"] for row in threads], [row["name"] for row in process], faults


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_png_is_the_picture_as_shown(show: Show, matmul: Path, dark: bool) -> None:
    shown = show(matmul, dark=dark)
    name, data = exported(shown, "PNG")
    assert name.endswith("-timeline.png")
    places = [(x, y) for y in range(2, 500, 3) for x in range(2, 900, 7)]
    picture = shown.canvas.evaluate(PICTURE, [base64.b64encode(data).decode(), places])
    assert picture["size"] == shown.canvas.evaluate("(canvas) => [canvas.width, canvas.height]")
    assert picture["pixels"] == shown.canvas.evaluate(f"(canvas, places) => places.map({PIXEL_AT})", places)
    assert len({tuple(pixel) for pixel in picture["pixels"]}) > 12, "scopes and labels"
    axis = picture["pixels"][0]
    assert max(axis) < 60 if dark else min(axis) > 200


def test_the_menu_is_used_by_keys(show: Show, matmul: Path) -> None:
    shown = show(matmul)
    before = shown.range_text
    menu = shown.page.get_by_role("menu")
    shown.press("x")
    expect(shown.page.get_by_role("menuitem", name="PNG")).to_be_focused()
    shown.press("ArrowUp")
    expect(shown.page.get_by_role("menuitem", name="Perfetto")).to_be_focused()
    shown.press("ArrowUp")
    with shown.page.expect_download() as download:
        shown.press("Enter")
    assert download.value.suggested_filename.endswith(".csv")
    expect(menu).to_be_hidden()
    shown.press("x", "Escape")
    expect(menu).to_be_hidden()
    expect(shown.page.get_by_role("button", name="Export")).to_be_focused()
    shown.press("x")
    shown.canvas.click(position={"x": 400, "y": 300})
    expect(menu).to_be_hidden()
    shown.press("Escape")
    assert shown.range_text == before, "the same keys move the timeline"
    shown.press("?")
    assert "CSV or Perfetto trace" in shown.page.locator("dialog").inner_text()


def test_the_table_of_scopes_is_exported_as_shown(show: Show, matmul: Path, timeline: Timeline) -> None:
    shown = show(matmul, fragment="#tab=overview")
    view = shown.page.locator("#view-overview")
    view.get_by_role("button", name="max", exact=True).click()
    name, data = saved(shown, view.get_by_role("button", name="Export CSV"))
    assert name == f"matmul_kernel-launch-{timeline.launch.index}-scopes.csv"
    head, *rows = rows_of(data)
    assert head == ["scope", "per CTA", "total", "self", "share", "count", "mean", "p50", "p99", "max", "source"]
    texts = [row.replace("\u202f", "").split("\t") for row in view.locator(".scope-table tbody tr").all_inner_texts()]
    assert rows == [[name.strip(), *map(str.strip, figures)] for name, _, *figures in texts]
    in_order = rows_of(saved(shown, show_tab(shown, "scopes").get_by_role("button", name="Export CSV"))[1])
    assert (in_order[0], sorted(in_order[1:])) == (head, sorted(rows))


def test_the_key_exports_the_table_of_kernels(show: Show, tmp_path: Path) -> None:
    folder = save_kernels(tmp_path, {"a": (9000, 100), "b": (4000, 100)})
    shown = show(*map(decode_launch, read_capture(folder).launches))
    with shown.page.expect_download() as download:
        shown.press("x")
    assert download.value.suggested_filename == "kernels.csv"
    head, *rows = rows_of(download.value.path().read_bytes())
    assert head[:4] == ["kernel", "variants", "launches", "time"]
    assert sorted(row[0] for row in rows) == ["a", "b"]
    in_order = [text.split()[0] for text in shown.page.locator(".kernel-table tr.kernel").all_inner_texts()]
    assert [row[0] for row in rows] == in_order


def test_a_name_is_quoted_in_csv(show: Show, tmp_path: Path) -> None:
    name = 'one, "two"\nthree/../four'
    file, data = exported(show(timeline_of(tmp_path, name)), "CSV")
    assert "/" not in file and '"' not in file
    assert name in {row[0] for row in rows_of(data)}
