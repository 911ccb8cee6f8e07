"""The account of waste: what Triton makes of a kernel with a flaw, and of one without, with the work that goes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
from known_kernels import launched
from replacing import replace

pytest.importorskip("triton")

import triton
import triton.language as tl
from compiler import wasteful_kernels as kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kprof_inject.analysis.findings.busy_units import work_by_line
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding, Rule
from kprof_inject.analysis.findings.instructions import (
    address_arithmetic,
    frozen_iterations,
    product_sums,
    random_numbers,
    rounded_functions,
    same_in_all_threads,
    searches,
    special_functions,
)
from kprof_inject.analysis.findings.loaded_again import loaded_again, past_l1, stored_again
from kprof_inject.analysis.findings.memory_accesses import narrow_accesses
from kprof_inject.analysis.findings.repeated_work import divided_in_loop, operands_by_registers, same_in_all_ctas
from kprof_inject.analysis.findings.reuse import shared_loads, symmetric_product
from kprof_inject.analysis.findings.rules import RULES
from kprof_inject.analysis.findings.unneeded_elements import (
    masked_iterations,
    padding,
    unneeded_elements,
    unneeded_results,
)
from kprof_inject.analysis.findings.waits import work_after_wait
from kprof_inject.analysis.findings.wide_types import fp32_dots, fp64, partial_sums, wide_types
from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.analysis.limits.coalescing import requests_of
from kprof_inject.analysis.limits.speed_of_light import SpeedOfLight
from kprof_inject.analysis.limits.stalls import LineStalls, Stalls
from kprof_inject.analysis.summary import summarise
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.runtime.compiling.disassembly import _read, _spaced, disassembled
from kprof_inject.runtime.compiling.module_check import module_target
from kprof_inject.ttgir.parser import parse

pytestmark = pytest.mark.triton
CTAS, WARPS = 8, 4
MOVES = {"DRAM": 0.4, "L2": 0.8, "shared memory and L1": 0.6}
ISSUES = {"instruction issue": 0.9, "ALU": 0.8, "fp32 units": 0.5, "fp64 units": 0.8, "DRAM": 0.1}
DOTS = {"tensor cores": 0.6, "shared memory and L1": 0.6, "L2": 0.5, "instruction issue": 0.3}


@dataclass(frozen=True)
class Case:
    """A kernel in which a rule finds waste; it finds nothing with the arguments ``repair``, or in the kernel ``by``.

    ``removed`` is the part of a unit's work that goes: known, or between two values.
    Pointers have types in place of values, and names in capitals are constants.
    """

    rule: Rule
    kernel: Any
    arguments: Mapping[str, Any]
    removed: Mapping[str, float | tuple[float, float]]
    repair: Mapping[str, Any] = field(default_factory=dict)
    by: Any = None
    parts: Mapping[str, float] = field(default_factory=lambda: MOVES)
    grid: tuple[int, int, int] = (CTAS, 1, 1)


ROW = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": 1 << 20, "B": 1024}
TILE = {
    "x": "*fp32",
    "y": "*fp32",
    "bias": "*fp32",
    "out": "*fp32",
    "flags": "*i8",
    "B": 1024,
    "MASKED": False,
    "stride": 1024,
}
MATRIX = {"x": "*fp16", "y": "*fp16", "out": "*fp32", "n": 512, "B": 64}
CAUSAL = {"q": "*fp16", "k": "*fp16", "v": "*fp16", "out": "*fp32", "n": CTAS * 64, "B": 64, "D": 64}
MASKED, ENDS = {"MASKED": True}, {"ENDS": True}
# Loops of a few instructions are not as busy with these in practice, and tiles are small to be compiled soon.
NEEDED = {"address-arithmetic", "small-tiles", "shared-loads"}
# CTA 0 needs one block of 8, CTA 7 needs all.
ABOVE_DIAGONAL = 28 / 64

CASES = {
    "two loops over one row": Case(loaded_again, kernels.mean_then_variance, ROW, {"L2": 1 / 2}, by=kernels.both_sums),
    # Four times the row and four times what it is multiplied by, which is other data each time.
    "a row for each output": Case(
        loaded_again, kernels.outputs_of_a_row, ROW, {"L2": 3 / 8}, by=kernels.outputs_in_turn
    ),
    # Each of 1,024 iterations loads x and the sum, and stores it: all but one store, and all loads of the sum.
    "a sum in memory": Case(
        stored_again, kernels.sum_in_memory, ROW, {"L2": (2 * 1024 - 1) / (3 * 1024)}, by=kernels.sum_in_registers
    ),
    "a mask after the load": Case(
        unneeded_elements, kernels.select_after_load, {**TILE, "n": 256}, {"L2 to SM": 3 / 4}, MASKED
    ),
    # One of two values of 4 bytes, beside a flag of one.
    "a select by loaded flags": Case(unneeded_elements, kernels.choice, TILE, {"L2 to SM": 4 / 9}, MASKED),
    "blocks above the diagonal": Case(
        masked_iterations,
        kernels.causal,
        {**CAUSAL, "FORM": "selected"},
        {"L2 to SM": ABOVE_DIAGONAL},
        {"FORM": "ends"},
    ),
    "a partial tile": Case(
        padding, kernels.rows_of, {**ROW, "n": 640, "B": 512}, {"fp32 units": 1 - 640 / 1024}, {"B": 128}, parts=ISSUES
    ),
    "iterations beyond the data": Case(
        padding,
        kernels.ragged,
        {**ROW, "step": 4096, "n": CTAS * 4096, "ENDS": False},
        {"fp32 units": 28 / 64},
        ENDS,
        parts=ISSUES,
    ),
    # Operands of 64 x 512 with 4 bytes an element where 2 suffice, and 64 x 64 of the result.
    "fp32 loads for dots of fp16": Case(
        wide_types,
        kernels.dot_of,
        {**MATRIX, "x": "*fp32", "y": "*fp32", "TO": tl.float16, "FORM": "loaded"},
        {"DRAM": 2 * 512 / (4 * 512 + 4 * 512 / 512 * 64 / 2)},
        {"x": "*fp16", "y": "*fp16"},
    ),
    "bits stored as fp32": Case(wide_types, kernels.positive, TILE, {"DRAM": 3 / 8}, {"out": "*i8"}),
    "bf16 converted for dots": Case(
        fp32_dots,
        kernels.dot_of,
        {**MATRIX, "x": "*bf16", "y": "*bf16", "TO": tl.float32, "FORM": "multiplied"},
        {"tensor cores": 1 / 2},
        {"TO": tl.bfloat16},
        parts=DOTS,
    ),
    "fp64 in between": Case(
        fp64,
        kernels.sum_in,
        {**ROW, "n": 8192, "IN": tl.float64},
        {"fp64 units": 1.0},
        {"IN": tl.float32},
        parts=ISSUES,
    ),
    "a stride that is not specialized": Case(
        narrow_accesses,
        kernels.scale_of_unknown_stride,
        TILE,
        {"shared memory and L1": (3 / 8, 3 / 4)},  # Triton 3.9 makes wider accesses of it
        by=kernels.scale,
        parts={"shared memory and L1": 0.9},
    ),
    "a division for each element": Case(
        address_arithmetic,
        kernels.bias_by_division,
        {**TILE, "height": 24, "width": 40, "B": 8192},
        {"instruction issue": (0.5, 0.9)},
        by=kernels.bias_by_row,
        parts=ISSUES,
    ),
    "single elements": Case(
        same_in_all_threads,
        kernels.horner_of_one,
        {**ROW, "n": 64},
        {"instruction issue": (0.5, 1 - 1 / 128)},
        by=kernels.horner,
        parts=ISSUES,
    ),
    "a table for each head": Case(
        same_in_all_ctas,
        kernels.rotate,
        {**TILE, "table": "*fp32", "n": 32, "B": 64, "LOADED": False},
        {"instruction issue": (0.6, 1.0)},
        {"LOADED": True},
        parts=ISSUES,
        grid=(4, 32, 1),
    ),
    "a factor in the loop": Case(
        operands_by_registers,
        kernels.scaled_matmul,
        {**MATRIX, "factor": "fp32", "AFTER": False},
        {"instruction issue": (0.1, 0.9)},
        {"AFTER": True},
        parts=DOTS,
    ),
    "rounded by IEEE 754": Case(
        rounded_functions,
        kernels.normalise,
        {**TILE, "ROUNDED": True},
        {"instruction issue": (0.5, 0.9)},
        {"ROUNDED": False},
        parts=ISSUES,
    ),
    "a power with a constant exponent": Case(
        rounded_functions,
        kernels.power,
        {**TILE, "LIBRARY": True},
        {"instruction issue": (0.5, 1.0)},
        {"LIBRARY": False},
        parts=ISSUES,
    ),
    "one of four random numbers": Case(
        random_numbers,
        kernels.drop,
        {**TILE, "seed": 7},
        {"instruction issue": (0.5, 0.75)},
        by=kernels.scale,
        parts=ISSUES,
    ),
    "a matrix product by vectors": Case(
        product_sums,
        kernels.product_of_vectors,
        MATRIX,
        {"fp32 units": (0.6, 1.0)},
        by=kernels.product_by_dots,
        parts=ISSUES,
    ),
    "a matrix product by broadcasts": Case(
        product_sums,
        kernels.product_by_broadcast,
        {**MATRIX, "mass": "*fp32", "B": 32},
        {"fp32 units": (0.6, 1.0)},
        repair={"x": "*fp32"},
        by=kernels.forces,
        parts=ISSUES,
    ),
    # All but the tiles on the diagonal are computed twice; the square of a matrix has no equal halves.
    "a matrix by its transpose": Case(
        symmetric_product,
        kernels.product_of_itself,
        {**MATRIX, "n": 256, "TURNED": True},
        {"L2": (0.4, 0.5)},
        {"TURNED": False},
        grid=(4, 4, 1),
    ),
    "iterations without effect": Case(
        frozen_iterations,
        kernels.escape_time,
        {**ROW, "n": 512, "ENDS": False},
        {"fp32 units": (0.7, 0.9)},
        ENDS,
        parts=ISSUES,
    ),
    # Each of eight CTAs needs two of the eight blocks.
    "factors that are zero": Case(
        masked_iterations,
        kernels.grouped_matmul,
        {**MATRIX, "n": 128, "B": 64, **MASKED},
        {"L2 to SM": 3 / 4},
        {"MASKED": False},
    ),
    "a length after the load": Case(
        unneeded_elements,
        kernels.sum_of_length,
        {**ROW, "y": "*i32", "n": 8192, "MASKED": False},
        {"L2 to SM": (0.8, 0.95)},
        MASKED,
    ),
    "loads past the L1": Case(
        loaded_again, kernels.filter_of_three, {**ROW, "MODIFIER": ".cg"}, {"L2": (0.5, 0.6)}, {"MODIFIER": ""}
    ),
    "a division in each iteration": Case(
        divided_in_loop,
        kernels.running_mean,
        {**ROW, "weights": "*fp32", "n": 512, "B": 128, "AFTER": False},
        {"instruction issue": (0.3, 0.9)},
        {"AFTER": True},
        parts=ISSUES,
    ),
    "a sort for two": Case(
        unneeded_results,
        kernels.largest_two,
        {**ROW, "B": 256, "SORTED": True},
        {"instruction issue": (0.7, 1.0)},
        {"SORTED": False},
        parts=ISSUES,
    ),
    # Each of 8 rows of CTAs loads 8 rows of x for one of its own: 64, of which 15 differ.
    "a flat tile": Case(
        shared_loads,
        kernels.column_sums,
        {**ROW, "n": 1024, "TALL": 1, "WIDE": 1024},
        {"L2": 1 - 15 / 64},
        {"TALL": 8, "WIDE": 128},
        grid=(1, 8, 1),
    ),
    "gathers past the L1": Case(
        past_l1, kernels.decode, {**ROW, "y": "*i32", "MODIFIER": ".cg"}, {"L2": 1.0}, {"MODIFIER": ""}
    ),
    "a search to the end": Case(
        searches,
        kernels.place_of_sum,
        {**ROW, "n": 8192, "ENDS": False},
        {"L2": 0.9},
        ENDS,
        parts={**MOVES, "instruction issue": 0.6},
    ),
    "a loaded offset": Case(
        narrow_accesses,
        kernels.packed,
        {"x": "*i8", "y": "*i32", "out": "*i8", "B": 2048, "ALIGNED": False},
        {"shared memory and L1": (0.3, 0.95)},
        {"ALIGNED": True},
        parts={"shared memory and L1": 0.9},
    ),
    "a product of exponentials": Case(
        special_functions,
        kernels.three_weights,
        {**ROW, "n": 64, "JOINED": False},
        {"special functions": (0.3, 0.6)},
        {"JOINED": True},
        parts={**ISSUES, "special functions": 0.6},
    ),
    "keys of 64 bits": Case(
        unneeded_results,
        kernels.order_of,
        {"x": "*i16", "out": "*i32", "B": 128, "WIDE": True},
        {"instruction issue": (0.4, 0.5)},
        {"WIDE": False},
        parts=ISSUES,
    ),
    "sums outside of the tensor cores": Case(
        partial_sums,
        kernels.dot_of_bytes,
        {**MATRIX, "x": "*fp8e4nv", "y": "*fp8e4nv", "PRODUCTS": 32},
        {"instruction issue": (0.05, 0.7)},
        {"PRODUCTS": 128},
        parts=DOTS,
    ),
}


@cache
def compiled(kernel: Any, **arguments: Any) -> tuple[str, MachineFunction]:
    """The TTGIR, and the machine code with its lines."""
    names = [name for name in kernel.arg_names if not name.isupper()]
    constants = {name: arguments[name] for name in kernel.arg_names if name.isupper()}
    types = {name: "i32" if isinstance(arguments[name], int) else arguments[name] for name in names}
    types |= dict.fromkeys(constants, "constexpr")
    free = [kernel.params[place].do_not_specialize for place in range(len(kernel.arg_names))]
    known = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(kernel.arg_names)
        if name in names and not free[place] and _address(arguments[name], place) % 16 == 0
    }
    source = ASTSource(kernel, types, constants, known)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": WARPS})
    text = built.asm["ttgir"]
    module = parse(text, "kernel.ttgir")
    target = module_target(module)
    printed = disassembled(_spaced(module), target, {"num_warps": WARPS}, Path())
    (code,) = _read(printed, target)
    return text, code


def _address(value: Any, place: int) -> int:
    """Return an argument's value; pointers are far apart, and other values unknown to be aligned."""
    if isinstance(value, int):
        return value
    return place + 1 << 36 if value.startswith("*") else 1


