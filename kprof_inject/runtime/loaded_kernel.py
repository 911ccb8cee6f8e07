"""What the driver made of a kernel that it loaded."""

from __future__ import annotations

from typing import Any

from kprof_inject.runtime.cuda_driver import ctas_per_sm


def resources_of(kernel: Any) -> dict[str, Any]:
    """Registers a thread, bytes it spills, shared bytes a CTA, and CTAs that an SM holds at once (None if unknown)."""
    threads = kernel.metadata.num_warps * kernel.metadata.target.warp_size
    return {
        "registers": kernel.n_regs,
        "spills": kernel.n_spills,
        "shared_bytes": kernel.metadata.shared,
        "ctas_per_sm": ctas_per_sm(kernel.function, threads, kernel.metadata.shared),
    }
