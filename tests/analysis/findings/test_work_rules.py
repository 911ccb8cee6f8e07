"""Rules on what the units of a launch do: arithmetic, accesses to memory, and what is in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from analysis.findings.evidences import evidence_of, named_in, worth
from known_kernels import DRAM_BOUND, MOST_DRAM, MOST_TENSOR
from replacing import replace
from snapshots import check

from kprof_inject.analysis.findings.busy_units import units_in_turn
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding, Waste, gains
from kprof_inject.analysis.findings.in_flight import few_warps, small_ctas
from kprof_inject.analysis.findings.instructions import special_functions, spills
from kprof_inject.analysis.findings.launch_conditions import short_launch
from kprof_inject.analysis.findings.memory_accesses import needless_barriers, uncoalesced
from kprof_inject.analysis.findings.repeated_work import same_in_all_ctas
from kprof_inject.analysis.findings.reuse import l2_reuse, small_tiles
from kprof_inject.analysis.findings.waits import atomics, barriers, exposed_loads, lock
from kprof_inject.analysis.findings.wide_types import fp32_dots
from kprof_inject.analysis.limits.limit import LIMITING
from kprof_inject.analysis.limits.stalls import LineStalls
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.measurements import MeasurementsRecord, SampledInstruction, SamplesRecord
from kprof_inject.capture.resources import KernelResources
from kprof_inject.machine_code.instructions import Instruction, MachineFunction

LOAD = "    %x = tt.load %at : tensor<128x!tt.ptr<f32>, #l>\n"
STORE = "    tt.store %at, %y : tensor<128x!tt.ptr<f32>, #l>\n"
BUSY = {"special functions": 0.9, "instruction issue": 0.3, "DRAM": 0.1}


def found_by(rule: Callable[[Evidence], Iterator[Finding | Unjudged]], evidence: Evidence) -> list[Finding]:
    return [one for one in rule(evidence) if isinstance(one, Finding)]


def the_one(
    rule: Callable[[Evidence], Iterator[Finding | Unjudged]], evidence: Evidence, case: str, *names: str
) -> Finding:
    """The only finding, which names these operations."""
    (finding,) = found_by(rule, evidence)
    check("analysis/findings", f"{finding.text}\n{finding.advice}", case)
    assert named_in(evidence, finding) == [*names]
    return finding


def function(name: str, result: str, *operands: str) -> str:
    return f"    %{result} = {name} {', '.join(f'%{one}' for one in operands)} : tensor<128xf32, #l>\n"


E = function("math.exp", "e", "x") + function("arith.addf", "s", "x", "x") + function("math.exp", "f", "s")
G = function("arith.addf", "t", "s", "x") + function("math.exp", "g", "t")
OF_THREE = 2 / 3, "exp(a + b)"


@pytest.mark.parametrize(
    ("body", "removable", "edit", "names"),
    [
        (E + function("arith.mulf", "y", "e", "f"), 1 / 2, "exp(a + b)", ["%f"]),
        (
            E + G + function("arith.mulf", "m", "e", "f") + function("arith.mulf", "y", "m", "g"),
            *OF_THREE,
            ["%f", "%g"],
        ),
        (
            E + G + function("arith.mulf", "m", "e", "f") + function("arith.mulf", "y", "g", "m"),
            *OF_THREE,
            ["%e", "%f"],
        ),
        (E + function("arith.divf", "y", "e", "f"), 2 / 3, "exp(a - b)", ["%f", "%y"]),
        (E + function("arith.divf", "y", "x", "f"), 1 / 3, "x * exp(-a)", ["%y"]),
        (
            function("math.sqrt", "q", "x") + function("arith.divf", "y", "x", "q"),
            1 / 2,
            "rsqrt",
            ["%y"],
        ),
        (
            function("arith.divf", "d", "x", "x") + function("arith.divf", "y", "d", "x"),
            1 / 2,
            "reciprocal once",
            ["%y"],
        ),
    ],
    ids=[
        "product",
        "product of three",
        "the same from the right",
        "quotient",
        "division by an exponential",
        "square root",
        "the same divisor",
    ],
)
def test_special_functions_that_are_not_needed(
    tmp_path: Path, body: str, removable: float, edit: str, names: list[str]
) -> None:
    evidence = evidence_of(tmp_path, LOAD + body + STORE, BUSY)
    (finding,) = found_by(special_functions, evidence)
    assert named_in(evidence, finding) == names
    assert edit in finding.advice
    assert finding.figures["removable_share"] == pytest.approx(removable)
    assert finding.removed["special functions"] == pytest.approx(removable)
    assert finding.share == pytest.approx(worth(evidence, finding))


def test_special_functions_that_are_all_needed(tmp_path: Path) -> None:
    body = LOAD + function("math.exp", "e", "x") + function("arith.addf", "y", "e", "x") + STORE
    assert not found_by(special_functions, evidence_of(tmp_path, body, BUSY))


def test_special_functions_of_few_elements(tmp_path: Path) -> None:
    """A row has one square root, and 128 elements: to remove it wins nothing."""
    root = """\
    %n = arith.constant 2.0 : f32
    %q = math.sqrt %n : f32
    %d = arith.divf %n, %q : f32
