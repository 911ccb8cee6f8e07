"""File of what the hardware counted while a kernel ran without records, and what its warps waited for.

``docs/file-formats.md`` describes the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from kprof_inject.capture.schema import Bytes, Count, Name, Text
from kprof_inject.machine_code.lines import Moved

L2Contents = Literal["left", "emptied", "inputs"]
"""What the L2 holds when a launch begins. ``left``: what the launch before it left there. ``emptied``: nothing of its
memory. ``inputs``: as much of the memory that it only reads as fits.
"""

# No counter of 64 bits, and no ratio of two of them, is larger.
MetricValue = Annotated[float, Meta(ge=-1e20, le=1e20)]


class CountersRecord(Struct, frozen=True, kw_only=True):
    """Values of metrics by NVIDIA's names, which took ``passes`` launches."""

    metrics: Mapping[Name, MetricValue]
    passes: Annotated[int, Meta(ge=1, lt=1 << 16)]


class SampledInstruction(Struct, frozen=True, array_like=True):
    """Samples of the instruction at an address, counted from the function's begin, by the reason.

    The reasons are NVIDIA's names without ``smsp__pcsamp_warps_issue_stalled_``. Samples of a ``*_not_issued`` reason
    are those of the reason in whose cycle the scheduler issued no instruction of any warp.
    """

    address: Bytes
    samples: Mapping[Name, Count]


def summed(samples: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Add up samples by reason."""
    total: Counter[str] = Counter()
    for one in samples:
        total.update(one)
    return total


class SamplesRecord(Struct, frozen=True, kw_only=True):
    """Samples of a kernel's warps, one of each SM every ``period_cycles``, in ``launches`` launches.

    ``dropped`` samples were lost by the hardware, of ``total`` that include those of other kernels.
    """

    period_cycles: Annotated[int, Meta(ge=1, lt=1 << 32)]
    launches: Annotated[int, Meta(ge=1, lt=1 << 16)]
    total: Count
    dropped: Count
    instructions: tuple[SampledInstruction, ...]


class MeasurementsRecord(Struct, frozen=True, kw_only=True):
    """Content of ``measurements.json``.

    A reason why there are no counters, or no samples, is in words that follow *because*. ``l2`` is what the L2 held
    when each launch began.
    """

    counters: CountersRecord | None = None
    not_counted: Text = ""
    samples: SamplesRecord | None = None
    not_sampled: Text = ""
    l2: L2Contents = "left"
    seconds: Annotated[float, Meta(ge=0, lt=1e9)] = 0.0


class MovesRecord(Struct, frozen=True, kw_only=True):
    """Content of ``moves.json``: what the compiler moved out of each scope and into it.

    By the name of the scope's record; None if no clock read of the scope was found. Lines are those of the TTGIR
    without records.
    """

    scopes: Mapping[Name, tuple[Moved, ...] | None]
