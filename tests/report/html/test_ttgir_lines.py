"""The TTGIR of a kernel: the lines that its scopes go around, and the source lines that its own come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from replacing import replace
from unpacked import unpacked

from kprof_inject.analysis.program import Report
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.capture.source_text import places_of
from kprof_inject.insertion import view_of
from kprof_inject.report.html.document import write_html
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.timeline.timeline import Timeline, decode_launch

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "tests" / "captures" / "matmul"

TEXT = """\
#loc = loc("k.py":3:0)
module attributes {ttg.target = "cuda:90"} {
  tt.func public @k(%x: i32 loc("x"(#loc)), %y: i32 loc("y"(#loc))) attributes {noinline = false} {
    %a = arith.addi %x, %y : i32 loc(#loc1)
    scf.for %i = %x to %y step %a  : i32 {
      %b = arith.addi %i, %a : i32 loc(#loc5)
      %c = "tt.reduce"(%b) ({
      ^bb0(%p: f32 loc(callsite(#loc1 at #loc2)), %q: f32 loc(unknown)):
        tt.reduce.return %p : f32 loc(#loc2)
      }) : (i32) -> i32 loc(fused[#loc9, #loc1, #loc2])
      tt.store %x, %y : i32 loc("z.py":9:1)
      tt.store %x, %x : i32
    } loc(#loc3)
    tt.return loc(unknown)
  } loc(#loc)
} loc(#loc)
#loc1 = loc("k.py":4:8)
#loc2 = loc("lib \\22x\\22.py":70:2)
#loc3 = loc("i"(#loc4))
#loc4 = loc("k.py":5:20)
#loc5 = loc(callsite(#loc2 at #loc6))
#loc6 = loc(callsite(#loc1 at #loc4))
#loc9 = loc(unknown)
"""
LINES = TEXT.split("\n")


def line_with(start: str) -> int:
    return next(number for number, line in enumerate(LINES) if line.strip().startswith(start))


@pytest.mark.parametrize(
    ("start", "place"),
    [
        ("%a", ("k.py", 4)),
        ("%b", ('lib "x".py', 70)),
        ("})", ("k.py", 4)),
        ("tt.store %x, %y", ("z.py", 9)),
        ("} loc(#loc3)", ("k.py", 5)),
        *((start, ("k.py", line)) for start, line in (("module", 3), ("tt.func", 3), ("scf.for", 5), ("%c", 4))),
        *((start, None) for start in ("tt.store %x, %x", "tt.return", "^bb0", "#loc1")),
    ],
)
def test_a_line_comes_from_where_its_location_says(start: str, place: tuple[str, int] | None) -> None:
    assert places_of(LINES)[line_with(start)] == place


def test_locations_that_name_themselves_end() -> None:
    text = ["#loc1 = loc(fused[#loc2, #loc2])", "#loc2 = loc(fused[#loc1, #loc1])", "%a = x.y loc(#loc1)"]
    assert places_of(text)[2] is None
    doubling = [f"#loc{n} = loc(fused[#loc{n + 1}, #loc{n + 1}])" for n in range(60)]
    assert places_of([*doubling, '#loc60 = loc("k.py":1:1)', "%a = x.y loc(#loc30)"])[-1] == ("k.py", 1)


@pytest.fixture
def demo() -> Timeline:
    [launch] = read_capture(DEMO).launches
    return decode_launch(launch)


def with_lines(timeline: Timeline, lines: tuple[int, int] | None) -> Timeline:
    """The same of a capture whose scopes have these lines."""
    scopes = tuple(replace(scope, lines=lines) for scope in timeline.table.scopes)
    table = ScopeTable(scopes=scopes, partitions=timeline.table.partitions)
    return replace(timeline, table=table)


def lines_and_sites(timeline: Timeline, folder: Path) -> tuple[list[str], list[list[int] | None]]:
    """The TTGIR of a page, and by scope its first and last line there."""
    write_html(folder / "page.html", Report.of([timeline]))
    [launch] = unpacked(folder / "page.html")
    return launch["sections"]["ttgir"]["lines"], [scope["site"] for scope in launch["meta"]["scopes"]]


def test_the_scope_table_has_the_lines_that_the_plan_says() -> None:
    path = ROOT / "ttgir_fixtures" / "3.6.0" / "cuda-90" / "attention.ttgir"
    text = path.read_text()
    plan = make_plan(view_of(text, path.name, {}), parse_selectors(["func", "loop", "iter", "op(tt.load)"]))
    scopes = plan.table.scopes

    for scope, site in zip(scopes, plan.sites, strict=True):
        start, end = site.start.offset, site.last_end_offset
        assert scope.lines == (1 + text.count("\n", 0, start), text.count("\n", 0, end))


def test_the_demo_s_scopes_go_around_their_lines(demo: Timeline, tmp_path: Path) -> None:
    lines, sites = lines_and_sites(demo, tmp_path)
    func, around, body = (site or [] for site in sites)

    assert "scf.for" in lines[around[0]] and lines[around[1]].lstrip().startswith("}")
    assert func[0] < around[0] < body[0] <= body[1] < around[1] < func[1]
    assert "tt.return" in lines[func[1] + 1]


def test_lines_behind_the_end_of_the_text_are_left_out(demo: Timeline, tmp_path: Path) -> None:
    count = len(lines_and_sites(demo, tmp_path)[0])

    assert lines_and_sites(with_lines(demo, (count, count + 9)), tmp_path)[1] == [[count - 1, count - 1]] * 3
    assert lines_and_sites(with_lines(demo, (count + 1, count + 9)), tmp_path)[1] == [None] * 3
