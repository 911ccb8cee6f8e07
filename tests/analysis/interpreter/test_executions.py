"""How often the CTAs of a launch executed each operation: by its records, and by its arguments where there are none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from buffers import Scope
from replacing import replace
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.interpreter.executions import ExecutedKernel, evaluated_kernel, with_recorded_iterations
from kprof_inject.analysis.summary import summarise
from kprof_inject.errors import KprofError

TEXT = """\
module {
  tt.func private @called(%f: f32) -> f32 {
    %inner = arith.addf %f, %f : f32
    tt.return %inner : f32
  }
  tt.func public @k(%p: !tt.ptr<i32>, %n: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %x = tt.get_program_id x : i32
    scf.for %i = %c0 to %n step %c1  : i32 {
      %once = arith.addi %i, %x : i32
      scf.for %j = %c0 to %c4 step %c1  : i32 {
        %four = arith.addi %j, %i : i32
      }
      %few = arith.cmpi slt, %i, %c4 : i32
      scf.if %few {
        %sometimes = arith.addi %i, %c1 : i32
      }
      %ahead = ttng.tc_gen5_mma %a, %b, %d[], %few, %few : !ttg.memdesc<128x64xf16>
      %v = tt.load %p : !tt.ptr<i32>
      %is = arith.cmpi slt, %v, %c4 : i32
      %flagged = ttng.tc_gen5_mma %a, %b, %d[], %few, %is : !ttg.memdesc<128x64xf16>
      scf.for %k = %c0 to %v step %c1  : i32 {
        %nobody = arith.addi %k, %i : i32
      }
    }
    tt.return
  }
}
"""
LOOP, ITERATION, BODY = (11, 27), (12, 26), (7, 28)
CTAS, WARPS = 3, 2


def ran_on(folder: Path, iterations: int, lines: Mapping[str, tuple[int, int]], n: int | None) -> ExecutedKernel:
    """Each CTA recorded so many iterations of the outer loop, with each of its warps."""
    scopes = [Scope("func"), Scope("loop[0]", "loop", 0), Scope("iter[0]", "iter", 1)]
    warps = [(cta, warp) for cta in range(CTAS) for warp in range(WARPS)]
    rows = [Ran(scope, 9, *at) for at in warps for scope in (0, 1, *[2] * iterations)]
    ctas = cta_rows(*((cta, cta, 0, 1, 1) for cta in range(CTAS)))
    made = made_timeline(folder, scopes, [scope_rows(rows)], ctas, warps=WARPS)
    table = replace(made.table, scopes=tuple(replace(one, lines=lines.get(one.name)) for one in made.table.scopes))
    (made.launch.kernel.folder / "kernel.ttgir").write_text(TEXT)
    kernel = replace(made.launch.kernel, scopes=table)
    launch = replace(made.launch, kernel=kernel, grid=(CTAS, 1, 1), arguments=(4096, n))
    ran = evaluated_kernel(launch)
    return with_recorded_iterations(ran, summarise(replace(made, table=table, launch=launch)))


def times_of(kernel: ExecutedKernel) -> dict[str, int | None]:
    names = ("once", "four", "sometimes", "ahead", "flagged", "nobody", "inner")
    found = {one.operation.results.strip(" %="): one.times for one in kernel.operations}
    return {name: found[name] for name in names}


NEVER_KNOWN = {"flagged": None, "nobody": None, "inner": None}
RECORDED = {"func": BODY, "loop[0]": LOOP, "iter[0]": ITERATION}


def test_iterations_that_were_recorded_are_counted(tmp_path: Path) -> None:
    """And those inside of them, if the text tells how many there are; and all dots of which the predicate asks whether
    there is an iteration that they are for."""
    times = times_of(ran_on(tmp_path, 5, RECORDED, None))
    assert times == {"once": 15, "four": 60, "ahead": 15} | NEVER_KNOWN | {"sometimes": None}


def test_without_records_the_arguments_tell(tmp_path: Path) -> None:
    times = times_of(ran_on(tmp_path, 5, {"func": BODY}, 6))
    assert times == {"once": 18, "four": 72, "sometimes": 12, "ahead": 12} | NEVER_KNOWN


def test_records_go_before_arguments(tmp_path: Path) -> None:
    """But they do not tell of a condition, or of a predicate."""
    times = times_of(ran_on(tmp_path, 5, RECORDED, 6))
    assert times == {"once": 15, "four": 60, "sometimes": 12, "ahead": 12} | NEVER_KNOWN


def test_without_records_and_arguments_nobody_knows(tmp_path: Path) -> None:
    times = times_of(ran_on(tmp_path, 5, {"func": BODY}, None))
    assert set(times.values()) == {None}


def test_what_is_no_module_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TEXT", "nothing\n")
    with pytest.raises(KprofError):
        ran_on(tmp_path, 5, RECORDED, 6)