"""
    body = LOAD + root + function("math.exp", "e", "x") + function("arith.addf", "y", "e", "x") + STORE
    evidence = evidence_of(tmp_path, body, {"fp32 units": 0.8, "special functions": 0.1})
    assert not found_by(special_functions, evidence)


def test_a_function_of_a_broadcast(tmp_path: Path) -> None:
    body = """\
    %w = tt.expand_dims %x {axis = 1 : i32} : tensor<128xf32, #l> -> tensor<128x1xf32, #l>
    %b = tt.broadcast %w : tensor<128x1xf32, #l> -> tensor<128x64xf32, #l>
    %y = math.exp %b : tensor<128x64xf32, #l>
"""
    (finding,) = found_by(special_functions, evidence_of(tmp_path, LOAD + body, BUSY))
    assert "before the broadcast" in finding.advice


def atomic(address: str) -> str:
    return (
        LOAD + f"    %o = tt.atomic_rmw fadd, acq_rel, gpu, %{address}, %x : "
        "(tensor<128x!tt.ptr<f32>, #l>, tensor<128xf32, #l>) -> tensor<128xf32, #l>\n"
    )


def test_atomics_at_one_address(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, atomic("base"), {"L2": 0.7, "DRAM": 0.1}, {"tt.atomic_rmw": 80})
    finding = the_one(atomics, evidence, "atomics at one address", "%o")
    assert finding.figures == {"elements": 128, "time_share": pytest.approx(0.8), "repeats": 128}
    assert finding.share == pytest.approx(1 - 0.1 / MOST_DRAM)


def test_atomics_at_addresses_of_their_own(tmp_path: Path) -> None:
    """To combine elements of a CTA would win nothing, as each has its own address."""
    evidence = evidence_of(tmp_path, atomic("at"), {"L2": 0.05, "DRAM": 0.1}, {"tt.atomic_rmw": 40})
    finding = the_one(atomics, evidence, "atomics at addresses of their own", "%o")
    assert finding.figures["repeats"] == 1
    assert finding.share == pytest.approx(1 - 0.6 * 0.9)
    few = evidence_of(tmp_path, atomic("at"), {"L2": 0.05, "DRAM": 0.1}, {"tt.atomic_rmw": 20})
    assert not found_by(atomics, few), "they overlap other accesses"
    often = "    scf.for %i = %c0 to %c8 step %c1  : i32 {\n" + atomic("at") + "    }\n"
    (finding,) = found_by(atomics, evidence_of(tmp_path, often, {"L2": 0.05, "DRAM": 0.1}, {"tt.atomic_rmw": 20}))
    assert finding.share == pytest.approx(1 - 0.1 / MOST_DRAM), "each address is updated 64 times"


def test_atomics_that_take_no_time(tmp_path: Path) -> None:
    assert not found_by(atomics, evidence_of(tmp_path, atomic("at"), {"DRAM": 0.1}, {"tt.atomic_rmw": 2}))


STRIDED = """\
    %k = arith.constant dense<1024> : tensor<128xi32, #l>
    %o = arith.muli %r, %k : tensor<128xi32, #l>
    %there = tt.addptr %base, %o : tensor<128x!tt.ptr<f32>, #l>, tensor<128xi32, #l>
    %x = tt.load %there : tensor<128x!tt.ptr<f32>, #l>
"""


def test_neighbours_that_are_far_apart(tmp_path: Path) -> None:
    parts = {"L2": 0.8, "shared memory and L1": 0.5, "DRAM": 0.3}
    finding = the_one(uncoalesced, evidence_of(tmp_path, STRIDED, parts), "an uncoalesced load", "%x")
    assert "4096 bytes apart" in finding.text
    assert finding.figures["sectors_per_request"] == 32
    assert not found_by(uncoalesced, evidence_of(tmp_path, LOAD, parts))
    assert not found_by(uncoalesced, evidence_of(tmp_path, STRIDED, {**parts, "DRAM": 0.9}))


@pytest.mark.parametrize(("samples", "share"), [(60, 0.6), (40, 0.4), (5, 0.0)])
def test_neighbours_that_are_far_apart_take_some_of_the_time(tmp_path: Path, samples: int, share: float) -> None:
    """No unit is busy, so that only waiting for them counts."""
    evidence = evidence_of(tmp_path, STRIDED, {"DRAM": 0.3, "L2": 0.2}, waits={"%x =": samples})
    found = found_by(uncoalesced, evidence)
    assert [one.share for one in found] == [pytest.approx(worth(evidence, one, share)) for one in found]
    assert bool(found) is bool(share)


ROWS = """\
    %k = arith.constant dense<4096> : tensor<128x1xi32, #w>
    %i = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32, #down>
    %e = tt.expand_dims %i {axis = 1 : i32} : tensor<128xi32, #down> -> tensor<128x1xi32, #w>
    %o = arith.muli %e, %k : tensor<128x1xi32, #w>
    %f = tt.splat %p : !tt.ptr<f32> -> tensor<128x1x!tt.ptr<f32>, #w>
    %g = tt.addptr %f, %o : tensor<128x1x!tt.ptr<f32>, #w>, tensor<128x1xi32, #w>
    %h = tt.broadcast %g : tensor<128x1x!tt.ptr<f32>, #w> -> tensor<128xCOLUMNSx!tt.ptr<f32>, #w>
    %j = tt.make_range {end = COLUMNS : i32, start = 0 : i32} : tensor<COLUMNSxi32, #along>
    %l = tt.expand_dims %j {axis = 0 : i32} : tensor<COLUMNSxi32, #along> -> tensor<1xCOLUMNSxi32, #w>
    %m = tt.broadcast %l : tensor<1xCOLUMNSxi32, #w> -> tensor<128xCOLUMNSxi32, #w>
    %there = tt.addptr %h, %m : tensor<128xCOLUMNSx!tt.ptr<f32>, #w>, tensor<128xCOLUMNSxi32, #w>
    %x = tt.load %there : tensor<128xCOLUMNSx!tt.ptr<f32>, #w>
