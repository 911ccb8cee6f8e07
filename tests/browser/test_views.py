"""The tabs beside the timeline, as a reader uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from altered import altered, report_of
from attention_capture import save_attention
from buffers import Cta, Scope, end, save_launch, start, tagged
from golden import read
from kernel_code import give_code
from planning import fixture_view
from playwright.sync_api import Locator, expect
from programs.child import REPO
from replacing import replace
from shown_page import Show, ShownPage
from snapshots import check
from specialised import save_specialised

from kprof_inject.analysis.causal.response import Interval, Response
from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program import Report
from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.quantities import percent
from kprof_inject.report.html.code import launch_machine_code, launch_stalls, ttgir_text
from kprof_inject.report.html.document import write_html
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.timeline.timeline import decode_launch

DEMO = REPO / "tests/captures/matmul"
SAMPLED = REPO / "tests/captures/matmul-three-stages"
SCOPES = 300_000
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[1m'\"&amp;{{data}}"


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of an attention kernel with a second wave on some of the SMs, and with its source and TTGIR."""
    folder = tmp_path_factory.mktemp("attention")
    save_attention(folder, SCOPES)
    give_code(folder)
    write_html(folder / "page.html", report_of(LaunchAnalysis.of(decode_launch(read_capture(folder).launches[0]))))
    return folder / "page.html"


