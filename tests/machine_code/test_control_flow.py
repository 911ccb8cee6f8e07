"""Blocks, loops, and what waits for what."""

from __future__ import annotations

from listing import encoded, function

from kprof_inject.machine_code.control_flow import Block, MachineLoop, Wait, blocks_of, loops_of, waits_in
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.lines import Awaited, summary_of
from kprof_inject.machine_code.units import Pipeline


def loops_in(found: MachineFunction) -> list[tuple[int, list[int]]]:
    return [(loop.header, sorted(loop.blocks)) for loop in loops_of(blocks_of(found))]


NESTED = function(
    "NOP",
    ".L_x_0:",
    "#5",
    "NOP",
    ".L_x_1:",
    "#6",
    "FADD R0, R0, R1",
    "@P0 BRA `(.L_x_1)",
    "#7",
    "@P1 BRA `(.L_x_0)",
    "EXIT",
    ".L_x_2:",
    "BRA `(.L_x_2)",
)


def test_blocks_end_at_branches_and_begin_at_their_targets() -> None:
    assert list(blocks_of(NESTED)) == [
        Block(0, 1, (1,)),
        Block(1, 2, (2,)),
        Block(2, 4, (2, 3)),
        Block(4, 5, (1, 4)),
        Block(5, 6, ()),
        Block(6, 7, (5,)),
    ]


def test_loops_are_found_outer_ones_first_and_not_in_unreachable_code() -> None:
    assert loops_of(blocks_of(NESTED)) == [MachineLoop(1, frozenset((1, 2, 3))), MachineLoop(2, frozenset((2,)))]
    outer, inner = summary_of(NESTED).loops
    assert (outer.line, outer.lines, outer.instructions) == (5, (5, 6, 7), 4)
    assert (inner.line, inner.lines, inner.instructions) == (6, (6,), 2)


def test_a_conditional_end_or_uniform_branch_falls_through() -> None:
    found = function("@P0 EXIT", "BRA.U !UP0, `(.L_x_0)", "NOP", ".L_x_0:", "@!PT BRA `(.L_x_0)", "EXIT")
    assert [block.successors for block in blocks_of(found)] == [(1,), (3, 2), (3,), (3, 4), ()]


def test_two_ways_back_to_one_header_are_one_loop() -> None:
    found = function(".L_x_0:", "NOP", "@P0 BRA `(.L_x_0)", "@P1 BRA `(.L_x_0)", "EXIT")
    assert loops_in(found) == [(0, [0, 1])]


def test_code_that_enters_a_cycle_at_two_places_is_no_loop() -> None:
    found = function("@P0 BRA `(.L_x_1)", ".L_x_0:", "NOP", ".L_x_1:", "NOP", "@P1 BRA `(.L_x_0)", "EXIT")
    assert loops_in(found) == []


def test_an_instruction_waits_for_those_that_count_in_its_scoreboard() -> None:
    found = function(
        ("LDG.E R4, [R2]", encoded(result=0)),
        ("LDS R5, [R3]", encoded(result=1)),
        ("STG.E [R2], R6", encoded(operand=0)),
        ("FADD R7, R5, R5", encoded(awaited=[1])),
        ("FADD R8, R4, R4", encoded(awaited=[0])),
        ("FADD R9, R4, R4", encoded(awaited=[0])),
    )
    assert waits_in(found) == [Wait(3, 1), Wait(4, 0), Wait(4, 2)]


def test_what_a_loop_waits_for_may_be_of_its_last_iteration() -> None:
    found = function(
        ("LDG.E R4, [R2]", encoded(result=0)),
        ".L_x_0:",
        ("FADD R8, R4, R4", encoded(awaited=[0])),
        ("LDG.E R4, [R2]", encoded(result=0)),
        "@P0 BRA `(.L_x_0)",
        ("EXIT", encoded(awaited=[0])),
    )
    assert waits_in(found) == [Wait(1, 0), Wait(1, 2), Wait(4, 2)]


def test_the_last_of_loads_from_shared_memory_counts_for_those_before_it() -> None:
    found = function(
        "@!PT LDS RZ, [RZ]",
        "LDS R4, [R2]",
        ("LDG.E R6, [R2]", encoded(result=1)),
        ("LDS R5, [R3]", encoded(result=0)),
        "LDS R7, [R3]",
        ("FADD R8, R4, R5", encoded(awaited=[0])),
        ("FADD R8, R6, R6", encoded(awaited=[1])),
    )
    assert waits_in(found) == [Wait(5, 1), Wait(5, 3), Wait(6, 2)]


def test_a_line_has_its_instructions_by_pipeline_and_what_it_waits_for() -> None:
    found = function(
        "#3",
        ("LDG.E R4, [R2]", encoded(result=0)),
        ("LDG.E R5, [R2]", encoded(result=0)),
        "#4",
        ("FADD R8, R4, R5", encoded(awaited=[0])),
        ("FADD R8, R4, R5", encoded(awaited=[0])),
        "MUFU.EX2 R8, R8",
    )
    load, sum_ = summary_of(found).lines
    assert (load.line, load.instructions, load.pipelines, load.awaited) == (3, 2, {Pipeline.LSU: 2}, {})
    assert (sum_.line, sum_.pipelines) == (4, {Pipeline.FMA: 2, Pipeline.XU: 1})
    assert sum_.awaited == {Awaited(3, "LDG"): 2}
