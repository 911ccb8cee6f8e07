"""Loops that ask for their data too late, and clocks that are held down."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_kernels import sentences_of
from known_loops import found, launched
from replacing import replace
from snapshots import check

from kprof_inject.analysis.findings.finding import Evidence, Finding
from kprof_inject.analysis.findings.pipelining import too_few_stages
from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.roofs.memory import DramBound
from kprof_inject.capture.resources import KernelResources
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline

LOADS = """\
module {
  tt.func public @k(%p: !tt.ptr<f16>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c8 = arith.constant 8 : i32
    %a = tt.splat %p : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>, #b>
    scf.for %i = %c0 to %c8 step %c1  : i32 {
      %x = tt.load %a : tensor<64x64x!tt.ptr<f16>, #b>
      %d = tt.dot %x, %x, %z : tensor<64x64xf16, #x> * tensor<64x64xf16, #x> -> tensor<64x64xf32, #mma>
    }
    tt.return
  }
}
"""
COPIES = """\
module {
  tt.func public @k(%p: !tt.ptr<f16>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c8 = arith.constant 8 : i32
    %a = tt.splat %p : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>, #b>
    scf.for %i = %c0 to %c8 step %c1  : i32 {
      %w = ttg.async_wait %g {num = 1 : i32}
      %d = tt.dot %x, %x, %z : tensor<64x64xf16, #x> * tensor<64x64xf16, #x> -> tensor<64x64xf32, #mma>
      %t = ttg.async_copy_global_to_local %a, %m : tensor<64x64x!tt.ptr<f16>, #b> -> <64x64xf16, #s, #smem, mutable>
      %g = ttg.async_commit_group tokens %t
    }
    tt.return
  }
}
"""


def test_loads_of_operands_in_the_loop_that_multiplies_them_are_named(tmp_path: Path) -> None:
    finding = found(launched(tmp_path, LOADS, 10))["not-pipelined"]
    check("analysis/findings", sentences_of(finding), "loads that are not pipelined")
    assert finding.figures["loads"] == 1
    assert finding.share == pytest.approx(0.9 * (1 - finding.figures["part"]))  # type: ignore[operator]


# Of lines as Triton makes for gfx942: with two stages, a tile is loaded into registers, and stored behind the dot.
AHEAD = """\
      %r = ttg.local_load %buffer : !ttg.memdesc<64x64xf16, #s, #smem, mutable> -> tensor<64x64xf16, #x>
      %x = tt.load %a : tensor<64x64x!tt.ptr<f16>, #b>
      %d = tt.dot %r, %r, %z : tensor<64x64xf16, #x> * tensor<64x64xf16, #x> -> tensor<64x64xf32, #mma>
      ttg.local_store %x, %buffer : tensor<64x64xf16, #b> -> !ttg.memdesc<64x64xf16, #s, #smem, mutable>
"""
AT_ONCE = """\
      %x = tt.load %a : tensor<64x64x!tt.ptr<f16>, #b>
      ttg.local_store %x, %buffer : tensor<64x64xf16, #b> -> !ttg.memdesc<64x64xf16, #s, #smem, mutable>
      %r = ttg.local_load %buffer : !ttg.memdesc<64x64xf16, #s, #smem, mutable> -> tensor<64x64xf16, #x>
      %d = tt.dot %r, %r, %z : tensor<64x64xf16, #x> * tensor<64x64xf16, #x> -> tensor<64x64xf32, #mma>
