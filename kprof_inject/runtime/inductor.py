"""What we ask of Inductor, torch's compiler, and where in it we are."""

from __future__ import annotations

import sys

ENVIRONMENT = {
    # A kernel that a worker process compiled arrives as a pickle: records would come without a launcher for them.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # Launches by a path that knows neither Triton's launcher nor its profile buffer.
    "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0",
}
"""For the program: Inductor compiles in its own process, and launches through Triton."""

INDUCTOR_AUTOTUNER = "torch._inductor.runtime.triton_heuristics"
"""The module of Inductor's own autotuner."""

_WORKER = "torch._inductor.compile_worker"


def packages_binaries() -> bool:
    """True if Inductor hands binaries to C++ code, which launches them by itself."""
    config = sys.modules.get("torch._inductor.config")
    return bool(getattr(config, "cpp_wrapper", False))


def is_compile_worker() -> bool:
    """True in a process that compiles kernels for another one (the program set its own number of them)."""
    words = " ".join(sys.orig_argv).replace("/", ".")
    utilities = sys.modules.get(f"{_WORKER}.utils")
    return _WORKER in words or (utilities is not None and not utilities.in_toplevel_process())
