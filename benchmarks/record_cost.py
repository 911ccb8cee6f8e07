"""Measures the cost of a record, by profiling a kernel with records next to each other and next to work.

``scripts/record-costs`` prints what this measures as the rows of ``kprof_inject/capture/mode.py``. Outside of
loops the compiler knows each record's place in the ring. In a loop it knows that of every second record, unless an odd
number of records precedes the loop: hence the scope around the loops here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime.driver import driver

from kprof_inject.api import profile
from kprof_inject.capture.mode import Mode, RecordCost
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline

NUM_WARPS = 4
"""An SM has four schedulers, so no warp waits for another to issue."""
ROUNDS = 16
CHAIN_LENGTH = 64
BUFFER_BYTES = 8192
"""Large enough for all records of the kernel in the ring of each of its warps."""
_CTAS = 8
_LAUNCHES = 12

Gaps = NDArray[np.int64]
"""Cycles from one record of a warp to the next, at one place in the kernel's code, of all warps and all rounds."""

_CUDA_CHAIN = tl.constexpr("mov.f32 $0, $1;" + CHAIN_LENGTH * " fma.rn.f32 $0, $0, 0f3F000000, 0f3F000000;")
_HIP_CHAIN = tl.constexpr("v_mov_b32 $0, $1" + CHAIN_LENGTH * "\nv_fma_f32 $0, $0, 0.5, 0.5")


@triton.jit
def _chain(value, BACKEND: tl.constexpr):
    """Multiply and add in a chain, each step waiting for the one before.

    The compiler does not move it. The assembler may let it begin before the previous record is complete, as it does
    with any work.
    """
    if BACKEND == "hip":
        value = tl.inline_asm_elementwise(_HIP_CHAIN, "=&v,v", [value], dtype=tl.float32, is_pure=False, pack=1)
    else:
        value = tl.inline_asm_elementwise(_CUDA_CHAIN, "=&f,f", [value], dtype=tl.float32, is_pure=False, pack=1)
    return value


@triton.jit(do_not_specialize=["rounds"])
def recorded_kernel(rounds, BACKEND: tl.constexpr):
    """Make records outside of loops, in a loop without work, and in a loop with work."""
    # kprof: mark straight_0
    # kprof: mark straight_1
    # kprof: mark straight_2
    # kprof: mark straight_3
    # kprof: mark straight_4
    # kprof: mark straight_5
    # kprof: mark straight_6
    # kprof: mark straight_7
    tl.debug_barrier()
    # kprof: begin around
    for _ in range(rounds):
        # kprof: mark loop_0
        # kprof: mark loop_1
        tl.debug_barrier()
    value = rounds.to(tl.float32)
    for _ in range(rounds):
        # kprof: begin work_0
        value = _chain(value, BACKEND)
        # kprof: end work_0
        value = _chain(value, BACKEND)
        # kprof: begin work_1
        value = _chain(value, BACKEND)
        value = _chain(value, BACKEND)
        # kprof: end work_1
        value = _chain(value, BACKEND)
        value = _chain(value, BACKEND)
        # kprof: mark work_2
        tl.debug_barrier()
    # kprof: end around
    # Never true, but the assembler cannot know that, and so keeps the work.
    if value < 0:
        tl.debug_barrier()


@dataclass(frozen=True)
class MeasuredCost:
    """Measured cost of a record in one mode, in cycles.

    A cost is the distance from a record's clock reading to that of the next record of the same warp.
    ``after_start_cycles`` and ``after_end_cycles`` follow the start and the end of a scope, in a loop, where the next
    record is adjacent; ``cycles`` is their mean. The two ``beside_work`` costs are the rest of the distance where work
    is in between, less that work. ``straight_cycles`` is ``cycles`` outside of loops. ``spread_cycles`` is the
    interquartile range at one place in the code without work; ``samples`` is the total number of distances.
    """

    cycles: float
    after_start_cycles: float
    after_end_cycles: float
    after_start_beside_work_cycles: float
    after_end_beside_work_cycles: float
    straight_cycles: float
    spread_cycles: float
    samples: int

    def record_cost(self, *, sched_stores: bool) -> RecordCost:
        """Return the cost to subtract: the middle between the smallest and the largest, with half their distance."""
        start = [self.after_start_cycles, self.after_start_beside_work_cycles]
        end = [self.after_end_cycles, self.after_end_beside_work_cycles]
        if not sched_stores:
            # Start and end have the same instructions; only the compiler's scheduling of the work around them differed.
            start = end = start + end
        error_cycles = max((max(costs) - min(costs)) / 2 for costs in (start, end))
        return RecordCost(_middle(start), _middle(end), error_cycles)


