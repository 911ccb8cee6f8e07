"""Hand-made launches in which asynchronous work was recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from buffers import Scope
from replacing import replace
from timelines import Ran, cta_rows, made_timeline, scope_rows

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
    rows["end_record"] = rows["start_record"] + 1
    ctas = cta_rows((0, 0, 0, 9000, 9000))
    named = [Scope(name, "op") for name in scopes]
    made = made_timeline(folder, named, [rows], ctas, warps=2, scope_count=len(rows))
    found = zip(made.table.scopes, scopes.values(), strict=True)
    table = replace(made.table, scopes=tuple(replace(scope, lines=(line, line)) for scope, line in found))
    (made.launch.kernel.folder / "kernel.ttgir").write_text(text)
    kernel = replace(made.launch.kernel, scopes=table)
    return replace(made, table=table, launch=replace(made.launch, kernel=kernel, grid=(1, 1, 1)))


def in_order(folder: Path, iterations: int = 4) -> Timeline:
    """A group each 1,000 cycles; the wait takes 500 in the last two iterations, and the one behind the loop 600."""
    spans: list[Span] = []
    for number in range(iterations):
        begin = 1000 * number
        spans += [(0, 0, begin, begin + 10), (1, 0, begin + 100, begin + (600 if number >= 2 else 120))]
    spans.append((2, 0, 5000, 5600))
    return launched(folder, COPIES, {"ttg.async_commit_group": COMMIT, "ttg.async_wait": WAIT, "last": LAST}, spans)