"""


@pytest.mark.parametrize(("body", "loads"), [(AHEAD, None), (AT_ONCE, 1)])
def test_what_is_loaded_for_a_later_iteration_is_pipelined(body: str, loads: int | None, tmp_path: Path) -> None:
    first, last = LOADS.index("      %x = tt.load"), LOADS.index("    }\n    tt.return")
    finding = found(launched(tmp_path, LOADS[:first] + body + LOADS[last:], 10)).get("not-pipelined")
    assert (finding.figures["loads"] if finding else None) == loads


def test_a_wait_for_ones_own_copies_is_no_pipeline(tmp_path: Path) -> None:
    text = COPIES.replace("{num = 1 : i32}", "{num = 0 : i32}").replace(
        "      %w = ttg.async_wait %g {num = 0 : i32}\n", ""
    )
    text = text.replace("tokens %t\n", "tokens %t\n      %w = ttg.async_wait %g {num = 0 : i32}\n")
    finding = found(launched(tmp_path, text, 10))["not-pipelined"]
    check("analysis/findings", sentences_of(finding), "a wait for new copies")


def test_waits_that_take_a_tenth_of_the_loop_ask_for_a_stage(tmp_path: Path) -> None:
    finding = found(launched(tmp_path, COPIES, 1_800))["too-few-stages"]
    assert finding.figures["more_stages"] == 1
    assert finding.share == pytest.approx(0.2 * 0.9)
    check("analysis/findings", sentences_of(finding), "one stage too few")


def test_so_many_stages_are_advised_that_a_copy_is_there_when_it_is_awaited(tmp_path: Path) -> None:
    finding = found(launched(tmp_path, COPIES, 5_400))["too-few-stages"]
    assert finding.figures["more_stages"] == 3
    check("analysis/findings", sentences_of(finding), "three stages too few")


@pytest.mark.parametrize(("free_bytes", "more"), [(2 * 8192, 2), (8191, 0)])
def test_no_more_stages_are_advised_than_there_is_room_for(tmp_path: Path, free_bytes: int, more: int) -> None:
    timeline = launched(tmp_path, COPIES, 5_400)
    clean = KernelResources(shared_bytes=227 * 1024 - free_bytes)
    kernel = replace(timeline.launch.kernel, clean=clean)
    finding = found(replace(timeline, launch=replace(timeline.launch, kernel=kernel)))["too-few-stages"]
    assert finding.figures["more_stages"] == more
    if not more:
        check("analysis/findings", sentences_of(finding), "no room for more stages")


def test_a_launch_at_the_roof_of_dram_needs_no_stages(tmp_path: Path) -> None:
    report = LaunchAnalysis.of(launched(tmp_path, COPIES, 1_800))
    ran = report.executed
    assert isinstance(ran, ExecutedKernel)

    def rules(dram_part: float) -> list[str]:
        moved = round(1000 * dram_part * report.summary.duration_ns)
        dram = DramBound(moved, 0, moved, moved, fits_l2=False, unknown=0, unknown_bytes=0, bytes_per_s=1e12)
        light = replace(report.speed_of_light, dram=dram)
        found = too_few_stages(Evidence(report.timeline, report.summary, light, ran))
        return [one.rule for one in found if isinstance(one, Finding)]

    assert rules(0.5) == ["too-few-stages"]
    assert not rules(0.9)


def test_waits_that_find_their_data_ask_for_nothing(tmp_path: Path) -> None:
    assert "too-few-stages" not in found(launched(tmp_path, COPIES, 800))


def clocked(timeline: Timeline, mhz: float, source: ClockSource = ClockSource.FITTED) -> Timeline:
    clock = replace(timeline.clock, rate_ns=1e3 / mhz, source=source, rate_error=0.001)
    kernel = replace(timeline.launch.kernel, sm_clock_hz=1.98e9)
    return replace(timeline, clock=clock, launch=replace(timeline.launch, kernel=kernel))


def test_a_clock_that_is_held_down_is_told_with_its_share(tmp_path: Path) -> None:
    timeline = launched(tmp_path, LOADS, 10)
    finding = found(clocked(timeline, 1_485))["throttled"]
    assert finding.share == pytest.approx(0.25)
    check("analysis/findings", sentences_of(finding), "throttled SMs")
    assert "throttled" not in found(clocked(timeline, 1_900))
    assert "throttled" not in found(clocked(timeline, 1_485, ClockSource.ASSUMED))