def _middle(costs: Sequence[float]) -> float:
    return (min(costs) + max(costs)) / 2


def measure(folder: Path, mode: Mode) -> MeasuredCost:
    """Measure the cost on the current device. Raises ``KprofError`` if the kernel cannot be recorded."""
    return cost_in(record(folder, mode))


def record(folder: Path, mode: Mode) -> list[Timeline]:
    """Launch the kernel on the current device, and return the timelines.

    Of ``mode``, sizes and numbers of warps do not count. ``folder`` is that of the profile: empty or new.
    """
    warps = tuple(range(NUM_WARPS)) if mode.warps else ()
    recorded = Mode(mode.buffer, BUFFER_BYTES, mode.clock_bits, warps, mode.sched_stores)
    backend = driver.active.get_current_target().backend
    name = recorded_kernel.__name__
    with profile(["marker"], kernel=name, launches="all", mode=recorded, replay=0, folder=folder) as prof:
        for _ in range(_LAUNCHES):
            recorded_kernel[(_CTAS,)](ROUNDS, backend, num_warps=NUM_WARPS)
    _ = prof.timeline  # says why there is none
    return list(prof.timelines)


def cost_in(timelines: Sequence[Timeline]) -> MeasuredCost:
    """Compute the cost from the launches of the kernel; raises ``KprofError`` if records are missing."""
    loop, straight = _gaps(timelines, "loop_"), _gaps(timelines, "straight_")
    in_loop, outside = _medians(loop), _medians(straight)
    after_start, after_end = float(np.mean(in_loop[::2])), float(np.mean(in_loop[1::2]))
    # If records cost next to nothing, the difference may be negative.
    next_to_work = [max(cycles, 0.0) for cycles in costs_next_to_work(timelines)]
    quartiles = [np.percentile(gaps, (25, 75)) for gaps in (*loop, *straight)]
    return MeasuredCost(
        cycles=(after_start + after_end) / 2,
        after_start_cycles=after_start,
        after_end_cycles=after_end,
        after_start_beside_work_cycles=next_to_work[0],
        after_end_beside_work_cycles=next_to_work[1],
        straight_cycles=float(np.mean(outside)),
        spread_cycles=float(np.mean([high - low for low, high in quartiles])),
        samples=sum(len(gaps) for gaps in (*loop, *straight)),
    )


def costs_next_to_work(timelines: Sequence[Timeline]) -> tuple[float, float]:
    """Return the cost of a start and of an end that work follows, in cycles; may be negative.

    It is twice the distance to the next record with some work in between, less the distance with twice the work. Raises
    ``KprofError`` if records are missing.
    """
    once_from_start, once_from_end, twice_from_start, twice_from_end, _ = _medians(_gaps(timelines, "work_"))
    return 2 * once_from_start - twice_from_start, 2 * once_from_end - twice_from_end


def _medians(places: Sequence[Gaps]) -> list[float]:
    """Return the median of each place, because warps that waited for instructions are outliers."""
    return [float(np.median(gaps)) for gaps in places]


def _gaps(timelines: Sequence[Timeline], prefix: str) -> list[Gaps]:
    """Return the gaps between the records of consecutive scopes whose names begin with ``prefix``.

    They are after the first scope's start, after its end, after the second one's start and so on.
    """
    launches = [_gaps_in(timeline, prefix) for timeline in timelines]
    return [np.concatenate(place) for place in zip(*launches, strict=True)]


def _gaps_in(timeline: Timeline, prefix: str) -> list[Gaps]:
    # Runs of one scope are ordered by CTA, warp and time, so that rows of several scopes correspond.
    names, scopes = [scope.name for scope in timeline.table.scopes], timeline.scopes
    row = [scopes[scopes["scope"] == index] for index, name in enumerate(names) if name.startswith(prefix)]
    if len({len(scope) for scope in row}) != 1 or not len(row[0]):
        raise KprofError("records of the kernel are missing")
    records = [scope[column] for scope in row for column in ("start_cycles", "end_cycles")]
    return [after - before for before, after in pairwise(records)]