"""
DOWN = "#w = #ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [32, 1], warpsPerCTA = [4, 1], order = [0, 1]}>\n"


PACKED = """\
    %one = arith.constant dense<1> : tensor<64xi32, #along>
    %q = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32, #along>
    %j = arith.shrsi %q, %one : tensor<64xi32, #along>
"""
RANGE = "    %j = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32, #along>\n"


@pytest.mark.parametrize(
    ("columns", "along", "advice"),
    [
        (2, RANGE, "make the tile wider along dimension 1, where it has only 8 contiguous bytes"),
        (64, RANGE, "run along dimension 1"),
        (64, PACKED, "store the tensor transposed"),
    ],
)
def test_rows_that_are_short_or_read_downwards(tmp_path: Path, columns: int, along: str, advice: str) -> None:
    """A thread reads the whole of a short row at once, whatever the order of the dimensions."""
    body = ROWS.replace("COLUMNS", str(columns)).replace(RANGE, along)
    evidence = evidence_of(tmp_path, body, {"L2": 0.8, "DRAM": 0.1}, head=DOWN)
    (finding,) = found_by(uncoalesced, evidence)
    assert advice in finding.advice


def test_fields_of_structures(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, STRIDED, {"L2": 0.8, "DRAM": 0.1}, LOAD_SECTORS=1e12, STORE_SECTORS=0.0)
    assert not found_by(uncoalesced, evidence), "other loads, at unknown addresses, touch nearly all sectors"


@pytest.mark.parametrize(("read", "dram", "found"), [(240e6, 0.6, True), (90e6, 0.6, False), (240e6, 0.1, False)])
def test_operands_that_dram_reads_again(tmp_path: Path, read: float, dram: float, found: bool) -> None:
    parts = {"DRAM": dram, "tensor cores": 0.35}
    evidence = evidence_of(tmp_path, LOAD, parts, dram=DRAM_BOUND, DRAM_READ_BYTES=read, L2_HIT_PERCENT=40.0)
    if not found:
        assert not found_by(l2_reuse, evidence)
        return
    finding = the_one(l2_reuse, evidence, "no reuse in the L2")
    assert finding.figures["ratio"] == pytest.approx(4)
    assert finding.removed == {"DRAM": pytest.approx(3 / 4), "L2": pytest.approx(3 / 4)}


PASS = """\
    scf.for %NAME = %c0 to %c1 step %c1  : i32 {
      %NAME_x = tt.load %at : tensor<128x!tt.ptr<f32>, #l>
    }
"""
PASSES = PASS.replace("NAME", "i") + PASS.replace("NAME", "j")


def test_ctas_that_read_their_data_twice(tmp_path: Path) -> None:
    """Another order of tiles would help if CTAs shared what they load, or if they loaded it once."""
    stencil = "".join(f"    %x{one} = tt.load %at : tensor<128x!tt.ptr<f32>, #l>\n" for one in range(2))
    for body, way in ((PASSES, "tiles"), (of_each_cta(PASSES), "backwards"), (of_each_cta(stencil), "tiles")):
        (finding,) = found_by(l2_reuse, evidence_of(tmp_path, body, {"DRAM": 0.6}, dram=DRAM_TWICE, **READ_TWICE))
        assert way in finding.advice


def test_a_pass_finds_no_more_than_the_l2_holds(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, of_each_cta(PASSES), {"DRAM": 0.6}, dram=DRAM_TWICE, **READ_TWICE)
    (finding,) = found_by(l2_reuse, with_kernel(evidence, l2_bytes=2048))
    assert finding.removed["DRAM"] == pytest.approx(2048 / (16 * 512))
    assert not found_by(l2_reuse, with_kernel(evidence, l2_bytes=128))


@pytest.mark.parametrize(
    ("read", "l2_bytes", "case"),
    [(1.5, 1024, "streams in the L2"), (1.05, 1024, ""), (1.5, 256, "shared data that the L2 does not hold")],
)
def test_streams_that_push_out_what_ctas_share(tmp_path: Path, read: float, l2_bytes: int, case: str) -> None:
    """8 CTAs load the same 512 bytes, and 512 of their own."""
    body = LOAD.replace("%x", "%table") + of_each_cta(LOAD)
    needed = replace(DRAM_BOUND, read_bytes=9 * 512)
    counted = {"DRAM_READ_BYTES": read * 9 * 512, "DRAM_WRITE_BYTES": 512.0, "L2_HIT_PERCENT": 40.0}
    evidence = with_kernel(evidence_of(tmp_path, body, {"DRAM": 0.9}, dram=needed, **counted), l2_bytes=l2_bytes)
    if not case:
        assert not found_by(l2_reuse, evidence)
        return
    finding = the_one(l2_reuse, evidence, case, "%table")
    assert finding.removed["DRAM"] == pytest.approx(0.5 * 9 / (1.5 * 9 + 1))


DRAM_TWICE = replace(DRAM_BOUND, read_bytes=8 * 512)
READ_TWICE = {"DRAM_READ_BYTES": 16 * 512.0, "L2_HIT_PERCENT": 40.0}


def of_each_cta(body: str) -> str:
    own = """\
    %pid = tt.get_program_id x : i32
    %n = arith.constant 128 : i32
    %first = arith.muli %pid, %n : i32
    %o = tt.splat %first : i32 -> tensor<128xi32, #l>
    %there = tt.addptr %at, %o : tensor<128x!tt.ptr<f32>, #l>, tensor<128xi32, #l>
"""
    return own + body.replace("%at", "%there")


LOOP = """\
    %sum = scf.for %i = %c0 to %c8 step %c1 iter_args(%acc = %zero) -> (tensor<128xf32, #l>)  : i32 {
      %s = tt.splat %i : i32 -> tensor<128xi32, #l>
      %there = tt.addptr %at, %s : tensor<128x!tt.ptr<f32>, #l>, tensor<128xi32, #l>
      %x = tt.load %there : tensor<128x!tt.ptr<f32>, #l>
      %y = arith.addf %acc, %x : tensor<128xf32, #l>
      scf.yield %y : tensor<128xf32, #l>
    }
"""


def test_loads_that_a_loop_waits_for(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, LOOP, {"DRAM": 0.3}, waits={"%x =": 70})
    finding = the_one(exposed_loads, evidence, "loads that a loop waits for", "%x")
    assert finding.share == pytest.approx(1 - 0.3 / MOST_DRAM) and finding.expected == finding.share / 4
    assert found_by(exposed_loads, replace(evidence, parts={"DRAM": 0.7}))
    assert not found_by(exposed_loads, replace(evidence, parts={"DRAM": 0.8}))
    few = LOOP.replace("to %c8", "to %c1")
    assert not found_by(exposed_loads, evidence_of(tmp_path, few, {"DRAM": 0.3}, waits={"%x =": 70}))
    narrow = replace(evidence, requests=tuple(replace(one, access_bytes=2) for one in evidence.requests))
    (finding,) = found_by(exposed_loads, narrow)
    assert "num_stages" not in finding.advice, "cp.async copies at least 4 bytes"
    assert not found_by(exposed_loads, evidence_of(tmp_path, LOOP, {"DRAM": 0.3}, waits={"%x =": 10}))


PAGES = """\
    %buffer = ttg.local_alloc : () -> !ttg.memdesc<128xf32, #s, #smem, mutable>
    scf.for %i = %c0 to %c8 step %c1  : i32 {
      %s = tt.splat %i : i32 -> tensor<128xi32, #l>
      %there = tt.addptr %at, %s : tensor<128x!tt.ptr<f32>, #l>, tensor<128xi32, #l>
      %x = tt.load %there : tensor<128x!tt.ptr<f32>, #l>
      %n = arith.fptosi %x : tensor<128xf32, #l> to tensor<128xi32, #l>
      %page = tt.addptr %at, %n : tensor<128x!tt.ptr<f32>, #l>, tensor<128xi32, #l>
      %t = ttg.async_copy_global_to_local %page, %buffer : tensor<128x!tt.ptr<f32>, #l> -> <128xf32, #s, #smem, mutable>
      %g = ttg.async_commit_group tokens %t
      %w = ttg.async_wait %g {num = 0 : i32}
    }
