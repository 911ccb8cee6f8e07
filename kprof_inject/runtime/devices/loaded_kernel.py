"""What the driver made of a kernel that it loaded."""

from __future__ import annotations

import re
from typing import Any

from kprof_inject.runtime.devices.cuda_driver import ctas_per_sm

# A stack that the PTX asks for itself, such as the one in which Proton keeps the place of its next record.
_STACK = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+__local_depot\d+\[(\d+)\]")
# What ptxas rounds a frame up to: seen on sm_90, where a stack of 4 bytes makes 8 of local memory.
_FRAME_UNIT_BYTES = 8


def resources_of(kernel: Any) -> dict[str, Any]:
    """Registers a thread, words that the assembler spilled, shared bytes a CTA, and CTAs that an SM holds at once (None
    if unknown).

    Triton takes all local memory for spills (``local_words``); what is a stack is taken off again."""
    threads = kernel.metadata.num_warps * kernel.metadata.target.warp_size
    stack_bytes = sum(int(size) for size in _STACK.findall(kernel.asm.get("ptx", "")))
    stack_words = -(-stack_bytes // _FRAME_UNIT_BYTES) * _FRAME_UNIT_BYTES // 4
    return {
        "registers": kernel.n_regs,
        "local_words": kernel.n_spills,
        "spills": max(kernel.n_spills - stack_words, 0),
        "shared_bytes": kernel.metadata.shared,
        "ctas_per_sm": ctas_per_sm(kernel.function, threads, kernel.metadata.shared),
    }
