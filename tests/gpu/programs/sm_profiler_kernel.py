"""A kernel with sm-profiler's calls in it. It needs that package."""

from __future__ import annotations

import triton
import triton.language as tl
from sm_profiler.triton_ops import profiler_event_end, profiler_event_start, profiler_init


@triton.jit
def sm_profiler_kernel(buffer, x_ptr, ROUNDS: tl.constexpr):
    context = profiler_init(buffer)
    block = tl.program_id(0)
    offsets = block * 1024 + tl.arange(0, 1024)
    profiler_event_start(context, block, 0, 0)
    for _ in range(ROUNDS):
        profiler_event_start(context, block, 0, 1)
        x = tl.load(x_ptr + offsets)
        profiler_event_end(context, block, 0, 1)
        profiler_event_start(context, block, 0, 2)
        tl.store(x_ptr + offsets, tl.exp(x))
        profiler_event_end(context, block, 0, 2)
    profiler_event_end(context, block, 0, 0)