"""


def test_loads_that_tell_where_to_copy_from(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, PAGES, {"DRAM": 0.3}, waits={"%x =": 70})
    finding = the_one(exposed_loads, evidence, "loads of addresses", "%x")
    assert finding.share == pytest.approx(1 - 0.3 / MOST_DRAM)
    elsewhere = PAGES.replace("async_copy_global_to_local %page", "async_copy_global_to_local %at")
    assert not found_by(exposed_loads, evidence_of(tmp_path, elsewhere, {"DRAM": 0.3}, waits={"%x =": 70}))


@pytest.mark.parametrize(("at_barriers", "share"), [(0, 1.2 * 0.2), (30, 1 - 0.5 * 0.9)])
def test_a_loop_waits_for_loads_and_for_warps_that_load(tmp_path: Path, at_barriers: int, share: float) -> None:
    evidence = evidence_of(tmp_path, LOOP, {"DRAM": 0.1}, waits={"%x =": 20})
    assert evidence.executed is not None and evidence.measured is not None and evidence.stalls is not None
    operations = {one.name: one for one in evidence.executed.module.walk()}
    loop, load = operations["scf.for"], operations["tt.load"]
    (line,) = evidence.executed.module.line_numbers([load.start])
    waiting = LineStalls(line, None, {"barrier": at_barriers}, {})
    stalls = replace(evidence.stalls, lines=(*evidence.stalls.lines, waiting))
    evidence = replace(evidence, measured=replace(evidence.measured, stalls=stalls), stalls=stalls)
    assert evidence.max_gain_of_waits([load], loop) == pytest.approx(share)


def with_barriers(evidence: Evidence, samples: int, number: int = 1) -> Evidence:
    assert evidence.stalls is not None
    line = LineStalls(number, None, {"barrier": samples, "wait": 100 - samples}, {})
    return replace(evidence, stalls=replace(evidence.stalls, lines=(line,)))


def test_barriers_that_take_time(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, LOAD, {"DRAM": 0.3})
    finding = the_one(barriers, with_barriers(evidence, 40), "barriers")
    assert finding.share == pytest.approx(0.4)
    assert not found_by(barriers, with_barriers(evidence, 10))


def test_barriers_that_order_nothing(tmp_path: Path) -> None:
    body = LOOP.replace("      %x =", "      gpu.barrier\n      %x =")
    evidence = evidence_of(tmp_path, body, {"DRAM": 0.3})
    assert evidence.executed is not None
    (barrier,) = (one for one in evidence.executed.module.walk() if one.name == "gpu.barrier")
    evidence = with_barriers(evidence, 40, *evidence.first_lines_of([barrier]))
    finding = the_one(needless_barriers, evidence, "barriers that order nothing", "gpu.barrier")
    assert finding.share == pytest.approx(worth(evidence, finding, 0.4))
    shared = body.replace("      %x =", "      %t = ttg.local_alloc %zero : (tensor<128xf32, #l>) -> !m\n      %x =")
    assert not found_by(needless_barriers, evidence_of(tmp_path, shared, {"DRAM": 0.3}))


BLOCKS = (
    """\
    scf.for %i = %c0 to %c8 step %c1  : i32 {
"""
    + "DOT"
    + """\
      %e = math.exp %d : tensor<64x128xf32, #mma>
    }
    %after = math.exp %zero : tensor<128xf32, #l>
"""
)


def test_dots_and_other_work_that_take_turns(tmp_path: Path) -> None:
    body, parts = BLOCKS.replace("DOT", DOT), {"tensor cores": 0.4, "DRAM": 0.1}
    made = evidence_of(tmp_path, body, parts, {"%e =": 40, "%after =": 20})
    evidence = with_kernel(made, clean=KernelResources(ctas_per_sm=2))
    finding = the_one(units_in_turn, evidence, "units in turn", "%e")
    assert finding.figures == {"tensor": 0.4, "idle": 0.6, "other": 0.4, "other_2": 0.2}
    assert finding.share == pytest.approx(1 - 0.4 / MOST_TENSOR) and finding.expected < finding.share
    for changes in ({"parts": {"tensor cores": 0.9}}, {"parts": {"DRAM": 0.4}}, {"stalls": None}):
        assert not found_by(units_in_turn, replace(evidence, **changes))
    assert not found_by(units_in_turn, evidence_of(tmp_path, body, parts, {"%d =": 80})), "only dots take time"


def test_dots_without_tensor_cores(tmp_path: Path) -> None:
    body = """\
    %z = arith.constant dense<0.0> : tensor<64x64xf32, #l>
    %d = tt.dot %z, %z, %z : tensor<64x64xf32, #x> * tensor<64x64xf32, #x> -> tensor<64x64xf32, #l>
"""
    evidence = evidence_of(tmp_path, body, {"fp32 units": 0.8, "DRAM": 0.1})
    finding = the_one(fp32_dots, evidence, "dots of fp32", "%d")
    assert finding.removed["fp32 units"] == 0.5 and finding.share == pytest.approx(worth(evidence, finding))
    assert not found_by(fp32_dots, evidence_of(tmp_path, body, {"fp32 units": 0.3, "DRAM": 0.1}))


DOT = """\
    %z = arith.constant dense<0.0> : tensor<64x128xf16, #x>
    %c = arith.constant dense<0.0> : tensor<64x128xf32, #l>
    %d = tt.dot %z, %z, %c : tensor<64x64xf16, #x> * tensor<64x128xf16, #x> -> tensor<64x128xf32, #mma>
