"""Time that passes in a kernel, for programs that make a CTA late."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pass_time(ns):
    """Return the device's time after ``ns`` nanoseconds."""
    return tl.inline_asm_elementwise(
        """{
        .reg .u64 %begin<1>, %now<1>; .reg .pred %on<1>;
        mov.u64 %begin0, %globaltimer;
        again: mov.u64 %now0, %globaltimer;
        sub.u64 %now0, %now0, %begin0;
        setp.lt.u64 %on0, %now0, $1;
        @%on0 bra again;
        mov.u64 $0, %globaltimer;
        }""",
        "=l,l",
        [ns],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )
