"""What was in flight: work and the wait that it was waited for by, in hand-made launches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from buffers import Scope
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.executions import executed_kernel
from kprof_inject.analysis.flight_groups import InFlight
from kprof_inject.analysis.flights import flights_of
from kprof_inject.analysis.in_flight import in_flight
from kprof_inject.timeline.timeline import Timeline

COPIES = """\
module {
  tt.func public @k(%p: !tt.ptr<f16>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c4 = arith.constant 4 : i32
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32, #b>
    %s = tt.splat %p : !tt.ptr<f16> -> tensor<64x!tt.ptr<f16>, #b>
    %a = tt.addptr %s, %r : tensor<64x!tt.ptr<f16>, #b>, tensor<64xi32, #b>
    %m = ttg.local_alloc : () -> !ttg.memdesc<64xf16, #s, #smem, mutable>
    scf.for %i = %c0 to %c4 step %c1  : i32 {
      %t = ttg.async_copy_global_to_local %a, %m : tensor<64x!tt.ptr<f16>, #b> -> <64xf16, #s, #smem, mutable>
      %g = ttg.async_commit_group tokens %t
      %w = ttg.async_wait %g {num = 2 : i32}
    }
    %d = ttg.async_wait {num = 0 : i32}
    tt.return
  }
}
"""
COMMIT, WAIT, LAST = 12, 13, 15

BARRIERS = """\
module {
  tt.func public @k(%d: !tt.tensordesc<tensor<64x64xf16, #s>>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c4 = arith.constant 4 : i32
    %true = arith.constant true
    %m = ttg.local_alloc : () -> !ttg.memdesc<2x64x64xf16, #s, #smem, mutable>
    %b = ttg.local_alloc : () -> !ttg.memdesc<2x1xi64, #t, #smem, mutable>
    ttg.warp_specialize(%d, %m, %b)
    default {
      scf.for %i = %c0 to %c4 step %c1  : i32 {
        %s = arith.remsi %i, %c2 : i32
        %q = arith.divsi %i, %c2 : i32
        %f = ttg.memdesc_index %b[%s] : !ttg.memdesc<2x1xi64, #t, #smem, mutable> -> !ttg.memdesc<1xi64, #t, #smem, mutable>
        ttng.wait_barrier %f, %q : !ttg.memdesc<1xi64, #t, #smem, mutable>
      }
      ttg.warp_yield
    }
    partition0(%e: !tt.tensordesc<tensor<64x64xf16, #s>>, %n: !ttg.memdesc<2x64x64xf16, #s, #smem, mutable>, %c: !ttg.memdesc<2x1xi64, #t, #smem, mutable>) num_warps(1) {
      %z0 = arith.constant 0 : i32
      %z1 = arith.constant 1 : i32
      %z2 = arith.constant 2 : i32
      %z4 = arith.constant 4 : i32
      %yes = arith.constant true
      scf.for %i = %z0 to %z4 step %z1  : i32 {
        %s = arith.remsi %i, %z2 : i32
        %f = ttg.memdesc_index %c[%s] : !ttg.memdesc<2x1xi64, #t, #smem, mutable> -> !ttg.memdesc<1xi64, #t, #smem, mutable>
        %o = ttg.memdesc_index %n[%s] : !ttg.memdesc<2x64x64xf16, #s, #smem, mutable> -> !ttg.memdesc<64x64xf16, #s, #smem, mutable>
        ttng.async_tma_copy_global_to_local %e[%z0, %z0] %o, %f, %yes : !tt.tensordesc<tensor<64x64xf16, #s>>, !ttg.memdesc<1xi64, #t, #smem, mutable> -> !ttg.memdesc<64x64xf16, #s, #smem, mutable>
      }
      ttg.warp_return
    } : (!tt.tensordesc<tensor<64x64xf16, #s>>, !ttg.memdesc<2x64x64xf16, #s, #smem, mutable>, !ttg.memdesc<2x1xi64, #t, #smem, mutable>) -> ()
    tt.return
  }
}
"""  # noqa: E501
TMA_WAIT, TMA_COPY = 16, 30

Span = tuple[int, int, int, int]
"""The index of a scope, the warp, and the cycles from and to which it ran."""


def launched(folder: Path, text: str, scopes: dict[str, int], spans: list[Span], *, first_record: int = 0) -> Timeline:
    """One CTA. ``scopes`` are operations with their lines."""
    rows = scope_rows([Ran(scope, end - start, 0, warp, 0) for scope, warp, start, end in spans])
    rows["start_cycles"], rows["end_cycles"] = np.transpose([span[2:] for span in spans])
    rows["start_ns"], rows["end_ns"] = rows["start_cycles"], rows["end_cycles"]
    rows["duration_cycles"] = rows["duration_ns"] = rows["end_cycles"] - rows["start_cycles"]
    rows["start_record"] = first_record + 2 * np.arange(len(rows))
    made = made_timeline(
        folder, [Scope(name, "op") for name in scopes], [rows], cta_rows((0, 0, 0, 9000, 9000)), warps=2
    )
    found = zip(made.table.scopes, scopes.values(), strict=True)
    table = replace(made.table, scopes=tuple(replace(scope, lines=(line, line)) for scope, line in found))
    (made.launch.kernel.folder / "kernel.ttgir").write_text(text)
    kernel = replace(made.launch.kernel, scopes=table)
    return replace(made, table=table, launch=replace(made.launch, kernel=kernel, grid=(1, 1, 1)))


def found_in(timeline: Timeline) -> InFlight:
    return in_flight(timeline, executed_kernel(timeline.launch))


def in_order(folder: Path, iterations: int = 4) -> Timeline:
    """A group each 1,000 cycles; the wait takes 500 in the last two iterations, and the one behind the loop 600."""
    spans: list[Span] = []
    for number in range(iterations):
        begin = 1000 * number
        spans += [(0, 0, begin, begin + 10), (1, 0, begin + 100, begin + (600 if number >= 2 else 120))]
    spans.append((2, 0, 5000, 5600))
    return launched(folder, COPIES, {"ttg.async_commit_group": COMMIT, "ttg.async_wait": WAIT, "last": LAST}, spans)


def test_a_wait_is_for_the_oldest_groups_that_it_does_not_leave(tmp_path: Path) -> None:
    """With two left under way, the third iteration waits for the first group."""
    groups = found_in(in_order(tmp_path)).groups
    assert groups["start_cycles"].tolist() == [0, 1000, 2000, 3000]
    assert groups["end_cycles"].tolist() == [2600, 3600, 5600, 5600]
    assert groups["wait_scope"].tolist() == [1, 1, 2, 2]
    assert groups["depth"].tolist() == [1, 2, 3, 3]
    assert groups["blocked_ns"].tolist() == [500, 500, 600, 600]
    # Of 64 elements of two bytes, each of two warps has half.
    assert groups["bytes"].tolist() == [64] * 4


def test_what_a_ring_lost_moves_no_pair(tmp_path: Path) -> None:
    whole = in_order(tmp_path)
    (rows,) = whole.blocks()
    late = replace(whole, _blocks=[rows[4:]])
    groups = found_in(late).groups
    assert groups["start_cycles"].tolist() == [2000, 3000]
    assert groups["end_cycles"].tolist() == [5600, 5600]


def test_a_wait_that_does_not_block_tells_when_it_began(tmp_path: Path) -> None:
    spans = [(0, 0, 0, 10), (2, 0, 900, 930)]
    timeline = launched(tmp_path, COPIES, {"c": COMMIT, "w": WAIT, "last": LAST}, spans)
    (group,) = found_in(timeline).groups
    assert (group["known_ns"], group["end_ns"], group["blocked_ns"]) == (10, 900, 0)


def barriers(folder: Path) -> Timeline:
    """The second warp asks at 0, 100, 2000 and 2100; the first waits until 1000, 1100, 3000 and 3100."""
    spans = [(0, 1, begin, begin + 10) for begin in (0, 100, 2000, 2100)]
    spans += [(1, 0, end - 300, end) for end in (1000, 1100, 3000, 3100)]
    return launched(
        folder, BARRIERS, {"ttng.async_tma_copy_global_to_local": TMA_COPY, "ttng.wait_barrier": TMA_WAIT}, spans
    )


def test_each_time_that_a_barrier_is_told_has_its_wait(tmp_path: Path) -> None:
    found = found_in(barriers(tmp_path))
    assert found.unpaired == {}
    assert found.groups["start_cycles"].tolist() == [0, 100, 2000, 2100]
    assert found.groups["end_cycles"].tolist() == [1000, 1100, 3000, 3100]
    assert found.groups["depth"].tolist() == [1, 2, 1, 2]
    assert found.groups["bytes"].tolist() == [64 * 64 * 2] * 4


def test_of_many_ctas_each_has_its_own_waits(tmp_path: Path) -> None:
    timeline = barriers(tmp_path)
    (rows,) = timeline.blocks()
    ctas = (0, 1, 8_191, 8_192, 20_000)
    blocks = [rows.copy() for _ in ctas]
    for block, cta in zip(blocks, ctas, strict=True):
        block["cta"] = cta
    launch = replace(timeline.launch, grid=(20_001, 1, 1))
    groups = found_in(replace(timeline, launch=launch, _blocks=blocks)).groups
    assert groups["cta"].tolist() == list(np.repeat(ctas, 4))
    assert groups["end_cycles"].tolist() == [1000, 1100, 3000, 3100] * len(ctas)
    assert groups["depth"].tolist() == [1, 2, 1, 2] * len(ctas)


def test_of_a_barrier_that_nobody_can_name_it_is_said(tmp_path: Path) -> None:
    timeline = barriers(tmp_path)
    text = BARRIERS.replace("%s = arith.remsi %i, %z2 : i32", "%s = tt.load %x : !tt.ptr<i32>")
    (timeline.launch.kernel.folder / "kernel.ttgir").write_text(text)
    found = found_in(timeline)
    assert not found.groups.size
    assert found.unpaired == {"ttng.async_tma_copy_global_to_local": "which barrier it tells cannot be evaluated"}


def test_bytes_in_flight_are_counted_on_each_sm(tmp_path: Path) -> None:
    timeline = barriers(tmp_path)
    flights = flights_of(timeline, found_in(timeline), ())
    assert flights is not None
    assert flights.most_bytes_per_sm == 2 * 64 * 64 * 2
    (copies,) = flights.flights
    assert (copies.work, copies.groups, copies.latency_ns, copies.blocked_share) == ("copies", 4, 1000, 1.0)