"""


def with_kernel(evidence: Evidence, **changes: Any) -> Evidence:
    launch = evidence.timeline.launch
    kernel = replace(launch.kernel, **changes)
    return replace(evidence, timeline=replace(evidence.timeline, launch=replace(launch, kernel=kernel)))


def with_sms(evidence: Evidence, sms: int) -> Evidence:
    return with_kernel(evidence, dram_bytes_per_s=3.35e12, sm_count=sms)


def test_tiles_that_could_be_larger(tmp_path: Path) -> None:
    finding = the_one(small_tiles, evidence_of(tmp_path, DOT, {"L2": 0.8, "tensor cores": 0.4}), "small tiles", "%d")
    assert finding.figures["saved"] == pytest.approx(1 - (1 / 128 + 1 / 128) / (1 / 128 + 1 / 64))
    assert finding.removed["L2"] == pytest.approx(1 / 3)
    assert finding.expected == pytest.approx(1 / 3)
    assert not found_by(small_tiles, evidence_of(tmp_path, DOT, {"L2": 0.5}))
    assert not found_by(small_tiles, evidence_of(tmp_path, DOT, {"L2": 0.8, "tensor cores": 0.78})), "both limit it"
    on_many_sms = with_sms(evidence_of(tmp_path, DOT, {"L2": 0.8}), 132)
    assert not found_by(small_tiles, on_many_sms), "half of the CTAs would not be enough for all SMs"
    large = DOT.replace("64x128xf32", "256x128xf32")
    assert not found_by(small_tiles, evidence_of(tmp_path, large, {"L2": 0.8}))
    streams = evidence_of(tmp_path, DOT, {"L2": 0.8, "DRAM": 0.78})
    assert not found_by(small_tiles, streams), "the L2 delivers what it gets from DRAM once"


@pytest.mark.parametrize(("body", "found"), [("", True), ("own", False)])
def test_larger_tiles_help_only_if_ctas_load_the_same(tmp_path: Path, body: str, found: bool) -> None:
    rows = ROWS.replace("COLUMNS", "64").replace("128x64", "128x64")
    if body:
        rows = rows.replace("    %f = tt.splat %p", OWN + "    %f = tt.splat %mine")
    evidence = evidence_of(
        tmp_path, rows + DOT.replace("%c =", "%cc =").replace(", %c ", ", %cc "), {"L2": 0.8}, head=DOWN
    )
    assert bool(found_by(small_tiles, evidence)) is found


OWN = """\
    %pid = tt.get_program_id x : i32
    %rows = arith.constant 1048576 : i32
    %begin = arith.muli %pid, %rows : i32
    %mine = tt.addptr %p, %begin : !tt.ptr<f32>, i32
"""


TABLE = """\
    %pid = tt.get_program_id x : i32
    %t = arith.sitofp %r : tensor<128xi32, #l> to tensor<128xf32, #l>
    %s = scf.for %i = %c0 to %c8 step %c1 iter_args(%acc = %t) -> (tensor<128xf32, #l>)  : i32 {
      %e = math.exp %acc : tensor<128xf32, #l>
      scf.yield %e : tensor<128xf32, #l>
    }
    %o = tt.splat %pid : i32 -> tensor<128xi32, #l>
    %there = tt.addptr %at, %o : tensor<128x!tt.ptr<f32>, #l>, tensor<128xi32, #l>
    %x = tt.load %there : tensor<128x!tt.ptr<f32>, #l>
    %y = math.exp %x : tensor<128xf32, #l>
    tt.store %there, %y : tensor<128x!tt.ptr<f32>, #l>
"""


def test_a_table_that_each_cta_computes(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, TABLE, {"DRAM": 0.1}, {"%e =": 60, "%y =": 20})
    finding = the_one(same_in_all_ctas, evidence, "a table", "%e")
    assert finding.figures["time_share"] == pytest.approx(0.6)
    assert finding.share == pytest.approx(worth(evidence, finding, 0.6))


def test_a_loop_whose_values_depend_on_the_cta(tmp_path: Path) -> None:
    body = TABLE.replace("arith.sitofp %r", "arith.sitofp %f").replace(
        "    %t =", "    %f = tt.splat %pid : i32 -> tensor<128xi32, #l>\n    %t ="
    )
    assert not found_by(same_in_all_ctas, evidence_of(tmp_path, body, {"DRAM": 0.1}, {"%e =": 60}))


def many_ctas(evidence: Evidence, cta_ns: float, ctas: int = 9 * 8) -> Evidence:
    """Return the launch as if its SMs ran this number of CTAs in turn, each for this time."""
    waves = evidence.summary.waves
    assert waves is not None
    summary = replace(
        evidence.summary,
        waves=replace(waves, ctas=ctas, waves=-(-ctas // waves.sms)),
    )
    cta_times = evidence.timeline.ctas.copy()
    cta_times["pre_final_ns"] = cta_times["init_ns"] + cta_ns
    return replace(evidence, summary=summary, timeline=replace(evidence.timeline, ctas=cta_times))


def test_ctas_that_do_too_little(tmp_path: Path) -> None:
    evidence = many_ctas(evidence_of(tmp_path, LOAD, {"DRAM": 0.3, "instruction issue": 0.4}), 900)
    finding = the_one(small_ctas, evidence, "small CTAs")
    assert finding.share == pytest.approx(1 - 0.3 / MOST_DRAM)
    assert not found_by(small_ctas, many_ctas(evidence, 9000))
    mixed = many_ctas(evidence, 9000)
    mixed.timeline.ctas["pre_final_ns"][1:] = mixed.timeline.ctas["init_ns"][1:] + 50
    assert not found_by(small_ctas, mixed), "most return at once, and take hardly any time"
    assert not found_by(small_ctas, many_ctas(evidence, 900, 16))
    assert not found_by(small_ctas, replace(evidence, parts={"DRAM": 0.8}))


WIDE = """\
    %w = arith.constant dense<0.0> : tensor<4096xf32, #l>
    %y = arith.addf %w, %w : tensor<4096xf32, #l>
