"""Edits of TTGIR are compiled to machine code, permute the programs, and are refused where the order matters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from edited_kernels import PATHS, fixture_to_edit, kernel_to_edit
from golden import fixture_id, kernel_of, read

from kprof_inject.capture.edits import Edit
from kprof_inject.runtime.compiling.builds import compile_text
from kprof_inject.runtime.worker.edit import EditRefused
from kprof_inject.runtime.worker.edit_kinds import KINDS, with_ttgir_edited

# Of each form: grids of one and two dimensions, and helpers.
ALWAYS_COMPILED = {"matmul", "softmax", "noinline_helper"}
FIXTURES = [
    pytest.param(path, id=fixture_id(path), marks=[] if kernel_of(path) in ALWAYS_COMPILED else pytest.mark.exhaustive)
    for path in PATHS
]


@pytest.mark.triton
@pytest.mark.parametrize("path", FIXTURES)
def test_edited_modules_become_machine_code(path: Path, tmp_path: Path) -> None:
    kernel = kernel_to_edit(read(path))
    of_each_kind = {value.partition(":")[0]: value for value in KINDS["program_order"].more(kernel)}
    for value in of_each_kind.values():
        edited = with_ttgir_edited(kernel, [Edit("program_order", value)])
        assert edited.ttgir != kernel.ttgir
        place = tmp_path / value.replace(":", "-")
        place.mkdir()
        compile_text(edited.ttgir, edited.record, place)
        (cubin,) = place.glob("*.cubin")
        assert cubin.read_bytes()[:4] == b"\x7fELF"


def test_only_lines_of_program_ids_change() -> None:
    kernel = fixture_to_edit("attention")
    edited = with_ttgir_edited(kernel, [Edit("program_order", "reversed")])
    kept = [line for line in edited.ttgir.splitlines() if "kprof_order" not in line]
    assert kept == [line for line in kernel.ttgir.splitlines() if "tt.get_program_id" not in line]


# The permutation, computed by the lines that an edit writes.

LINE = re.compile(r"\s*(%[\w$.-]+) = (\S+) (.*?) : i32.*")


def program_after(text: str, values: dict[str, int], grid: tuple[int, int], at: tuple[int, int]) -> dict[str, int]:
    """Compute the inserted lines of ``text`` for the program ``at`` a place of the grid."""
    for line in text.splitlines():
        found = LINE.match(line)
        if found is None or not ("kprof_order" in line or found[1] in values):
            continue
        result, name, operands = found.groups()
        if name == "tt.get_program_id":
            values[result] = at["xy".index(operands)]
        elif name == "tt.get_num_programs":
            values[result] = grid["xy".index(operands)]
        elif name == "arith.constant":
            values[result] = int(operands)
        elif "kprof_order" in operands:
            a, *rest = (values[word] for word in re.findall(r"%[\w$.-]+", operands))
            values[result] = {
                "arith.addi": lambda a, b: a + b,
                "arith.subi": lambda a, b: a - b,
                "arith.muli": lambda a, b: a * b,
                "arith.divsi": lambda a, b: a // b,
                "arith.remsi": lambda a, b: a % b,
                "arith.minsi": min,
                "arith.maxsi": max,
                "arith.cmpi": lambda a, b: int(a == b),
                "arith.select": lambda a, b, c: b if a else c,
            }[name](a, *rest)
    return values


@pytest.mark.parametrize("grid", [(1, 1), (7, 3), (3, 17), (16, 16), (5, 9)])
@pytest.mark.parametrize("value", ["grouped:8", "grouped:4", "columns", "columns_reversed", "reversed"])
def test_each_tile_of_a_plane_is_computed_once(grid: tuple[int, int], value: str) -> None:
    text = with_ttgir_edited(fixture_to_edit("fp8_matmul"), [Edit("program_order", value)]).ttgir
    places = [(x, y) for y in range(grid[1]) for x in range(grid[0])]
    tiles = []
    for at in places:
        values = program_after(text, {"%tile_m": 0, "%tile_n": 0}, grid, at)
        tiles.append((values["%tile_m"], values["%tile_n"]))
    assert sorted(tiles) == sorted(places)
    by_column = [(x, y) for x in range(grid[0]) for y in range(grid[1])]
    known = {"reversed": places[::-1], "columns": by_column, "columns_reversed": by_column[::-1]}
    if value in known:
        assert tiles == known[value]
    else:
        rows = int(value.partition(":")[2])
        first = tiles[: min(rows, grid[1])]
        assert first == [(0, y) for y in range(len(first))], "the first tiles are one below the other"


@pytest.mark.parametrize(("programs", "row"), [(64, 16), (48, 16), (16, 16), (50, 16), (7, 3), (3, 8)])
@pytest.mark.parametrize("value", ["grouped:8", "grouped:4", "columns", "columns_reversed"])
def test_each_tile_of_a_line_is_computed_once(programs: int, row: int, value: str) -> None:
    text = with_ttgir_edited(fixture_to_edit("matmul"), [Edit("program_order", value)]).ttgir
    ids = []
    for number in range(programs):
        values = {"%pid": 0, "%tiles_in_group": row}
        before_first_use = text.partition("%first_m =")[0]
        ids.append(program_after(before_first_use, values, (programs, 1), (number, 0))["%pid"])
    assert sorted(ids) == list(range(programs))
    if programs % row:
        assert ids == list(range(programs)), "an incomplete row stays as it is"
    elif value.startswith("columns"):
        by_column = [row * y + x for x in range(row) for y in range(programs // row)]
        assert ids == (by_column if value == "columns" else by_column[::-1])
    else:
        rows = min(int(value.partition(":")[2]), programs // row)
        assert ids[:rows] == [row * number for number in range(rows)]


KERNEL = """module attributes {"ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func public @k(%p: !tt.ptr<i32>, %q: !tt.ptr<f32>) {
    %id = tt.get_program_id x : i32
    %one = arith.constant 1 : i32
    %true = arith.constant true
    %value = arith.constant 1.000000e+00 : f32
    BODY
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("%t = tt.atomic_rmw add, acq_rel, gpu, %p, %one, %true : (!tt.ptr<i32>, i32, i1) -> i32\n"
         "    tt.store %p, %t : !tt.ptr<i32>", "communicate"),
        ("%t = tt.atomic_rmw exch, acq_rel, gpu, %p, %one, %true : (!tt.ptr<i32>, i32, i1) -> i32", "communicate"),
        ("%t = tt.atomic_cas acq_rel, gpu, %p, %one, %id : (!tt.ptr<i32>, i32, i32) -> i32", "communicate"),
        ('%t = tt.elementwise_inline_asm "mov.u32 $0, %ctaid.x;" '
         '{constraints = "=r,r", packed_element = 1 : i32, pure = true} %one : i32 -> i32', "numbers its CTAs"),
    ],
)  # fmt: skip
def test_another_order_is_refused_where_it_matters(body: str, reason: str) -> None:
    kernel = kernel_to_edit(KERNEL.replace("BODY", body))
    assert list(KINDS["program_order"].more(kernel)) == []
    with pytest.raises(EditRefused, match=reason):
        with_ttgir_edited(kernel, [Edit("program_order", "reversed")])


def test_sums_by_atomics_may_be_in_any_order() -> None:
    body = "%t = tt.atomic_rmw fadd, acq_rel, gpu, %q, %value, %true : (!tt.ptr<f32>, f32, i1) -> f32"
    kernel = kernel_to_edit(KERNEL.replace("BODY", body))
    assert list(KINDS["program_order"].more(kernel)) == ["reversed"]


@pytest.mark.parametrize(
    ("edit", "reason"),
    [(Edit("program_order", "grouped:8"), "no second coordinate"), (Edit("program_order", "sideways"), "none of")],
)
def test_refused(edit: Edit, reason: str) -> None:
    with pytest.raises(EditRefused, match=reason):
        with_ttgir_edited(kernel_to_edit(KERNEL.replace("BODY", "")), [edit])


def test_a_use_before_the_division_prevents_groups() -> None:
    body = "%x = arith.addi %id, %one : i32\n    %y = arith.divsi %id, %one : i32"
    assert list(KINDS["program_order"].more(kernel_to_edit(KERNEL.replace("BODY", body)))) == ["reversed"]


def test_a_module_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(EditRefused):
        with_ttgir_edited(kernel_to_edit("module {"), [Edit("program_order", "reversed")])
