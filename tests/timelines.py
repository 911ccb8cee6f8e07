"""Timelines made of rows, for what is reckoned from them: no buffer is decoded for their scopes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from buffers import Cta, Scope, save_launch
from numpy.typing import NDArray
from replacing import replace

from kprof_inject.timeline.columns import CTA_COLUMNS, INCOMPLETE_COLUMNS, SCOPE_COLUMNS
from kprof_inject.timeline.scope_statistics import ScopeStatistics, ScopeSums
from kprof_inject.timeline.timeline import Timeline, decode_launch


class Ran(NamedTuple):
    """A scope that ran from ``start_ns`` on: it took ``record_ns`` longer than its duration, for the sake of records. A
    clock of 2 GHz."""

    scope: int
    duration_ns: int
    cta: int = 0
    warp: int = 0
    sm: int = 0
    iteration: int = -1
    self_ns: int = 0
    record_ns: int = 0
    start_record: int = 0
    end_record: int = 1
    flags: int = 0
    start_ns: int = 1_764_000_000_000_000_000


def scope_rows(rows: Sequence[Ran]) -> NDArray[np.void]:
    columns = np.zeros(len(rows), dtype=SCOPE_COLUMNS)
    for name in ("scope", "duration_ns", "cta", "warp", "sm", "iteration", "self_ns", "flags", "start_ns"):
        columns[name] = [getattr(row, name) for row in rows]
    for name in ("start_record", "end_record"):
        columns[name] = [getattr(row, name) for row in rows]
    columns["duration_cycles"] = 2 * columns["duration_ns"]
    columns["end_ns"] = columns["start_ns"] + [row.duration_ns + row.record_ns for row in rows]
    return columns


def cta_rows(*rows: tuple[int, int, int, int, int]) -> NDArray[np.void]:
    """Number, SM, and the three times of each CTA."""
    return np.array(list(rows), dtype=CTA_COLUMNS)


def incomplete_rows(*rows: dict[str, int]) -> NDArray[np.void]:
    columns = np.zeros(len(rows), dtype=INCOMPLETE_COLUMNS)
    for column, row in zip(columns, rows, strict=True):
        for name, value in row.items():
            column[name] = value
    return columns


def made_timeline(
    folder: Path,
    scopes: Sequence[Scope],
    blocks: Iterable[NDArray[np.void]],
    ctas: NDArray[np.void],
    *,
    warps: int = 2,
    kernel: dict[str, Any] | None = None,
    **changes: Any,
) -> Timeline:
    """A launch of a kernel with ``warps`` warps, with these blocks of scopes and CTAs. ``kernel`` and ``changes`` are
    what is unusual in the kernel and in the timeline."""
    plain = decode_launch(save_launch(folder, scopes, [Cta([[]] * warps)], slots=4))
    launch = replace(plain.launch, kernel=replace(plain.launch.kernel, **(kernel or {})))
    clock = replace(plain.clock, rate_ns=0.5, rate_error=0.0125, residual_ns=9.6, source="fitted")
    return replace(plain, **{"launch": launch, "clock": clock, "ctas": ctas, "_blocks": blocks, **changes})


def scope_statistics(timeline: Timeline) -> tuple[ScopeStatistics, ...]:
    """The statistics of each scope of the table."""
    sums = ScopeSums(timeline)
    for block in timeline.blocks():
        sums.add(block)
    return sums.statistics()
