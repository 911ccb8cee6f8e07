"""Locations and regions of a TTGIR text, read without its grammar."""

from __future__ import annotations

from kprof_inject.report.html.code import Region, chains_of, regions_of

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
      }) : (i32) -> i32 loc(fused[#loc1, #loc2])
      scf.if %c {
        tt.store %x, %y : i32 loc("z.py":9:1)
      } else {
        tt.store %x, %x : i32
      } loc(#loc2)
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
"""
LINES = TEXT.split("\n")


def line_with(start: str) -> int:
    return next(number for number, line in enumerate(LINES) if line.strip().startswith(start))


def test_a_line_comes_from_where_its_location_says() -> None:
    chains = chains_of(LINES)
    assert chains[line_with("%a")] == ("k.py:4",)
    assert chains[line_with("tt.store %x, %y")] == ("z.py:9",)
    assert chains[line_with("} loc(#loc3)")] == ("k.py:5",)


def test_inlined_code_has_its_calls_too() -> None:
    assert chains_of(LINES)[line_with("%b")] == ('lib "x".py:70', "k.py:4", "k.py:5")


def test_what_has_no_location_that_is_known_has_no_chain() -> None:
    chains = chains_of(LINES)
    for start in ("module", "tt.func", "tt.store %x, %x", "tt.return", "^bb0"):
        assert chains[line_with(start)] == ()


def test_locations_that_name_themselves_end() -> None:
    text = ["#loc1 = loc(fused[#loc2, #loc2])", "#loc2 = loc(fused[#loc1, #loc1])", "%a = x.y loc(#loc1)"]
    assert chains_of(text)[2] == ()
    doubling = [f"#loc{n} = loc(fused[#loc{n + 1}, #loc{n + 1}])" for n in range(60)]
    assert chains_of([*doubling, '#loc60 = loc("k.py":1:1)', "%a = x.y loc(#loc30)"])[-1] == ("k.py:1",) * 16


def test_definitions_of_locations_are_no_code() -> None:
    assert not any(chains_of(LINES)[line_with("#loc1") :])


def test_regions_go_from_their_operation_to_its_last_line() -> None:
    found = {(region.first, region.last) for region in regions_of(LINES)}
    for start, end in (
        ("module", len(LINES) - 8),
        ("tt.func", line_with("tt.return") + 1),
        ("scf.for", line_with("} loc(#loc3)")),
        ('%c = "tt.reduce"', line_with("})")),
        ("scf.if", line_with("} loc(#loc2)")),
    ):
        assert (line_with(start), end) in found
    assert len(found) == 5


def test_the_head_of_a_region_is_its_first_line() -> None:
    heads = {region.head for region in regions_of(LINES)}
    assert "scf.for %i = %x to %y step %a  : i32 {" in heads


def test_braces_that_match_no_other_are_passed_over() -> None:
    assert list(regions_of(["}", "a {", "b {", "}"])) == [Region("b {", 2, 3)]
