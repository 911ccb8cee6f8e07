"""Measure what kprof-inject and its peers cost a kernel: replays in turn, in one process. Needs a GPU.

    python benchmarks/overhead_peers.py [--kernel NAME]... [--form NAME]... [--rounds N] [--json FILE]

The forms of a kernel are

- ``plain``: without records;
- ``kprof-inject`` and ``kprof-inject, all``: with records for func, loop and iter, of the CTAs that ``--ctas auto``
  chooses and of all CTAs;
- ``Proton``: with Proton's scopes in the source, around the function's body, each loop and each iteration, lowered by
  the passes, in the default mode, that ``proton.start(backend="instrumentation")`` installs;
- ``as Triton-distributed``: the same scopes, recorded as its profiler does. At each start and end, one thread of the
  CTA stores 8 bytes, a tag and 32 bits of the global timer, between two fences. The library needs its own build of
  Triton, so this is written anew (source: python/triton_dist/tools/profiler/language.py at 1512a811);
- ``as sm-profiler``: the same scopes, recorded as github.com/leepoly/sm-profiler does. At each start and end, one lane
  of each warp reads the warp's state in global memory. Of each scope it stores 40 bytes with both times of the global
  timer. Written anew, too (source: cuda/sm_profiler.h at 71fb1c16; stores of 8 bytes are python/sm_profiler's). A full
  buffer stops the library, but here the newest scope replaces the oldest, so that every replay records.

kprof-inject records an iteration once, the peers at its start and end. Proton's records are of each warp, as ours.

Each form is launched back to back in a CUDA graph of its own, with one buffer for all launches, so the figures are GPU
time. They do not include what a profiler does on the host for a launch: allocate, clear, copy and decode the buffer.
The figures are computed as in ``overhead.py``.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
import triton.profiler.language as pl
from overhead import FORMS, Form, compiled, described, graph_of, resources, run, seen, timed_in_turn
from triton.profiler.hooks.instrumentation import InstrumentationHook

pl.enable_semantic("triton")


@contextmanager
def proton_passes() -> Iterator[None]:
    """Compile as in a session of Proton, without its hooks around each launch."""
    hook = InstrumentationHook(None)
    hook.activate()
    try:
        yield
    finally:
        hook.deactivate()


@triton.jit
def assembly(TEXT: tl.constexpr):
    return tl.inline_asm_elementwise(TEXT, "=r", [], tl.int32, is_pure=False, pack=1)


@triton.jit
def distributed_event(log, TASK: tl.constexpr, IS_START: tl.constexpr, cta, ctas):
    """Record as Triton-distributed's profiler, and return the address of the CTA's next event."""
    assembly("fence.sc.cta; mov.u32 $0, 0;")
    if assembly("mov.u32 $0, %tid.x;") == 0:
        now = assembly("mov.u32 $0, %globaltimer_lo;")
        tag = (cta << 12) | (TASK << 1) | IS_START
        tl.store(log, (now.to(tl.int64) << 32) | tag.to(tl.int64))
    assembly("fence.sc.cta; mov.u32 $0, 0;")
    return log + ctas


# Find the state of a warp in sm-profiler's buffer $1, for CTA $2 and task $3. The buffer has a header of 16 bytes, the
# number of scopes of each warp, the open scope (plus 1) of each warp and task, and the scopes.
FIND_STATE = """{ .reg .pred records; .reg .b64 number, open, event, value;
.reg .b32 word, index, warp, ctas, warps, capacity, enabled, scope;
mov.u32 word, %laneid; setp.eq.u32 records, word, 0;
@records ld.global.v2.b32 {warps, ctas}, [$1]; @records ld.global.v2.b32 {enabled, capacity}, [$1 + 8];
setp.ne.and.u32 records, enabled, 0, records;
mov.u32 index, %tid.x; shr.u32 index, index, 5; mad.lo.u32 warp, $2, warps, index;
mad.wide.u32 number, warp, 4, $1;
mul.lo.u32 word, ctas, warps; mad.wide.u32 open, word, 4, $1; mad.wide.u32 event, word, 128, open;
mad.wide.u32 open, warp, 128, open; mad.wide.u32 open, $3, 4, open;
@records ld.global.b32 scope, [open + 16];
"""
START_SCOPE = """setp.eq.and.u32 records, scope, 0, records;
@records ld.global.b32 scope, [number + 16]; add.u32 word, scope, 1; @records st.global.b32 [number + 16], word;
sub.u32 word, capacity, 1; and.b32 scope, scope, word;
mad.lo.u32 word, warp, capacity, scope; mad.wide.u32 event, word, 40, event;
mov.b64 value, {scope, $3}; @records st.global.b64 [event + 16], value;
mov.b64 value, {$2, index}; @records st.global.b64 [event + 24], value;
mov.u32 word, %smid; cvt.u64.u32 value, word; @records st.global.b64 [event + 32], value;
mov.u64 value, %globaltimer; @records st.global.b64 [event + 40], value;
mov.u64 value, 0; @records st.global.b64 [event + 48], value;
add.u32 scope, scope, 1; @records st.global.b32 [open + 16], scope; mov.u32 $0, 0; }"""
END_SCOPE = """setp.ne.and.u32 records, scope, 0, records; sub.u32 scope, scope, 1;
mad.lo.u32 word, warp, capacity, scope; mad.wide.u32 event, word, 40, event;
mov.u64 value, %globaltimer; @records st.global.b64 [event + 48], value;
mov.u32 word, 0; @records st.global.b32 [open + 16], word; mov.u32 $0, 0; }"""
SM_EVENTS = tl.constexpr((FIND_STATE + END_SCOPE, FIND_STATE + START_SCOPE))


@triton.jit
def mark(log, NAME: tl.constexpr, TASK: tl.constexpr, IS_START: tl.constexpr, PEER: tl.constexpr):
    """Record the start or the end of a scope, and return where the next record goes."""
    ctas = tl.num_programs(0) * tl.num_programs(1)
    cta = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)
    if PEER == "Proton":
        if IS_START:
            pl.enter_scope(NAME)
        else:
            pl.exit_scope(NAME)
    elif PEER == "Triton-distributed":
        log = distributed_event(log, TASK, IS_START, cta, ctas)
    elif PEER == "sm-profiler":
        operands = [log, cta, tl.full((), TASK, tl.int32)]
        tl.inline_asm_elementwise(SM_EVENTS[IS_START], "=r,l,r,r", operands, tl.int32, is_pure=False, pack=1)
    return log


@triton.jit
def start(events, PEER: tl.constexpr):
    """Record the start of the function. What is returned without a buffer is not used."""
    log = tl.full((), 0, tl.int32) if events is None else events
    if PEER == "Triton-distributed":
        ctas = tl.num_programs(0) * tl.num_programs(1)
        cta = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)
        words = events.to(tl.pointer_type(tl.int32))
        if cta == 0:
            tl.store(words, ctas)
            tl.store(words + 1, 1)
        tl.store(words + 2 + 2 * cta, cta)
        tl.store(words + 3 + 2 * cta, assembly("mov.u32 $0, %smid;"))
        log = events + 1 + ctas + cta
    return mark(log, "func", 0, 1, PEER)


@triton.jit
def block_matmul(events, PEER: tl.constexpr, a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    log = start(events, PEER)
    row, column = tl.program_id(0), tl.program_id(1)
    left = tl.make_block_ptr(a, (M, K), (K, 1), (row * BM, 0), (BM, BK), (1, 0))
    right = tl.make_block_ptr(b, (K, N), (N, 1), (0, column * BN), (BK, BN), (1, 0))
    total = tl.zeros((BM, BN), tl.float32)
    log = mark(log, "loop", 1, 1, PEER)
    for _ in range(0, K, BK):
        log = mark(log, "iter", 2, 1, PEER)
        total = tl.dot(tl.load(left), tl.load(right), total)
        left = tl.advance(left, (0, BK))
        right = tl.advance(right, (BK, 0))
        log = mark(log, "iter", 2, 0, PEER)
    log = mark(log, "loop", 1, 0, PEER)
    out = tl.make_block_ptr(c, (M, N), (N, 1), (row * BM, column * BN), (BM, BN), (1, 0))
    tl.store(out, total.to(tl.float16))
    mark(log, "func", 0, 0, PEER)


@triton.jit
def rms(events, PEER: tl.constexpr, x, y, n, BLOCK: tl.constexpr):
    log = start(events, PEER)
    row = tl.program_id(0)
    squares = tl.zeros((BLOCK,), tl.float32)
    log = mark(log, "loop", 1, 1, PEER)
    for first in range(0, n, BLOCK):
        log = mark(log, "iter", 2, 1, PEER)
        part = tl.load(x + row * n + first + tl.arange(0, BLOCK)).to(tl.float32)
        squares += part * part
        log = mark(log, "iter", 2, 0, PEER)
    log = mark(log, "loop", 1, 0, PEER)
    scale = tl.rsqrt(tl.sum(squares) / n)
    log = mark(log, "loop 2", 3, 1, PEER)
    for first in range(0, n, BLOCK):
        log = mark(log, "iter 2", 4, 1, PEER)
        at = row * n + first + tl.arange(0, BLOCK)
        tl.store(y + at, (tl.load(x + at).to(tl.float32) * scale).to(tl.float16))
        log = mark(log, "iter 2", 4, 0, PEER)
    log = mark(log, "loop 2", 3, 0, PEER)
    mark(log, "func", 0, 0, PEER)


@triton.jit
def whole_row_softmax(events, PEER: tl.constexpr, x, y, n, BLOCK: tl.constexpr):
    log = start(events, PEER)
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < n
    row = tl.load(x + at, mask=inside, other=float("-inf")).to(tl.float32)
    part = tl.exp(row - tl.max(row))
    tl.store(y + at, (part / tl.sum(part)).to(tl.float16), mask=inside)
    mark(log, "func", 0, 0, PEER)


@triton.jit
def gelu(events, PEER: tl.constexpr, x, y, n, BLOCK: tl.constexpr):
    log = start(events, PEER)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(y + at, (value * tl.sigmoid(1.702 * value)).to(tl.float16), mask=at < n)
    mark(log, "func", 0, 0, PEER)


@dataclass(frozen=True)
class Case:
    """Launch of a kernel."""

    kernel: Any
    grid: tuple[int, ...]
    tensors: int
    shape: tuple[int, ...]
    """Shape of each tensor."""
    rest: Sequence[int]
    """Arguments after the tensors."""
    scopes: int
    """Number of scopes of a CTA."""
    warps: int
    stages: int = 3


KERNELS = {
    "block matmul 4096": Case(block_matmul, (32, 16), 3, (4096, 4096), [4096, 4096, 4096, 128, 256, 64], 66, 8, 4),
    "rms 16384x4096": Case(rms, (16384,), 2, (16384, 4096), [4096, 1024], 11, 4),
    "whole-row softmax": Case(whole_row_softmax, (8192,), 2, (8192, 3000), [3000, 4096], 1, 8),
    "gelu, 65536 CTAs": Case(gelu, (1 << 16,), 2, (1 << 26,), [1 << 26, 1024], 1, 4),
}
# For each form, the peer whose calls are in the source, and how it is compiled.
PEERS = {
    "plain": ("", FORMS["plain"]),
    "kprof-inject": ("", FORMS["default"]),
    "kprof-inject, all": ("", FORMS["one"]),
    "Proton": ("Proton", Form(around=proton_passes)),
    "as Triton-distributed": ("Triton-distributed", FORMS["plain"]),
    "as sm-profiler": ("sm-profiler", FORMS["plain"]),
}


def event_buffer(peer: str, case: Case) -> torch.Tensor | None:
    words = partial(torch.zeros, dtype=torch.int64, device="cuda")
    ctas = math.prod(case.grid)
    if peer == "Triton-distributed":
        return words(1 + ctas + 2 * case.scopes * ctas)
    if peer == "sm-profiler":
        warps, capacity = ctas * case.warps, triton.next_power_of_2(case.scopes)
        buffer = words(2 + (4 + 128) * warps // 8 + 5 * capacity * warps)
        buffer[0], buffer[1] = ctas << 32 | case.warps, capacity << 32 | 1
        return buffer
    return None


def measure(case: Case, forms: Sequence[str], rounds: int) -> dict[str, dict[str, float]]:
    torch.manual_seed(0)
    tensors = [torch.randn(case.shape, device="cuda", dtype=torch.float16) for _ in range(case.tensors)]
    kernels, graphs, buffers = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in forms:
            peer, form = PEERS[name]
            events = event_buffer(peer, case)
            arguments = (events, peer, *tensors, *case.rest)
            with form.around():
                one = seen(partial(case.kernel[case.grid], *arguments, num_warps=case.warps, num_stages=case.stages))
            kernels[name] = compiled(one, form, Path(folder))
            graphs[name] = graph_of(one, kernels[name], form.ctas)
            buffers[name] = [*graphs[name][2], *([] if events is None else [events])]
        found = timed_in_turn(graphs, rounds)
    for name, values in found.items():
        # Shows that a form records.
        written = sum(int(buffer.view(torch.int32).count_nonzero()) for buffer in buffers[name])
        values |= resources(kernels[name]) | {"words_written": written}
    return found


def described_with_words(values: Mapping[str, float]) -> str:
    return f"{described(values)}, {values['words_written']:,.0f} words written"


if __name__ == "__main__":
    run(
        __doc__, KERNELS, PEERS, lambda name, forms, rounds: measure(KERNELS[name], forms, rounds), described_with_words
    )
