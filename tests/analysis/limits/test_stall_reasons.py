"""Samples by scope and line, and what warps wait for."""

from __future__ import annotations

import pytest
from replacing import replace

from kprof_inject.analysis.limits.stalls import Share, share_of_instructions, stalls_of
from kprof_inject.capture.measurements import SampledInstruction, SamplesRecord
from kprof_inject.capture.scopes import Scope, ScopeTable
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction, MachineFunction

SOURCE = "/home/user/kernel.py"


def scope(kind: str, lines: tuple[int, int], parent: int) -> Scope:
    return Scope(record=kind, name=kind, kind=kind, parent=parent, lines=lines)


TABLE = ScopeTable(scopes=(scope("func", (1, 9), -1), scope("loop", (4, 6), 0)))
TTGIR = [
    "tt.func @kernel() {",
    f'  %x_1 = tt.load %0 loc("{SOURCE}":10:0)',
    *[f'  %{line} = arith.constant 0 : i32 loc("{SOURCE}":{8 + line}:0)' for line in (3, 4, 5, 6)],
    "  tt.return",
    "  tt.store %0, %5",
    "}",
]
# A load of line 2 is awaited by an addition of line 5, in the loop; line 8 stores.
CODE = MachineFunction(
    "kernel",
    (
        Instruction(0, "LDG.E", "R2, [R4]", line=2, result_scoreboard=1),
        Instruction(INSTRUCTION_BYTES, "FADD", "R3, R2, R2", line=5, awaited=(1,)),
        Instruction(2 * INSTRUCTION_BYTES, "STG.E", "[R4], R3", line=8),
        Instruction(3 * INSTRUCTION_BYTES, "EXIT", "", line=0),
    ),
)


def samples(*rows: tuple[int, dict[str, int]]) -> SamplesRecord:
    instructions = tuple(SampledInstruction(index * INSTRUCTION_BYTES, found) for index, found in rows)
    return SamplesRecord(period_cycles=256, launches=1, total=1000, dropped=0, instructions=instructions)


RECORD = samples(
    (0, {"selected": 10, "wait": 5}),
    (1, {"long_scoreboard": 60, "long_scoreboard_not_issued": 50, "selected": 10}),
    (2, {"drain": 10, "not_selected": 3}),
    (3, {"wait": 2}),
    (99, {"wait": 1000}),
)


def test_samples_are_related_to_scopes_lines_and_the_awaited_line() -> None:
    stalls = stalls_of(RECORD, CODE, TABLE, TTGIR)
    assert stalls.samples == 100
    assert stalls.unknown == 2
    assert stalls.scopes[0]["selected"] == 20
    assert stalls.scopes[1] == {"long_scoreboard": 60, "selected": 10}
    assert [line.line for line in stalls.lines] == [5, 2, 8]
    assert stalls.lines[0].awaited == {"long_scoreboard": {2: 60}}
    assert stalls.places_of("long_scoreboard") == ("kernel.py:13", "LDG of 'x' at kernel.py:10")


def test_the_top_reason_is_one_that_something_is_missing_for() -> None:
    top = stalls_of(RECORD, CODE, TABLE, TTGIR).top
    assert top is not None
    assert (top.reason, top.share, top.operation) == ("long_scoreboard", 0.6, "LDG")
    ready = stalls_of(samples((0, {"selected": 10, "not_selected": 30})), CODE, TABLE, TTGIR)
    assert ready.top is None


def test_the_place_is_looked_for_in_the_scope() -> None:
    stalls = stalls_of(samples((1, {"wait": 5}), (2, {"wait": 50})), CODE, TABLE, TTGIR)
    assert stalls.places_of("wait") == ("", "")  # line 8 has no location
    assert stalls.places_of("wait", 1) == ("kernel.py:13", "")


def test_waits_of_a_scope_are_shares_of_its_own_samples() -> None:
    stalls = stalls_of(RECORD, CODE, TABLE, TTGIR)
    ((reason, share),) = stalls.waiting_in(1)
    assert reason == "long_scoreboard"
    assert share.value == pytest.approx(60 / 70)
    assert stalls.waiting_in(7) == []


def test_the_error_of_a_share_is_half_of_its_interval() -> None:
    share = Share.of(100, 10_000)
    assert share.value == 0.01
    assert share.error == pytest.approx(1.96 * (0.01 * 0.99 / 10_000) ** 0.5)
    assert Share.of(0, 0) == Share(0.0, 1.0)


def test_a_load_and_a_special_function_may_share_a_scoreboard() -> None:
    """The reason tells them apart: the L1 has the one, and not the other."""
    code = replace(
        CODE,
        instructions=(
            CODE.instructions[0],
            Instruction(INSTRUCTION_BYTES, "MUFU.RCP", "R6, R7", line=3, result_scoreboard=1),
            Instruction(2 * INSTRUCTION_BYTES, "FMUL", "R3, R2, R6", line=5, awaited=(1,)),
            CODE.instructions[3],
        ),
    )
    stalls = stalls_of(samples((2, {"long_scoreboard": 60, "short_scoreboard": 40})), code, TABLE, TTGIR)
    (waiting, *_) = stalls.lines
    assert waiting.awaited == {"long_scoreboard": {2: 60}, "short_scoreboard": {3: 40}}
    assert share_of_instructions(samples((2, {"long_scoreboard": 60, "wait": 40})), code, ["MUFU"]) == 0
    assert share_of_instructions(samples((2, {"short_scoreboard": 60, "wait": 40})), code, ["MUFU"]) == 0.6


def test_waits_of_instructions_for_other_results_do_not_count() -> None:
    """A store to local memory may wait for a load, which others would wait for without it."""
    local = replace(CODE.instructions[1], opcode="STL")
    code = replace(CODE, instructions=(CODE.instructions[0], local, *CODE.instructions[2:]))
    record = samples((1, {"long_scoreboard": 60, "wait": 10}), (2, {"wait": 30}))
    assert share_of_instructions(record, code, ["STL"]) == 0.1
    assert share_of_instructions(record, code, ["STL", "LDG"]) == 0.7


def test_what_lines_execute_is_without_waits_for_others() -> None:
    stalls = stalls_of(RECORD, CODE, TABLE, TTGIR)
    assert stalls.share_of([5]) == 0.7
    assert stalls.share_of_execution([5]) == pytest.approx(0.1)
    assert stalls.share_of_execution([2, 5]) == stalls.share_of([2, 5])