def evidence_of(folder: Path, kernel: Any, arguments: Mapping[str, Any], case: Case) -> Evidence:
    own = {name: arguments[name] for name in kernel.arg_names}
    text, code = compiled(kernel, **own)
    given = [
        _address(value, place) if value != "fp32" else None
        for place, (name, value) in enumerate(own.items())
        if not name.isupper()
    ]
    ran = evaluated(text, "kernel.ttgir", case.grid, tuple(given), ScopeTable())
    timeline = launched(folder)
    metadata = {**timeline.launch.kernel.metadata, "target": {"backend": "cuda", "arch": 90}}
    launch = replace(timeline.launch, kernel=replace(timeline.launch.kernel, metadata=metadata, num_warps=WARPS))
    timeline = replace(timeline, launch=launch)
    summary = replace(summarise(timeline), duration_ns=100_000, ctas=prod(case.grid))
    light = SpeedOfLight((), missing=Unjudged("made by hand", ""))
    requests = requests_of(ran, code)
    return Evidence(timeline, summary, light, ran, parts=case.parts, machine_code=code, requests=requests)


def found_by(rule: Rule, evidence: Evidence) -> list[Finding]:
    return [one for one in rule(evidence) if isinstance(one, Finding)]


def _marked(case: Case) -> list[int]:
    """Return the lines of the kernel to be named."""
    lines, first = inspect.getsourcelines(case.kernel.fn)
    marks = ("# here\n", f"# here if {case.arguments.get('FORM')}\n")
    return [first + place for place, line in enumerate(lines) if line.endswith(marks)]


