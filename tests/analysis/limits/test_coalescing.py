"""Sectors, lines and cycles of the L1 of loads and stores, by hand."""

from __future__ import annotations

import pytest
from strided_loads import BASE, CTAS, ROW, THIN, strided

from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.analysis.limits.coalescing import Requests, is_spread, requests_of, worst_of
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.machine_code.instructions import Instruction, MachineFunction


def requests(layout: str, *, code: str = "", **parameters: int) -> tuple[Requests, Requests]:
    """Return the load's and the store's. ``code`` is the opcode of the load."""
    ran = strided(layout, **parameters)
    line = next(one.line for one in ran.operations if one.operation.name == "tt.load")
    instructions = (Instruction(0, code, "", line=line),) if code else ()
    load, store = requests_of(ran, MachineFunction("k", instructions))
    return load, store


def counts(found: Requests) -> tuple[float, float, float, float, float]:
    return found.sectors, found.adjacent_sectors, found.lines, found.adjacent_lines, found.wavefronts


def test_adjacent_addresses_touch_what_they_need() -> None:
    for found in requests(ROW):
        assert (found.access_bytes, found.instructions) == (16, CTAS * 2 * 4)
        assert counts(found) == (16, 16, 4, 4, 4)
        assert not found.is_uncoalesced
        assert found.extra_wavefronts == found.extra_sectors == 0
    load, _ = requests(THIN)
    assert (load.access_bytes, load.instructions) == (4, CTAS * 8 * 4)
    assert counts(load) == (4, 4, 1, 1, 1)


def test_accesses_are_as_wide_as_the_machine_codes() -> None:
    """Four loads of a thread, each 16 bytes from its neighbour's, touch the same 16 sectors."""
    load, _ = requests(ROW, code="LDG.E")
    assert (load.access_bytes, load.instructions) == (4, CTAS * 8 * 4)
    assert counts(load) == (16, 4, 4, 1, 4)
    assert load.is_uncoalesced
    assert load.extra_wavefronts == CTAS * 8 * 4 * 3
    assert load.text == "each load of 'value' at kernel.py:7 touches 16.0 sectors of 32 bytes, where 4 would do"


def test_rows_that_are_not_aligned_are_accessed_element_by_element() -> None:
    """Each CTA begins 4 bytes further on: seven of eight touch another sector and line, all of them other banks."""
    load, _ = requests(THIN, row=1025)
    assert counts(load) == (4 + 7 / 8, 4, 1 + 7 / 8, 1, 1)
    load, _ = requests(ROW, row=1025)
    assert load.access_bytes == 4
    assert load.wavefronts == 4 < load.lines


@pytest.mark.parametrize(
    ("step", "expected"),
    [(2, (8, 4, 2, 1, 2)), (8, (32, 4, 8, 1, 8)), (32, (32, 4, 32, 1, 32)), (0, (1, 1, 1, 1, 1))],
)
def test_strides(step: int, expected: tuple[float, ...]) -> None:
    """Elements of 4 bytes, ``step`` elements apart; with a step of 0, all lanes have the same."""
    load, store = requests(THIN, step=step)
    assert counts(load) == counts(store) == expected


def test_lines_may_be_many_where_sectors_are_not() -> None:
    """Lanes of 16 bytes, two of them in each line of 128 bytes."""
    rows = "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [16, 2], warpsPerCTA = [4, 1], order = [1, 0]}>"
    load = matrix(rows, 64, 8, 32)
    assert counts(load) == (16, 16, 16, 4, 16)
    assert load.is_uncoalesced
    assert "touches 16.0 lines of 128 bytes, where 4 would do" in load.text
    along = rows.replace("[16, 2]", "[4, 8]")
    assert counts(matrix(along, 16, 32, 32)) == (16, 16, 4, 4, 4)
    across = along.replace("[1, 0]", "[0, 1]").replace("[1, 4]", "[1, 1]")
    assert counts(matrix(across, 16, 32, 32)) == (4, 4, 4, 1, 4)


MATRIX = """
#l = LAYOUT
#r = #ttg.slice<{dim = 1, parent = #l}>
#c = #ttg.slice<{dim = 0, parent = #l}>
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%p: !tt.ptr<f32>) {
    %i = tt.make_range {end = ROWS : i32, start = 0 : i32} : tensor<ROWSxi32, #r>
    %j = tt.make_range {end = COLUMNS : i32, start = 0 : i32} : tensor<COLUMNSxi32, #c>
    %pitch = arith.constant dense<PITCH> : tensor<ROWSxi32, #r>
    %o = arith.muli %i, %pitch : tensor<ROWSxi32, #r>
    %a = tt.expand_dims %o {axis = 1 : i32} : tensor<ROWSxi32, #r> -> tensor<ROWSx1xi32, #l>
    %b = tt.expand_dims %j {axis = 0 : i32} : tensor<COLUMNSxi32, #c> -> tensor<1xCOLUMNSxi32, #l>
    %y = tt.broadcast %a : tensor<ROWSx1xi32, #l> -> tensor<ROWSxCOLUMNSxi32, #l>
    %x = tt.broadcast %b : tensor<1xCOLUMNSxi32, #l> -> tensor<ROWSxCOLUMNSxi32, #l>
    %z = arith.addi %x, %y : tensor<ROWSxCOLUMNSxi32, #l>
    %q = tt.splat %p : !tt.ptr<f32> -> tensor<ROWSxCOLUMNSx!tt.ptr<f32>, #l>
    %r = tt.addptr %q, %z : tensor<ROWSxCOLUMNSx!tt.ptr<f32>, #l>, tensor<ROWSxCOLUMNSxi32, #l>
    %value = tt.load %r : tensor<ROWSxCOLUMNSx!tt.ptr<f32>, #l>
    tt.return
  }
}
"""


def matrix(layout: str, rows: int, columns: int, pitch: int) -> Requests:
    """Return the requests of a load whose rows are ``pitch`` elements apart."""
    text = MATRIX.replace("LAYOUT", layout).replace("ROWS", str(rows)).replace("COLUMNS", str(columns))
    ran = evaluated(text.replace("PITCH", str(pitch)), "k.ttgir", (1, 1, 1), (BASE,), ScopeTable())
    (load,) = requests_of(ran, None)
    return load


def test_lanes_that_a_mask_disables_touch_nothing() -> None:
    load, store = requests(THIN, few=16)
    assert load.active_share == store.active_share == 1 / 32
    assert counts(load) == (2, 2, 1, 1, 1)
    assert requests(THIN, few=512)[0].active_share == 0.5
    # A mask that ends within the elements of a thread makes its accesses narrow.
    assert requests(ROW, few=511)[0].access_bytes == 4
    assert requests(ROW, few=512)[0].access_bytes == 16


def test_of_warps_with_the_same_elements_one_stores() -> None:
    load, store = requests(THIN, size=32)
    assert load.instructions == store.instructions == CTAS * 4
    assert (load.active_share, store.active_share) == (1, 1 / 4)


def test_the_worst_access_takes_most_cycles() -> None:
    adjacent, strided, worse = requests(THIN)[0], requests(THIN, step=8)[0], requests(THIN, step=32)[0]
    assert worst_of([adjacent, strided, worse]) == worse
    assert worst_of([adjacent]) is None
    assert is_spread([adjacent, strided])
    assert not is_spread([adjacent] * 8 + [strided])
    assert not is_spread([])


def test_layouts_for_other_warps_are_skipped() -> None:
    assert requests_of(strided(THIN.replace("[32]", "[64]")), None) == ()
