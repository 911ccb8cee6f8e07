"""The button "Export CSV": what is saved, read as its reader would."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from playwright.sync_api import Locator
from programs.child import REPO
from shown_page import Show, ShownPage
from test_page_shell import timeline_of

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import decode_launch


def saved(shown: ShownPage, button: Locator) -> tuple[str, bytes]:
    """Return the name and the content of the file that a button saves."""
    with shown.page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, download.value.path().read_bytes()


def rows_of(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode())))


def test_the_table_of_scopes_is_exported_as_shown(show: Show) -> None:
    timeline = decode_launch(read_capture(REPO / "tests/captures/matmul").launches[0])
    shown = show(timeline, fragment="#tab=overview")
    view = shown.page.locator("#view-overview")
    view.get_by_role("button", name="max", exact=True).click()
    name, data = saved(shown, view.get_by_role("button", name="Export CSV"))
    assert name == f"matmul_kernel-launch-{timeline.launch.index}-scopes.csv"
    head, *rows = rows_of(data)
    assert head == ["scope", "per CTA", "total", "self", "share", "count", "mean", "p50", "p99", "max", "source"]
    texts = [row.replace("\u202f", "").split("\t") for row in view.locator(".scope-table tbody tr").all_inner_texts()]
    assert rows == [[name.strip(), *map(str.strip, figures)] for name, _, *figures in texts]
    shown.page.locator("#tab-scopes").click()
    with shown.page.expect_download() as download:  # by its key
        shown.press("x")
    in_order = rows_of(download.value.path().read_bytes())
    assert (in_order[0], sorted(in_order[1:])) == (head, sorted(rows))


def test_a_name_is_quoted_in_csv(show: Show, tmp_path: Path) -> None:
    name = '=one, "two"\nthree/../four'
    shown = show(timeline_of(tmp_path, name), fragment="#tab=scopes")
    file, data = saved(shown, shown.page.get_by_role("button", name="Export CSV"))
    assert "/" not in file and '"' not in file
    assert "'" + name.replace("\n", " ") in {row[0] for row in rows_of(data)}
