"""Which asynchronous operations and waits belong together, in what the compiler makes of real kernels."""

from __future__ import annotations

from collections.abc import Iterator

import golden
import pytest
from programs.child import REPO

from kprof_inject.analysis.async_work.in_flight import AsyncWork, async_work
from kprof_inject.analysis.interpreter.axis_arrays import Mask
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.interpreter.interpreter import executed
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse

FIXTURES = REPO / "ttgir_fixtures" / "3.6.0"
WITH_BARRIERS = [
    *(("cuda-90", name) for name in ("gluon_warp_specialized", "tma_matmul", "ws_matmul")),
    *(("cuda-100", name) for name in ("attention", "fp8_matmul", "gelu_matmul", "gluon_warp_specialized", "matmul")),
    *(("cuda-100", name) for name in ("persistent_matmul", "tma_matmul", "ws_matmul")),
]


def counted(module: Module) -> Iterator[CountedOperation]:
    for function in (one for one in module.walk() if one.name == FUNCTION):
        found = executed(module, function, (4, 4, 1))
        lines = module.line_numbers([one.operation.start for one in found])
        yield from map(CountedOperation.of, lines, found)


def work_of(target: str, name: str) -> AsyncWork:
    path = next(path for path in FIXTURES.glob(f"{target}/{name}.ttgir*"))
    return async_work(list(counted(parse(golden.read(path), str(path)))))


@pytest.mark.parametrize(("target", "name"), WITH_BARRIERS)
def test_every_barrier_that_is_told_has_a_name_and_a_wait(target: str, name: str) -> None:
    """Through captures of partitions and values that loops hand on, though nobody knows how often these go round."""
    work = work_of(target, name)
    told = {issue.slot.allocation for issue in work.issues if issue.slot}
    assert told and not work.unnamed
    assert told == {wait.slot.allocation for wait in work.waits if wait.slot}


def test_what_partitions_exchange_is_told_apart() -> None:
    """Of a matmul on sm_100: the loads' barriers, and two of the tensor cores; that of free buffers is no work's."""
    work = work_of("cuda-100", "ws_matmul")
    assert sorted((issue.work, issue.counted.operation.name) for issue in work.issues if issue.slot) == [
        ("copies", "ttng.async_tma_copy_global_to_local"),
        ("dots", "ttng.tc_gen5_commit"),
        ("dots", "ttng.tc_gen5_mma"),
    ]


def test_a_copys_group_has_all_of_its_bytes() -> None:
    """Two tiles of 128 x 64 halves tell one barrier."""
    copies = [issue for issue in work_of("cuda-90", "tma_matmul").issues if issue.slot]
    assert {issue.group_bytes for issue in copies} == {2 * 128 * 64 * 2}


def test_a_dot_that_is_not_computed_tells_no_barrier() -> None:
    """As where a loop computes the next iteration's first dot, of which the last has none."""
    shared = "!ttg.memdesc<128x128xf16, #s, #smem>"
    text = f"""module {{
  tt.func public @k() {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %c4 = arith.constant 4 : i32
    %true = arith.constant true
    %b = ttg.local_alloc : () -> !ttg.memdesc<1xi64, #s, #smem, mutable>
    scf.for %i = %c0 to %c4 step %c1  : i32 {{
      %more = arith.cmpi slt, %i, %c3 : i32
      ttng.tc_gen5_mma %m, %m, %m, %true, %more, %b[%true] {{is_async}} : {shared}, {shared}, {shared}
      ttng.wait_barrier %b, %c0 : !ttg.memdesc<1xi64, #s, #smem, mutable>
    }}
    tt.return
  }}
}}
"""
    (issue,) = async_work(list(counted(parse(text)))).issues
    assert isinstance(issue.predicate, Mask)
    assert issue.predicate.joint().values.tolist() == [True, True, True, False]