"""


def test_too_few_warps(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, WIDE, {"DRAM": 0.3}, waits={"%y =": 80}, WARPS_ACTIVE=4.0)
    finding = the_one(few_warps, evidence, "few warps")
    assert finding.figures["more_num_warps"] == 16
    assert finding.share == pytest.approx(1 - 0.3 / MOST_DRAM)
    assert not found_by(few_warps, evidence_of(tmp_path, WIDE, {"DRAM": 0.3}, WARPS_ACTIVE=40.0))
    assert not found_by(few_warps, evidence_of(tmp_path, WIDE + DOT, {"DRAM": 0.3}, WARPS_ACTIVE=8.0))


@pytest.mark.parametrize("body", [WIDE, DOT])
def test_sms_with_two_ctas_show_what_more_warps_gain(tmp_path: Path, body: str) -> None:
    evidence = evidence_of(tmp_path, body, {"DRAM": 0.3}, waits={"%y =": 80} if body == WIDE else {}, WARPS_ACTIVE=4.0)
    ending = evidence.summary.ending
    assert ending is not None and ending.sharing_share is None

    def found_with(sharing_share: float) -> list[float]:
        summary = replace(evidence.summary, ending=replace(ending, sharing_share=sharing_share))
        return [one.share for one in found_by(few_warps, with_sms(replace(evidence, summary=summary), 132))]

    assert found_with(0.05) == []
    assert found_with(0.4) == [pytest.approx(0.4)]


def test_dots_with_one_warp_for_each_scheduler(tmp_path: Path) -> None:
    evidence = with_sms(evidence_of(tmp_path, DOT, {"DRAM": 0.3}, WARPS_ACTIVE=4.0), 132)
    finding = the_one(few_warps, evidence, "dots with few warps")
    assert finding.share == pytest.approx(1 - 0.3 / MOST_DRAM)
    assert not found_by(few_warps, replace(evidence, parts={"tensor cores": 0.7}))


def test_warps_of_a_loop_that_loads(tmp_path: Path) -> None:
    """More warps are expected to win less where a loop waits for its loads."""
    evidence = evidence_of(tmp_path, LOOP + WIDE, {"DRAM": 0.3}, waits={"%x =": 80}, WARPS_ACTIVE=4.0)
    (finding,) = found_by(few_warps, evidence)
    assert finding.advice.startswith("raise num_warps") and finding.expected == pytest.approx(finding.share / 5)


def test_a_short_launch_wins_no_more_than_launching_leaves(tmp_path: Path) -> None:
    """An empty launch takes 2 of 5 us, and a CTA 0.5 us."""
    evidence = evidence_of(tmp_path, WIDE, {"DRAM": 0.3}, waits={"%y =": 80}, WARPS_ACTIVE=4.0)
    clean = KernelResources(times_ns=(9e3, 9e3), empty_launch_ns=3e3, replayed_ns=(5e3, 5e3), empty_replay_ns=2e3)
    short = with_kernel(evidence, clean=clean)
    (finding,) = found_by(few_warps, short)
    assert finding.share == pytest.approx(0.5)
    assert the_one(short_launch, short, "a short launch").share == pytest.approx(2 / 5)
    assert not found_by(short_launch, evidence)
    longer = KernelResources(times_ns=(90e3, 90e3), empty_launch_ns=3e3)
    assert not found_by(short_launch, with_kernel(evidence, clean=longer))


@pytest.mark.parametrize(
    ("slots", "advice"), [(1, "or by more CTAs on an SM"), (8, "or by more CTAs with fewer iterations each")]
)
def test_more_ctas_on_an_sm_if_there_are_more(tmp_path: Path, slots: int, advice: str) -> None:
    evidence = evidence_of(tmp_path, LOOP, {"DRAM": 0.3}, waits={"%x =": 80})
    (finding,) = found_by(exposed_loads, with_kernel(evidence, sm_count=1, clean=KernelResources(ctas_per_sm=slots)))
    assert finding.advice.endswith(advice)


def test_too_few_warps_that_request_too_little(tmp_path: Path) -> None:
    """More warps would share what an iteration loads: 512 bytes."""
    evidence = evidence_of(tmp_path, LOOP + WIDE, {"DRAM": 0.3}, waits={"%x =": 80}, WARPS_ACTIVE=4.0)
    finding = the_one(few_warps, with_sms(evidence, 132), "few warps with little in flight")
    assert finding.advice.startswith("request more data at once, as the loads of an iteration are 512 bytes on an SM")


SWAP = "%old = tt.atomic_cas acq_rel, gpu, %flag, %c0, %c1 : (!tt.ptr<i32>, i32, i32) -> i32\n"
LOCK = f"""\
    %flag = tt.bitcast %q : !tt.ptr<f32> -> !tt.ptr<i32>
    scf.while : () -> () {{
      {SWAP}
      %taken = arith.cmpi eq, %old, %c1 : i32
      scf.condition(%taken)
    }} do {{
      scf.yield
    }}
