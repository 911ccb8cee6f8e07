"""Instructions that moved across records, out of a scope and into it, are found and counted."""

from __future__ import annotations

import pytest
from listing import amd_function, function
from msgspec.structs import replace

from kprof_inject.analysis.scope_map import recorded_lines
from kprof_inject.machine_code.lines import Moved, RecordedLines, Side, moved_in
from kprof_inject.ttgir.parser import parse

CLOCK = "CS2R.32 R7, SR_CLOCKLO"
SCOPE = RecordedLines("work", frozenset((2,)), frozenset((5,)), frozenset((3, 4)), frozenset((1, 3, 4, 6)))


def test_what_is_in_its_place_is_not_mentioned() -> None:
    code = function("#1", "LDG R1, [R2]", "#2", CLOCK, "#3", "LDS R1, [R2]", "#5", CLOCK, "#6", "STG [R2], R1")
    assert moved_in(code, SCOPE) == []


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("#3", "LDG R1, [R2]", "#2", CLOCK, "#3", "LDG R1, [R2]", "#5", CLOCK), Moved(3, "LDG", 1, 2, Side.BEFORE)),
        (("#2", CLOCK, "#5", CLOCK, "#4", "STG [R2], R1"), Moved(4, "STG", 1, 1, Side.AFTER)),
        (("#2", CLOCK, "#6", "MUFU.EX2 R1, R1", "#5", CLOCK), Moved(6, "MUFU", 1, 1, Side.INSIDE)),
    ],
)
def test_what_moved_out_or_in_is_counted(parts: tuple[str, ...], expected: Moved) -> None:
    assert moved_in(function(*parts), SCOPE) == [expected]


@pytest.mark.parametrize(
    "moved",
    [
        ("#3", "IADD3 R1, R1, R2, RZ"),  # an address, say
        ("#3", "@!PT LDS RZ, [RZ]"),  # never executed
        ("#2", "STS [R2], R1"),  # of the record itself
        ("#3", "STL [R1], R9"),  # a spilled value
        ("#9", "LDG R1, [R2]"),  # of an inlined helper, which may be called in the scope
    ],
)
def test_what_does_not_matter_is_not_counted(moved: tuple[str, ...]) -> None:
    assert moved_in(function(*moved, "#2", CLOCK, *moved, "#5", CLOCK, *moved), SCOPE) == []


def test_code_that_does_not_lead_to_the_scope_or_follow_it_is_of_other_warps() -> None:
    code = function(
        "#1", "@P0 BRA `(.L_x_0)", "#2", CLOCK, "#3", "LDS R1, [R2]", "#5", CLOCK, "EXIT",
        ".L_x_0:", "#3", "LDS R1, [R2]", "EXIT",
    )  # fmt: skip
    assert moved_in(code, SCOPE) == []


def test_a_special_function_with_the_line_of_a_copy_is_another_operations() -> None:
    code = function("#2", CLOCK, "#5", CLOCK, "#3", "MUFU.RCP R1, R1")
    assert moved_in(code, SCOPE) == [Moved(3, "MUFU", 1, 1, Side.AFTER)]
    assert moved_in(code, replace(SCOPE, copies=frozenset((3,)))) == []


def test_both_sides_of_a_branch_are_between_the_records() -> None:
    code = function(
        "#2", CLOCK, "@P0 BRA `(.L_x_0)", "#3", "LDG R1, [R2]", "BRA `(.L_x_1)", ".L_x_0:", "#4", "LDG R1, [R3]",
        ".L_x_1:", "#5", CLOCK, "EXIT",
    )  # fmt: skip
    assert moved_in(code, SCOPE) == []


def test_the_other_iterations_of_a_loop_around_a_scope_are_outside_of_it() -> None:
    code = function(
        ".L_x_0:", "#1", "LDG R1, [R2]", "#2", CLOCK, "#3", "LDS R1, [R2]", "#5", CLOCK, "#4", "STG [R2], R1",
        "@P0 BRA `(.L_x_0)", "EXIT",
    )  # fmt: skip
    assert moved_in(code, SCOPE) == [Moved(4, "STG", 1, 1, Side.AFTER)]


@pytest.mark.parametrize(
    "parts", [("#2", CLOCK), ("#5", CLOCK), ("#2", "CS2R.32 R7, SR_CLOCKHI", "#5", CLOCK), ("NOP",)]
)
def test_without_both_clock_reads_it_is_unknown(parts: tuple[str, ...]) -> None:
    assert moved_in(function(*parts), SCOPE) is None


@pytest.mark.parametrize("clock", ["s_memtime s[2:3]", "s_get_shader_cycles_u64 s[2:3]"])
def test_amds_scopes_are_between_its_clock_reads(clock: str) -> None:
    code = amd_function(
        "#2", clock, "ds_write_b32 v1, v2", "#3", "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]",
        "#4", "s_load_dword s4, s[0:1], 0x0", "#5", clock, "#3", "scratch_load_dword v1, off, s6",
        "buffer_store_dword v7, off, s[0:3], 0 offset:4 ; 4-byte Folded Spill", "v_exp_f32_e32 v1, v1", "s_endpgm",
    )  # fmt: skip
    assert moved_in(code, SCOPE) == [Moved(3, "v_exp_f32", 1, 1, Side.AFTER)]


@pytest.mark.parametrize(
    ("moved", "sentence"),
    [
        (Moved(3, "LDG", 7, 16, Side.BEFORE), "k: 7 of 16 LDG of line 3 are before its start"),
        (Moved(3, "MUFU", 64, 64, Side.AFTER), "k: all 64 MUFU of line 3 are after its end"),
        (Moved(3, "LDG", 1, 1, Side.AFTER), "k: the LDG of line 3 is after its end"),
        (Moved(3, "LDG", 1, 4, Side.INSIDE), "k: 1 LDG of line 3, which is outside, is in it"),
    ],
)
def test_what_moved_in_words(moved: Moved, sentence: str) -> None:
    assert moved.sentence_on("k") == sentence


MODULE = """\
module {
  tt.func public @kernel(%x: !tt.ptr<f32>) {
    proton.record start "func"
    %a = arith.constant 1 : i32
    proton.record start "a \\22b\\22"
    %b = arith.constant 2 : i32
    proton.record end "a \\22b\\22"
    proton.record start "open"
    proton.record end "func"
    tt.return
  }
}
"""


def test_the_lines_of_scopes_are_those_between_their_records() -> None:
    func, inner = recorded_lines(parse(MODULE))
    assert (func.name, func.starts, func.ends, func.operations) == ("func", {3}, {9}, {4, 6})
    assert (inner.name, inner.starts, inner.ends, inner.operations) == ('a "b"', {5}, {7}, {6})
    assert func.function == inner.function == {4, 6, 10}


PARTITIONED = """\
module {
  tt.func public @kernel() {
    proton.record start "func"
    ttg.warp_specialize()
    default {
      %a = arith.constant 1 : i32
      ttg.warp_yield
    }
    partition0() num_warps(4) {
      proton.record start "inner"
      %b = arith.constant 2 : i32
      proton.record end "inner"
      ttg.warp_return
    } : () -> ()
    proton.record end "func"
    tt.return
  }
}
"""


def test_a_partition_is_a_function_of_its_own() -> None:
    func, inner = recorded_lines(parse(PARTITIONED))
    assert (func.name, func.operations) == ("func", {4, 6, 7})
    assert (inner.name, inner.operations, inner.function) == ("inner", {11}, {11, 13})