@pytest.mark.parametrize("name", CASES)
def test_a_flaw_and_its_repair(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    evidence = evidence_of(tmp_path, case.kernel, case.arguments, case)
    (finding,) = found_by(case.rule, evidence)
    for unit, part in case.removed.items():
        if isinstance(part, tuple):
            assert part[0] <= finding.removed[unit] <= part[1], unit
        else:
            assert finding.removed[unit] == pytest.approx(part), unit
    marked = {f"wasteful_kernels.py:{line}" for line in _marked(case)}
    assert evidence.executed is not None
    operations = evidence.executed.module.walk()
    named = {evidence.place_of(one) for one in operations if evidence.first_lines_of([one])[0] in finding.lines}
    assert marked <= named
    repaired = evidence_of(tmp_path / "repaired", case.by or case.kernel, {**case.arguments, **case.repair}, case)
    found = {one.rule for rule in RULES for one in found_by(rule, repaired) if one.removed}
    assert found.isdisjoint(case.rule.names)
    assert found <= NEEDED, "what remains is needed, or not what this kernel is about"


def test_the_lines_that_a_busy_unit_works_for(tmp_path: Path) -> None:
    """All exponentials are at one line; a unit that is not busy, and tensor cores, are not worth a word."""
    case = Case(loaded_again, kernels.exponentials, {**ROW, "n": 64}, {}, parts={"special functions": 0.9})
    evidence = evidence_of(tmp_path, case.kernel, case.arguments, case)
    less, where = work_by_line(evidence)
    assert less.startswith("fewer special functions")
    assert f"wasteful_kernels.py:{_marked(case)[0]} (100.0 %)" in where
    for parts in ({"special functions": 0.4}, {"tensor cores": 0.9}, {"DRAM": 0.9, "special functions": 0.8}):
        assert work_by_line(replace(evidence, parts=parts)) == ("", "")


def test_neighbours_of_a_stencil_are_in_the_l1(tmp_path: Path) -> None:
    """What overlaps is found there: it takes the L1 as long as the first load and the store, and the L2 no time.

    The compiler makes two loads of three.
    """
    case = Case(loaded_again, kernels.stencil, ROW, {}, parts={"shared memory and L1": 0.9, "L2": 0.5})
    evidence = evidence_of(tmp_path, case.kernel, case.arguments, case)
    if triton.__version__ >= "3.9" and not found_by(case.rule, evidence):
        pytest.skip("with the layouts of Triton 3.9, less is to win than a finding needs")
    (finding,) = found_by(case.rule, evidence)
    assert "L2" not in finding.removed and finding.removed["shared memory and L1"] == pytest.approx(1 / 3)
    assert not found_by(case.rule, replace(evidence, parts=MOVES))


@pytest.mark.parametrize("types", [{"out": "*bf16"}, {"x": "*bf16"}])
def test_conversions_need_both_types(tmp_path: Path, types: dict[str, str]) -> None:
    case = Case(wide_types, kernels.convert, {**TILE, **types}, {})
    assert not found_by(case.rule, evidence_of(tmp_path, case.kernel, case.arguments, case))


def test_a_division_that_is_called_has_the_line_of_its_caller() -> None:
    """ptxas divides by 64 bits in a function of its own."""
    text, code = compiled(kernels.columns_of, x="*fp32", out="*fp32", width=1000, B=1024)
    ends = [place for place, one in enumerate(code.instructions) if one.operation == "EXIT" and not one.predicate]
    called = {one.line for one in code.instructions[ends[0] + 1 :] if one.operation not in ("BRA", "NOP")}
    assert any(one.operation == "CALL" for one in code.instructions)
    assert ["arith.remsi" in text.splitlines()[line - 1] for line in called] == [True]


def test_a_factor_of_each_iteration_cannot_move_behind_the_loop(tmp_path: Path) -> None:
    """It comes from a buffer of shared memory, which is the same in all iterations."""
    arguments = {"x": "*fp16", "y": "*i8", "scales": "*fp16", "out": "*fp32", "n": 512, "B": 64}
    parts = {**DOTS, "shared memory and L1": 0.9, "instruction issue": 0.9}
    case = Case(operands_by_registers, kernels.dequantized_matmul, arguments, {}, parts=parts)
    (finding,) = found_by(case.rule, evidence_of(tmp_path, case.kernel, arguments, case))
    assert finding.advice.startswith("convert or scale the operand once")


def test_work_that_follows_a_wait_for_another_cta(tmp_path: Path) -> None:
    for early, names in ((False, [f"wasteful_kernels.py:{_marked(SCAN)[0]}"]), (True, [])):
        evidence = evidence_of(tmp_path / str(early), SCAN.kernel, {**SCAN.arguments, "EARLY": early}, SCAN)
        (spin,) = [one for one in evidence.loops if one.name == "scf.while"]
        stalls = Stalls(100, {}, {}, (LineStalls(evidence.first_lines_of([spin])[0], None, {"wait": 90}, {}),), 0, {})
        found = found_by(work_after_wait, replace(evidence, stalls=stalls))
        assert [one.text.partition("; at most")[0].rpartition(" at ")[2] for one in found] == names


SCAN = Case(
    work_after_wait,
    kernels.scan_of_tiles,
    {"x": "*i32", "state": "*i32", "out": "*i32", "B": 1024},
    {},
    parts={"L2": 0.1},
)