"""
SWAP_ONCE = "    %flag = tt.bitcast %q : !tt.ptr<f32> -> !tt.ptr<i32>\n" + SWAP


def test_a_lock_that_ctas_take_in_turn(tmp_path: Path) -> None:
    finding = the_one(lock, evidence_of(tmp_path, LOCK, {"L2": 0.1}, {"tt.atomic_cas": 70}), "a lock", "%old")
    assert finding.share == pytest.approx(1 - 0.9 * 0.3), "CTAs that wait for no other overlap, too"
    assert finding.advice.startswith("do without the lock: tl.atomic_add")
    assert not found_by(lock, evidence_of(tmp_path, LOCK, {"L2": 0.1}, {"tt.atomic_cas": 9}))
    assert not found_by(lock, evidence_of(tmp_path, SWAP_ONCE, {"L2": 0.1}, {"tt.atomic_cas": 70}))


def test_dots_with_too_few_warps_for_wgmma(tmp_path: Path) -> None:
    made = evidence_of(tmp_path, DOT, {"tensor cores": 0.2})
    metadata = {**made.kernel.metadata, "target": {"backend": "cuda", "arch": 90}, "num_warps": 2}
    kernel = replace(made.kernel, metadata=metadata, num_warps=2)
    launch = replace(made.timeline.launch, kernel=kernel)
    evidence = replace(made, timeline=replace(made.timeline, launch=launch))
    finding = the_one(few_warps, evidence, "too few warps for wgmma")
    assert finding.figures["more_num_warps"] == 4


def test_spills_win_no_more_than_dram_leaves(tmp_path: Path) -> None:
    """The time in accesses to local memory is time in which DRAM moves what the launch needs."""
    moved = {"DRAM_READ_BYTES": 60e6, "DRAM_WRITE_BYTES": 0.0}
    evidence = evidence_of(tmp_path, LOAD, {"DRAM": 0.8, "L2": 0.7}, dram=DRAM_BOUND, **moved)
    code = MachineFunction("k", (Instruction(0, "LDL", "", line=0), Instruction(16, "FADD", "", line=0)))
    instructions = tuple(SampledInstruction(address, {"wait": 50}) for address in (0, 16))
    samples = SamplesRecord(period_cycles=256, launches=1, total=100, dropped=0, instructions=instructions)
    measurements = MeasurementsRecord(samples=samples)
    launch = evidence.timeline.launch
    kernel = replace(launch.kernel, clean=KernelResources(spills=8), measurements=measurements)
    timeline = replace(evidence.timeline, launch=replace(launch, kernel=kernel))
    (finding,) = found_by(spills, replace(evidence, timeline=timeline, machine_code=code))
    assert finding.figures["time_share"] == 0.5
    assert finding.removed == {"DRAM": 0.0, "L2": 1.0}, "DRAM moves only what the launch needs"


def test_what_an_account_is_worth(tmp_path: Path) -> None:
    """``gains``: units that limit a launch save their own time, and warps what they wait for."""
    evidence = evidence_of(tmp_path, LOAD, {"DRAM": 0.7, "ALU": 0.9, "L2": 0.65}, {"%x =": 40})
    assert evidence.executed is not None
    loads = tuple(one for one in evidence.executed.module.walk() if one.name == "tt.load")
    waste = Waste("", "", {"ALU": 0.5}, loads)
    necessary = 0.7 / MOST_DRAM
    assert gains(evidence, waste) == pytest.approx((1 - necessary,) * 2), "its bytes stay"
    assert gains(evidence, replace(waste, certainty=0.5))[1] == pytest.approx((1 - necessary) / 2)
    assert gains(evidence, replace(waste, removed={"ALU": 0.5, "DRAM": 0.5}))[0] == pytest.approx(1.05 * 0.5)
    idle = replace(evidence, parts={"ALU": 0.2, "L2": 0.2})
    assert gains(idle, waste) == pytest.approx((1.05 * (1 - 0.9 * 0.6), 0.4)), "warps wait for loads"
    assert gains(idle, replace(waste, time_share=0.1)) == pytest.approx((1.05 * 1.2 * 0.1, 0.1))
    alone = replace(evidence, parts={"ALU": 0.5}, stalls=None)
    assert gains(alone, waste) == pytest.approx((1.05 * 0.75, 0.5 * 0.5 / LIMITING)), "only units count"
    next_unit = gains(replace(alone, parts={"ALU": 0.9, "L2": 0.8}), waste)
    assert next_unit == pytest.approx((1.05 * 0.5, 1 / 9)), "the L2 may have less to do, too"


def test_what_a_launch_without_operations_leaves_to_the_l2(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, LOAD + "    tt.store %at, %x : tensor<128x!tt.ptr<f32>, #l>\n", {})
    assert evidence.executed is not None
    load = [one for one in evidence.executed.module.walk() if one.name == "tt.load"]
    assert evidence.without(load)["L2"] == 0.5
    assert replace(evidence, requests=()).without(load)["L2"] == 1.0, "it may be all that the L2 does"
    assert evidence.without([])["L2"] == 0.0 and "DRAM" not in evidence.without(load)
