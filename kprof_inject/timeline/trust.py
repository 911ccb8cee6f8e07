"""The verdict on one kernel's durations: how far did the records in it disturb what they measure?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import numpy as np

from kprof_inject.capture.costs import KernelCost
from kprof_inject.capture.reader import Kernel
from kprof_inject.timeline.overhead import CONFIDENCE, MIN_LAUNCHES, Overhead, overhead_of, usable_times

_TRUSTED_PERCENT = 5.0
"""Whoever asks where a kernel's time goes is after larger parts of it than this: their order holds."""

_UNRELIABLE_PERCENT = 20.0
"""Beyond it a fifth of what is shown, or more, is the records' own: it may be the largest part of all."""


class Level(Enum):
    """How far to trust a kernel's durations."""

    TRUSTWORTHY = "trustworthy"
    CAREFUL = "careful"
    UNRELIABLE = "unreliable"
    UNKNOWN = "unknown"


_WEIGHTS = {Level.TRUSTWORTHY: 0, Level.UNKNOWN: 1, Level.CAREFUL: 2, Level.UNRELIABLE: 3}
"""What is known to be bad weighs more than what is not known."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``text`` says all that ``level`` rests on, the weightiest first. ``overhead`` is None if it cannot be told."""

    level: Level
    text: str
    overhead: Overhead | None
    clean: KernelCost
    with_records: KernelCost

    def to_json(self) -> dict[str, Any]:
        return {
            "level": self.level.value,
            "text": self.text,
            "overhead_percent": self.overhead and round(self.overhead.percent, 3),
            "overhead_error_percent": self.overhead and round(self.overhead.error_percent, 3),
            "confidence": CONFIDENCE,
            "clean": _cost_json(self.clean),
            "with_records": _cost_json(self.with_records),
        }


@dataclass(frozen=True, slots=True)
class _Finding:
    level: Level
    text: str


def judge(kernel: Kernel) -> Verdict:
    """Compare a kernel with records to itself without. A variant that ran in two processes has a verdict for each."""
    clean, with_records = kernel.clean, kernel.with_records
    overhead = _overhead(clean, with_records)
    findings = [
        *_spills(clean, with_records),
        *_occupancy(clean, with_records),
        _run_time(overhead, clean, with_records) if overhead else _no_run_time(clean, with_records),
    ]
    # Those that weigh the same stay in order.
    findings.sort(key=lambda finding: -_WEIGHTS[finding.level])
    told = [finding for finding in findings if finding.level is not Level.TRUSTWORTHY] or findings
    return Verdict(told[0].level, "; ".join(finding.text for finding in told), overhead, clean, with_records)


def median_time_ns(cost: KernelCost) -> float | None:
    times_ns = usable_times(cost.times_ns or ())
    return float(np.median(times_ns)) if times_ns.size else None


def _overhead(clean: KernelCost, with_records: KernelCost) -> Overhead | None:
    samples = usable_times(clean.times_ns or ()), usable_times(with_records.times_ns or ())
    return overhead_of(*samples) if min(map(len, samples)) >= MIN_LAUNCHES else None


def _spills(clean: KernelCost, with_records: KernelCost) -> Iterator[_Finding]:
    if clean.spills is None or with_records.spills is None or with_records.spills <= clean.spills:
        return
    what = f"spills grew from {clean.spills} to {with_records.spills}" if clean.spills else "spills appeared"
    yield _Finding(Level.UNRELIABLE, f"{what}: durations unreliable")


def _occupancy(clean: KernelCost, with_records: KernelCost) -> Iterator[_Finding]:
    before, after = clean.ctas_per_sm, with_records.ctas_per_sm
    if before is None or after is None or before == after:
        return
    moved, overlaps = ("fell", "less") if after < before else ("rose", "more")
    what = f"occupancy {moved} from {before} to {after} CTAs per SM"
    yield _Finding(Level.CAREFUL, f"{what}: the kernel overlaps {overlaps} than it does by itself")


def _run_time(overhead: Overhead, clean: KernelCost, with_records: KernelCost) -> _Finding:
    """The whole interval is judged, not its middle: what may be bad is not called good."""
    if overhead.low_percent > _UNRELIABLE_PERCENT:
        return _Finding(Level.UNRELIABLE, f"{overhead}: durations unreliable")
    if max(abs(overhead.low_percent), abs(overhead.high_percent)) > _TRUSTED_PERCENT:
        return _Finding(Level.CAREFUL, f"{overhead}: {_why_careful(overhead)}")
    cost = str(overhead) if overhead.is_measurable else f"no measurable cost ({overhead})"
    return _Finding(Level.TRUSTWORTHY, f"{cost}, {_registers(clean, with_records)}: trustworthy")


def _why_careful(overhead: Overhead) -> str:
    if not overhead.is_measurable:
        return "the times scatter too much to tell; run the kernel more often, on a GPU that does nothing else"
    if overhead.percent < 0:
        return "faster than by itself; the records changed how it runs, or something else slowed the run without them"
    return "the kernel runs longer than it does by itself"


def _no_run_time(clean: KernelCost, with_records: KernelCost) -> _Finding:
    for cost, which in ((clean, "without"), (with_records, "with")):
        if cost.not_timed:
            return _Finding(Level.UNKNOWN, f"unknown: no launch was timed {which} records, for {cost.not_timed}")
        if cost.times_ns is None:
            return _Finding(Level.UNKNOWN, f"unknown: the capture has no times {which} records")
    fewest = min(len(usable_times(cost.times_ns or ())) for cost in (clean, with_records))
    return _Finding(Level.UNKNOWN, f"too few launches to time ({fewest}): run the kernel more often")


def _registers(clean: KernelCost, with_records: KernelCost) -> str:
    if clean.registers is None or with_records.registers is None:
        return "registers unknown"
    if clean.registers == with_records.registers:
        return "same registers"
    return f"registers {clean.registers} → {with_records.registers}"


def _cost_json(cost: KernelCost) -> dict[str, Any]:
    values = asdict(cost)
    times: Sequence[float] = values.pop("times_ns") or ()
    return {**values, "launches_timed": len(usable_times(times)), "median_time_ns": median_time_ns(cost)}
