"""Profilers whose buffers can be read, by the names that users give."""

from __future__ import annotations

from kprof_inject.capture.foreign.cute import Cute, CuteCompact
from kprof_inject.capture.foreign.entries import Profiler
from kprof_inject.capture.foreign.flashinfer import FlashInfer
from kprof_inject.capture.foreign.sm_profiler import SmProfiler
from kprof_inject.capture.foreign.triton_distributed import TritonDistributed
from kprof_inject.errors import KprofError, did_you_mean

PROFILERS: dict[str, Profiler] = {
    "sm-profiler": SmProfiler(),
    "triton-distributed": TritonDistributed(),
    "flashinfer": FlashInfer(),
    "cute": Cute(),
    "cute-compact": CuteCompact(),
}


def profiler_of(name: str) -> Profiler:
    """Return the profiler with this name; raises ``KprofError`` if there is none."""
    if name not in PROFILERS:
        raise KprofError(
            f"no profiler is called {name!r}",
            hint=f"{did_you_mean(name, PROFILERS)}known profilers: {', '.join(PROFILERS)}",
            exit_code=2,
        )
    return PROFILERS[name]
