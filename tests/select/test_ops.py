"""``op(GLOB)``: each operation of a name; ``async``: those that start asynchronous work or wait for some."""

from __future__ import annotations

import pytest
from planning import counts, insertion_of, plan_of
from small_modules import found, kernel, missed, sequence
from snapshots import check

from kprof_inject.capture.schema import PointRecord
from kprof_inject.errors import KprofError

LOAD = "%x = tt.load %p : !tt.ptr<f32>"
STORE = "tt.store %p, %x : !tt.ptr<f32>"
LOOP = "scf.for %i = %a to %n step %c  : i32 {"


def test_each_operation_of_the_name() -> None:
    text = kernel(f"{LOAD} @5", LOOP, f"  {STORE} @6", f"  {LOAD} @h.py:3<7", "} @5")
    plan = plan_of(text, "op(tt.load)")

    assert sequence(text, "op(tt.load)") == (
        "[tt.load#0 tt.load tt.load#0] scf.for tt.store [tt.load#1 tt.load tt.load#1] } tt.return"
    )
    assert found(plan) == [("tt.load#0", "function", 1, 0), ("tt.load#1", "body", 1, 0)]
    assert [(s.kind, s.label, s.name) for s in plan.scopes] == 2 * [("op", "tt.load", "tt.load")]
    assert plan.scopes[1].source == PointRecord("h.py", 3, 0)
    assert [point.line for point in plan.scopes[1].called_from] == [7]


@pytest.mark.parametrize(
    ("glob", "count"),
    [("tt.*", 3), ("*load*", 2), ("tt.?????", 2), ("tt.loa[cd]", 1), ("load", 0), ("TT.LOAD", 0), ("*", 5)],
)
def test_globs(glob: str, count: int) -> None:
    text = kernel(LOAD, "ttg.local_load %s : i32", STORE, 'tt.print "x: " {hex = false} : %x', "gpu.barrier")

    assert counts(plan_of(text, f"op({glob})", "func")) == ({f"op({glob})": count, "func": 1} if count else {"func": 1})


def test_the_end_of_a_block_gets_no_record() -> None:
    text = kernel("cf.cond_br %c, ^bb1, ^bb2", "^bb1:", "tt.return", "^bb2:")

    found_no_place = missed(plan_of(text, "op(*)"))
    assert [name for name, _ in found_no_place] == ["cf.cond_br", "tt.return", "tt.return"]
    assert {reason for _, reason in found_no_place} == {"the end of its block"}
    with pytest.raises(KprofError) as caught:
        insertion_of(text, "op(tt.return)")
    assert str(caught.value.where) == "<ttgir>:5:5"
    check("select/errors", caught.value.render(), "the end of a block")


@pytest.mark.parametrize("owner", ["tt.reduce", "tt.scan", "tt.map_elementwise"])
def test_what_is_lowered_once_per_element_gets_no_record(owner: str) -> None:
    text = kernel(
        f'%r = "{owner}"(%x) <{{axis = 0 : i32}}> ({{',
        "^bb0(%l: f32, %m: f32):",
        "  scf.if %c {",
        "    %s = arith.addf %l, %m : f32",
        "  }",
        f"  {owner}.return %s : f32",
        "}) : (tensor<16xf32, #b>) -> f32",
        "%t = arith.addf %r, %r : f32",
    )
    plan = plan_of(text, "op(arith.addf)")

    assert found(plan) == [("arith.addf", "function", 1, 0)]
    ((name, reason),) = missed(plan)
    assert name == "arith.addf"
    assert reason.startswith(f"inside {owner}, ")
    with pytest.raises(KprofError) as caught:
        insertion_of(text, "op(scf.if)")
    assert caught.value.what.endswith(f": scf.if is {reason}")
    assert str(caught.value.where) == "<ttgir>:5:7"


def test_asynchronous_work_and_its_waits_and_nothing_else() -> None:
    text = kernel(
        "%t = ttg.async_copy_global_to_local %p, %s : tensor<8x!tt.ptr<f16>, #b> -> <8xf16, #s, #smem, mutable>",
        "%g = ttg.async_commit_group tokens %t",
        "%w = ttg.async_wait %g {num = 0 : i32}",
        "%d = ttng.warp_group_dot %a, %b, %c {isAsync = true} : i32",
        "%e = ttng.warp_group_dot %a, %b, %c : i32",
        "%f = ttng.warp_group_dot_wait %d {pendings = 0 : i32} : i32",
        "ttng.wait_barrier %bar, %phase : !ttg.memdesc<1xi64, #s, #smem, mutable>",
        "ttng.tc_gen5_commit %bar : !ttg.memdesc<1xi64, #s, #smem, mutable>",
        LOAD,
        "gpu.barrier",
        "ttng.fence_async_shared {bCluster = false}",
    )
    assert [scope.name for scope in plan_of(text, "async").scopes] == [
        "ttg.async_copy_global_to_local",
        "ttg.async_commit_group",
        "ttg.async_wait",
        "ttng.warp_group_dot",
        "ttng.warp_group_dot_wait",
        "ttng.wait_barrier",
        "ttng.tc_gen5_commit",
    ]