@pytest.fixture(scope="module")
def matmul(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of the capture that ships with the package, of which everything is known."""
    page = tmp_path_factory.mktemp("matmul") / "page.html"
    write_html(page, Report.of(map(decode_launch, read_capture(DEMO).launches)))
    return page


def opened(show: Show, path: Path, tab: str, **options: object) -> tuple[ShownPage, Locator]:
    shown = show(path, fragment=f"#tab={tab}", **options)
    shown.settle()
    return shown, shown.page.locator(f"#view-{tab}")


def selected(shown: ShownPage) -> str:
    return shown.page.get_by_role("tab", selected=True).inner_text()


def test_the_overview_has_findings_scopes_and_facts(show: Show, attention: Path) -> None:
    shown, view = opened(show, attention, "overview")
    assert view.locator("h2").all_inner_texts() == [
        *("Limit", "Findings", "Scopes", "How far to trust it", "Conditions", "Notes")
    ]
    rows = view.locator(".scope-table tbody tr")
    expect(rows).to_have_count(8)
    assert rows.nth(1).inner_text().split("\t")[0].strip() == "loop[0]"
    assert "attention.py:27" in rows.nth(1).inner_text()
    assert "waves" in view.locator(".fact-groups").inner_text()
    shown.page.emulate_media(media="print")
    assert view.evaluate("(view) => view.scrollHeight - view.clientHeight") == 0, "all of it goes to paper"


def lossy(folder: Path, slots: int) -> Path:
    """A page of four CTAs whose warps run a loop of 20 iterations, and of each of which so many records are kept."""
    warp = [start(0, 100), start(1, 300)]
    warp += [entry for k in range(20) for entry in (start(2, 300 + 400 * k), end(2, 690 + 400 * k))]
    warp += [end(1, 8_300), end(0, 8_500)]
    scopes = [Scope("kernel", "func", -1, ("/src/k.py", 3)), Scope("loop[0]", "loop", 0), Scope("iter[0]", "iter", 1)]
    launch = save_launch(folder, scopes, [Cta([warp] * 4, sm=sm, pre_final_ns=5_400) for sm in range(4)], slots=slots)
    kernel = replace(launch.kernel, sm_count=4)
    write_html(folder / "page.html", report_of(LaunchAnalysis.of(decode_launch(replace(launch, kernel=kernel)))))
    return folder / "page.html"


def test_a_launch_is_called_healthy_only_if_every_rule_judged_it(show: Show, tmp_path: Path) -> None:
    _, view = opened(show, lossy(tmp_path / "whole", 64), "overview")
    expect(view.locator(".finding")).to_have_class("finding none")
    check("browser/findings", view.locator(".finding").inner_text(), "every rule judged")
    _, view = opened(show, lossy(tmp_path / "lost", 8), "overview")
    expect(view.locator(".finding")).to_have_class("finding doubtful")
    doubt, reason = view.locator(".finding p").all_inner_texts()
    for rule in ("imbalanced-warps", "prologue", "epilogue", "first-iterations"):
        assert rule in reason
    assert "81.8 %" in reason and "--fit" in reason
    check("browser/findings", f"{doubt}\n{reason}", "records were lost")


def test_a_scope_of_which_all_starts_were_lost_has_no_figures(show: Show, tmp_path: Path) -> None:
    page = lossy(tmp_path, 8)
    shown, view = opened(show, page, "overview")
    kernel = view.locator(".scope-table tbody tr").first
    assert [cell.strip() for cell in kernel.locator("td").all_inner_texts()] == [
        *("", "–", "–", "–", "–", "0", "–", "–", "–", "–", "k.py:3")
    ]
    kernel.get_by_role("button", name="kernel").click()
    assert "time is unknown" in shown.page.locator("#view-scopes").inner_text()
    _, view = opened(show, page, "source")
    assert [text.strip() for text in view.locator(".source-row.timed .figure").all_inner_texts()] == ["–", "–", "0 ×"]


def test_the_table_is_sorted_by_what_is_clicked(show: Show, attention: Path) -> None:
    _, view = opened(show, attention, "overview")
    names = view.locator(".scope-table tbody th")
    in_order = names.all_inner_texts()
    view.get_by_role("button", name="self", exact=True).click()
    assert [name.strip() for name in names.all_inner_texts()][:2] == ["softmax", "qk"]
    expect(view.locator("[aria-sort=descending]")).to_have_text("self")
    view.get_by_role("button", name="scope", exact=True).click()
    assert names.all_inner_texts() == in_order


def test_from_the_table_to_a_scope_and_to_its_source(show: Show, attention: Path) -> None:
    shown, view = opened(show, attention, "overview")
    view.get_by_role("button", name="softmax", exact=True).click()
    assert selected(shown) == "Scopes"
    expect(shown.page.locator("#view-scopes h2")).to_have_text("softmax")
    shown.page.locator("#view-scopes").get_by_role("button", name="Source").click()
    assert selected(shown) == "Source"
    expect(shown.page.locator("#view-source .current .line-number")).to_have_text("33")


def test_sms_tell_their_ctas_and_lead_to_the_timeline(show: Show, attention: Path) -> None:
    shown, view = opened(show, attention, "heat_map")
    expect(view.locator(".sm-legend")).to_contain_text("the median, 55.9 µs")
    view.get_by_label("Colour").select_option("waves")
    expect(view.locator(".sm-legend")).to_contain_text("the last wave, 2")
    canvas = view.locator("canvas")
    canvas.hover(position={"x": 300, "y": 120})
    tip = view.locator(".view-tooltip").inner_text()
    assert tip.startswith("SM ") and "CTAs at work" in tip and "wave 1" in tip
    canvas.click(position={"x": 300, "y": 120})
    assert selected(shown) == "Timeline"
    assert set(shown.hash) == {"ctas"}


def test_a_scope_s_bars_lead_to_one_of_what_they_count(show: Show, attention: Path) -> None:
    shown, view = opened(show, attention, "scopes")
    expect(view.locator("h2")).to_have_text("iter[0]")
    assert view.locator(".card h3").all_inner_texts() == ["Durations", "Iterations", "Warps", "SMs"]
    bar = view.get_by_role("img", name="Durations of iter[0]").locator(".bar-target").nth(20)
    bar.hover()
    tip = view.locator(".view-tooltip").inner_text()
    assert "µs to under" in tip or "ns to under" in tip
    bar.click()
    assert selected(shown) == "Timeline"
    assert "iter[0]" in shown.panel()


def test_the_source_has_the_time_of_its_lines(show: Show, attention: Path) -> None:
    shown, view = opened(show, attention, "source")
    line = view.locator(".source-row", has_text="k = tl.load(k_ptrs + start_n * stride_row)")
    number, *_, operations, _ = line.inner_text().split("\n")
    assert (number, int(operations) > 9) == ("28", True)
    shown.page.set_viewport_size({"width": 1700, "height": 800})
    _, *_, total, own, ran, _, _ = line.inner_text().split("\n")
    assert (total == own, ran.endswith("×")) == (True, True)
    line.click()
    details = view.locator(".line-details")
    view.get_by_role("region", name="Source").focus()
    shown.press("ArrowDown")
    expect(details.locator("h3")).to_have_text("Line 29")
    shown.press("ArrowUp")
    assert "load k, v" in details.inner_text() and "attention.py:81" in details.inner_text()
    details.get_by_role("button", name="TTGIR", exact=True).click()
    assert selected(shown) == "TTGIR"
    current = shown.page.locator("#view-ttgir .current")
    expect(current).to_contain_text("attention.py:28")
    current.get_by_role("button", name="attention.py:28").click()
    assert selected(shown) == "Source"


def test_the_ttgir_marks_its_scopes_without_locations(show: Show, attention: Path) -> None:
    _, view = opened(show, attention, "ttgir")
    view.locator(".scope-list").get_by_role("button", name="loop[0]").click()
    current = view.locator(".current")
    expect(current).to_contain_text("scf.for")
    assert current.locator(".scope-label").count() == 2
    assert "loc(" not in current.inner_text()
    view.get_by_role("searchbox").fill("tt.store")
    view.get_by_role("searchbox").press("Enter")
    expect(view.locator(".current")).to_contain_text("tt.store")
    view.get_by_role("searchbox").fill("nowhere to be found")
    view.get_by_role("searchbox").press("Enter")
    expect(view.locator(".find-box")).to_contain_text("not found")


def test_only_what_is_in_sight_of_a_long_text_is_on_the_page(show: Show, tmp_path: Path) -> None:
    launch = save_launch(tmp_path, [Scope("kernel")], [Cta([[start(0, 5), end(0, 900)]])], slots=4)
    body = "".join(f"    %v{n} = arith.addi %a, %b : i32 loc(#loc{n})\n" for n in range(3_000))
    (launch.kernel.folder / "kernel.ttgir").write_text(f"module {{\n  tt.func @k() {{\n{body}  }}\n}}\n")
    write_html(tmp_path / "page.html", report_of(LaunchAnalysis.of(decode_launch(launch))))
    _, view = opened(show, tmp_path / "page.html", "ttgir")
    assert 20 < view.locator(".ttgir-row").count() < 100
    view.get_by_role("searchbox").fill("%v2999 =")
    view.get_by_role("searchbox").press("Enter")
    expect(view.locator(".current")).to_contain_text("%v2999 = arith.addi")
    assert view.locator(".ttgir-row").count() < 100


def test_names_and_texts_from_a_capture_are_only_text(show: Show, tmp_path: Path) -> None:
    path = f"/src/{HOSTILE}.py"
    scopes = [Scope(HOSTILE, "func", -1, (path, 1)), Scope(f"{HOSTILE}2", "iter", 0, (path, 2))]
    entries = [start(0, 5), start(1, 100), end(1, 300), start(1, 400), end(1, 700), end(0, 900)]
    launch = save_launch(tmp_path, scopes, [Cta([entries])] * 2, slots=8)
    launch = replace(launch, kernel=replace(launch.kernel, name=HOSTILE))
    (launch.kernel.folder / "sources.json").write_text(json.dumps({path: f"{HOSTILE}\n'''{HOSTILE}\n"}))
    (launch.kernel.folder / "kernel.ttgir").write_text(f"tt.func {{\n{HOSTILE}\n}}\n")
    write_html(tmp_path / "page.html", report_of(LaunchAnalysis.of(decode_launch(launch))))
    for tab in ("timeline", "overview", "heat_map", "scopes", "source", "ttgir"):
        shown, view = opened(show, tmp_path / "page.html", tab)
        assert shown.page.locator("h1").inner_text().startswith("</script><img src=x onerror=alert(1)>")
        assert shown.page.locator("img[src=x]").count() == 0
        assert not set(shown.page.locator("body").inner_text()) & {"\u202e", "\x1b"}
    assert "<img src=x onerror=alert(1)>" in view.inner_text()


def test_what_matters_stands_in_the_overview_and_beside_the_source(show: Show, tmp_path: Path) -> None:
    """Two places of the demo's matmul were delayed: one is critical, one is hidden up to 300 cycles."""
    report = LaunchAnalysis.of(decode_launch(read_capture(DEMO).launches[0]))
    scopes = report.timeline.table.scopes
    critical = Response(Interval(0.95, 0.9, 1.0), 400)
    hidden = Response(Interval(0.02, -0.01, 0.05), 100, Interval(300, 290, 310), 1.0)
    places = (
        PlaceSlope(scopes[2], 16.0, 16.0, None, (), critical, time_share=0.7),
        PlaceSlope(replace(scopes[1], name="copies@56"), 1.0, 1.0, None, (), hidden, time_share=0.1),
    )
    record = ExperimentRecord(name="k", variant="k", pid=1, scopes=ScopeTable(), grid=(1, 1, 1), delays=())
    slopes = KernelSlopes(record, 14_000.0, 1.6e9, 1.0, places)
    write_html(tmp_path / "page.html", report_of(altered(report, slopes=slopes)))
    _, view = opened(show, tmp_path / "page.html", "overview")
    rows = [row.split("\t") for row in view.locator(".slope-table tbody tr").all_inner_texts()]
    assert [(row[0], row[2], row[4], row[5]) for row in rows] == [
        ("iter[0]", "0.95 ± 0.05", "none", "70.0 %"),
        ("copies@56", "0.02 ± 0.03", "300 ± 10 cycles, then 1.00", "10.0 %"),
    ]
    _, view = opened(show, tmp_path / "page.html", "source")
    assert view.locator(".source-head").inner_text().split("\n")[-2:] == ["slope", "source"]
    line = view.locator(".source-row.timed", has_text="range").first
    assert "0.95" in line.inner_text()


def test_a_tag_s_values_lead_to_one_of_them(show: Show, tmp_path: Path) -> None:
    records = [start(0, 100)]
    for number, (expert, cycles) in enumerate([(7, 100), (-3, 200), (7, 100)]):
        begin = 1_000 * (number + 1)
        records += [*tagged(2, expert), start(1, begin), end(1, begin + cycles)]
    scopes = [Scope("kernel"), Scope("expert loop", "loop", 0, tags=("expert",))]
    launch = save_launch(tmp_path, scopes, [Cta([[*records, end(0, 5_000)]])], slots=32)
    write_html(tmp_path / "page.html", report_of(LaunchAnalysis.of(decode_launch(launch))))
    shown, view = opened(show, tmp_path / "page.html", "scopes")
    view.locator(".scope-list").get_by_role("button", name="expert loop").click()
    rows = [row.split() for row in view.locator(".card tbody tr").all_inner_texts()]
    assert [row[:2] for row in rows] == [["-3", "1"], ["7", "2"]]
    view.get_by_role("button", name="-3", exact=True).click()
    assert selected(shown) == "Timeline"
    shown.settle()
    assert "expert\n-3\n" in shown.panel()


def test_stalls_units_and_machine_code_are_those_of_the_report(show: Show, tmp_path: Path) -> None:
    report = LaunchAnalysis.of(decode_launch(read_capture(SAMPLED).launches[0]))
    code, text = launch_machine_code(report), ttgir_text(report.timeline)
    assert report.stalls is not None and code is not None and text is not None
    write_html(tmp_path / "page.html", report_of(report))
    _, view = opened(show, tmp_path / "page.html", "overview")
    stalls = launch_stalls(report.stalls, [])
    items = [item.split("\n")[:2] for item in view.locator(".stall-item").all_inner_texts()]
    assert items == [[reason, stalls.meanings[reason]] for reason in stalls.shares]
    figures = view.locator(".unit-row .unit-figure").all_inner_texts()
    assert [text.removeprefix("≥ ") for text in figures] == [
        percent(unit.best) for unit in report.units if unit.best >= 0.0005
    ]
    _, view = opened(show, tmp_path / "page.html", "ttgir")
    lines = [line for line in code.lines if any(one.line for one in line.awaited)]
    [waiting] = (line for line in lines if "tt.store" in text.lines[line.line - 1])
    view.get_by_role("searchbox").fill("tt.store")
    view.get_by_role("searchbox").press("Enter")
    row = view.locator(".current")
    for pipeline, count in waiting.pipelines.items():
        expect(row.locator(".code-cell")).to_contain_text(f"{count} {pipeline.value}")
    assert "of all samples of warps:" in (row.locator(".stall-bar").get_attribute("title") or "")
    row.locator(".code-cell").click()
    panel = view.locator(".code-panel")
    expect(panel.locator("h3")).to_have_text(f"Line {waiting.line}")
    expect(panel.locator(".instruction-row").nth(1)).to_be_visible()
    panel.locator(".awaited button").first.click()
    expect(row).not_to_contain_text("tt.store")
    _, view = opened(show, tmp_path / "page.html", "source")
    view.locator(".source-row", has=view.page.locator(".stall-segment")).first.click()
    expect(view.locator(".line-details")).to_contain_text("of all")


CUT_OFF = """(view) => [view, ...view.querySelectorAll(".card, .line-details")]
    .filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.innerText)"""


@pytest.mark.parametrize("kernel", ["attention", "matmul"])
def test_no_text_is_cut_off_at_the_side_and_nothing_is_wider_than_the_window(
    show: Show, request: pytest.FixtureRequest, kernel: str
) -> None:
    shown = show(request.getfixturevalue(kernel), width=1920, height=1200)
    for tab in ("timeline", "overview", "heat_map", "scopes", "source", "ttgir"):
        shown.page.locator(f"#tab-{tab}").click()
        for width, height in ((1920, 1200), (1280, 800), (800, 900)):
            shown.page.set_viewport_size({"width": width, "height": height})
            shown.settle()  # a drawing follows its place in the next frame
            if tab != "timeline":
                assert shown.page.locator(f"#view-{tab}").evaluate(CUT_OFF) == [], (tab, width)
            assert shown.page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, (tab, width)


def test_scopes_stand_below_their_partitions(show: Show, tmp_path: Path) -> None:
    module = REPO / "tests/select/partitioned/three_partitions.ttgir.gz"
    plan = make_plan(fixture_view(read(module)), parse_selectors(["func", "loop", "iter"]))
    write_html(tmp_path / "ws.html", report_of(LaunchAnalysis.of(decode_launch(save_specialised(tmp_path, plan)))))
    titles = ["default partition (warps 0-3)", "partition 0 (warp 10)", "partition 1 (warps 4-7)"]

    _, view = opened(show, tmp_path / "ws.html", "overview")
    names = [row.split("\t")[0].strip() for row in view.locator(".scope-table tbody tr").all_inner_texts()]
    assert names == [
        *(titles[0], "func", "loop[0]", "iter[0]"),
        *(titles[1], "loop[1]", "iter[1]"),
        *(titles[2], "loop[2]", "iter[2]"),
    ]
    view.get_by_role("button", name="share").click()
    expect(view.locator(".scope-table tbody tr")).to_have_count(7)
    _, view = opened(show, tmp_path / "ws.html", "scopes")
    assert view.locator(".scope-list h3").all_inner_texts() == titles
    shown = show(tmp_path / "ws.html")
    assert shown.page.locator("#view-timeline .scope-list h3").all_inner_texts() == titles
