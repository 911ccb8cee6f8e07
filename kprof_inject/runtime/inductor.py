"""Facts about Inductor, torch's compiler: its environment, its autotuner, and its worker processes."""

from __future__ import annotations

import sys

ENVIRONMENT = {
    # A kernel compiled by a worker process arrives as a pickle, without a launcher for its records.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # Inductor's static launcher uses neither Triton's launcher nor its profile buffer.
    "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0",
}
"""Variables for the program that have Inductor compile in the program's own process, and launch through Triton."""

INDUCTOR_AUTOTUNER = "torch._inductor.runtime.triton_heuristics"
"""Module of Inductor's own autotuner."""

_WORKER = "torch._inductor.compile_worker"


def packages_binaries() -> bool:
    """Return True if Inductor passes binaries to C++ code, which launches them without Triton."""
    config = sys.modules.get("torch._inductor.config")
    return bool(getattr(config, "cpp_wrapper", False))


def is_compile_worker() -> bool:
    """Return True if this process compiles kernels for another one (the program set its number of workers itself)."""
    words = " ".join(sys.orig_argv).replace("/", ".")
    utilities = sys.modules.get(f"{_WORKER}.utils")
    return _WORKER in words or (utilities is not None and not utilities.in_toplevel_process())
