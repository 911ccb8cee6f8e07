"""Verdict on one kernel's durations: how far the records disturbed what they measure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct

from kprof_inject.capture.mode import TRUSTED_PERCENT
from kprof_inject.capture.model import KERNELS_CACHED, Kernel
from kprof_inject.capture.resources import KernelResources
from kprof_inject.quantities import counted
from kprof_inject.timeline.columns import Mask, Reals
from kprof_inject.timeline.comparison import (
    CONFIDENCE,
    Change,
    change_between,
    change_in_pairs,
    mean_share,
    rounded_error,
    run_noise,
    timer_step_ns,
)

_NO_BOUND_PERCENT = 100.0  # wider intervals are printed as ``>100``, because they bound nothing


class Overhead(Struct, frozen=True):
    """Increase of a kernel's time by its records: ``percent`` ± ``error_percent`` of the time without.

    The interval holds the truth with ``CONFIDENCE``. It is judged as it is printed, with the larger half on both sides.
    """

    percent: float
    error_percent: float
    min_error_percent: float = 0.0  # error that would remain after any number of launches

    @property
    def low_percent(self) -> float:
        """Lower end of the interval."""
        return self.percent - self.error_percent

    @property
    def high_percent(self) -> float:
        """Upper end of the interval."""
        return self.percent + self.error_percent

    @property
    def is_measurable(self) -> bool:
        """True if the times with and without records differ significantly."""
        return abs(self.percent) > self.error_percent

    def __str__(self) -> str:
        is_bound = self.error_percent <= _NO_BOUND_PERCENT
        error = rounded_error(self.error_percent) if is_bound else f">{_NO_BOUND_PERCENT:g}"
        # Adding 0.0 turns -0.0 into 0.0.
        return f"{round(self.percent, 1) + 0.0:+.1f} % ± {error}"


def usable_times(times_ns: Sequence[float]) -> Reals:
    """Return the times that a launch can have taken: finite and positive."""
    times = np.asarray(times_ns, dtype=np.float64)
    return times[_is_usable(times)]


def _is_usable(times_ns: Reals) -> Mask:
    return np.isfinite(times_ns) & (times_ns > 0)


def overhead_of(clean_ns: Reals, with_records_ns: Reals) -> Overhead | None:
    """Compare the launches of two processes, in their order; None if one has fewer than ``MIN_LAUNCHES``."""
    if not (clean_ns.size and with_records_ns.size):
        return None
    medians_ns = float(np.median(clean_ns)), float(np.median(with_records_ns))
    change = change_between(
        [clean_ns],
        [with_records_ns],
        floor=run_noise(*medians_ns),
        step=timer_step_ns((clean_ns, with_records_ns)) * mean_share(*medians_ns),
        is_one_kernel=True,
    )
    return _overhead_by(change)


def overhead_in_pairs(clean_ns: Sequence[float], with_records_ns: Sequence[float]) -> Overhead | None:
    """Compare interleaved launches; None if there are fewer than ``MIN_LAUNCHES``."""
    pairs = np.asarray([clean_ns, with_records_ns], dtype=np.float64)
    pairs = pairs[:, _is_usable(pairs).all(axis=0)]
    if not pairs.size:
        return None
    return _overhead_by(change_in_pairs(*pairs, step=timer_step_ns(pairs) * mean_share(*np.median(pairs, axis=1))))


def _overhead_by(change: Change | None) -> Overhead | None:
    return None if change is None else Overhead(change.percent, change.error_percent, change.min_error_percent)


def is_comparable(clean_ns: Reals) -> bool:
    """Determine whether such launches are many and long enough to be compared with those of another process."""
    repeated = overhead_of(clean_ns, clean_ns)
    return repeated is not None and repeated.min_error_percent <= TRUSTED_PERCENT


_UNRELIABLE_PERCENT = 20.0
"""Limit of the level *unreliable*: beyond it, at least a fifth of what is shown is due to the records, which may be the
largest part of all. Records cannot make a kernel this much faster: then the two runs cannot be compared.
"""


class Level(Enum):
    """Degree to which a kernel's durations can be trusted."""

    TRUSTWORTHY = "trustworthy"
    CAREFUL = "careful"
    UNRELIABLE = "unreliable"
    CANNOT_TELL = "cannot tell"  # there are times, but they do not suffice
    UNKNOWN = "unknown"  # there are no times to compare


_WEIGHTS = {Level.TRUSTWORTHY: 0, Level.UNKNOWN: 1, Level.CANNOT_TELL: 1, Level.CAREFUL: 2, Level.UNRELIABLE: 3}
"""Known problems outweigh missing facts."""


class Verdict(Struct, frozen=True):
    """Verdict on one kernel's durations.

    ``text`` has every reason for ``level``, the weightiest first. ``overhead`` is the estimate with its interval,
    however uncertain; None without times.
    """

    level: Level
    text: str
    overhead: Overhead | None
    clean: KernelResources
    with_records: KernelResources
    has_launching: bool
    """The times include the cost of launching, which was not measured on both sides; otherwise they are the kernel's
    own.
    """

    def __repr__(self) -> str:
        return f"<Verdict: {self.sentence}>"

    @property
    def clean_ns(self) -> float | None:
        """Median time of a launch without records."""
        return median_time_ns(self.clean)

    @property
    def with_records_ns(self) -> float | None:
        """Time of a launch with records: the time without and the overhead, which is no ratio of two medians."""
        if self.overhead is None or self.clean_ns is None:
            return median_time_ns(self.with_records)
        return self.clean_ns * (1 + self.overhead.percent / 100)

    @property
    def figure(self) -> str:
        """Overhead as text; empty if it allows no verdict."""
        if self.overhead is None or _why_no_verdict(self.overhead, self.clean, self.with_records):
            return ""
        if self.overhead.error_percent <= TRUSTED_PERCENT:
            return str(self.overhead)
        # The lower end of an interval that is too wide: it is certainly beyond a limit.
        return f"at least {math.floor(10 * self.overhead.low_percent) / 10:+.1f} %"

    @property
    def sentence(self) -> str:
        """Level and reasons: ``careful: recording slows the kernel by 5.5 % ± 0.3; the limit is 5 %``."""
        return f"{self.level.value}: {self.text}"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as a JSON object."""
        return {
            "level": self.level.value,
            "text": self.text,
            "overhead_percent": self.overhead and round(self.overhead.percent, 3),
            "overhead_error_percent": self.overhead and round(self.overhead.error_percent, 3),
            "confidence": CONFIDENCE,
            "launching_subtracted": not self.has_launching,
            "clean": _cost_json(self.clean, self.clean_ns),
            "with_records": _cost_json(self.with_records, self.with_records_ns),
        }


_Finding = tuple[Level, str]


@lru_cache(maxsize=KERNELS_CACHED)
def judge(kernel: Kernel) -> Verdict:
    """Compare a kernel with records to itself without; one that ran in two processes has a verdict for each."""
    clean, with_records = kernel.clean, kernel.with_records
    has_launching = not (clean.has_empty_times and with_records.has_empty_times)
    if not has_launching:
        clean, with_records = clean.without_launching(), with_records.without_launching()
    if clean.replayed_ns and with_records.replayed_ns:
        overhead = overhead_in_pairs(clean.replayed_ns, with_records.replayed_ns)
    elif clean.in_turn and with_records.in_turn:
        overhead = overhead_in_pairs(clean.times_ns or (), with_records.times_ns or ())
    else:
        overhead = overhead_of(usable_times(clean.times_ns or ()), usable_times(with_records.times_ns or ()))
    findings = [
        *_builds(clean, with_records, overhead),
        _run_time(overhead, clean, with_records)
        if overhead
        else (Level.UNKNOWN, _why_not_timed(clean, with_records, kernel.not_replayed)),
    ]
    # The sort is stable: findings of equal weight keep their order.
    findings.sort(key=lambda finding: -_WEIGHTS[finding[0]])
    reasons = [finding for finding in findings if finding[0] is not Level.TRUSTWORTHY] or findings
    text = "; ".join(text for _, text in reasons)
    return Verdict(reasons[0][0], text, overhead, clean, with_records, has_launching)


def needs_replay(kernel: Kernel) -> bool:
    """Determine whether the program's own launches do not show how much longer the kernel takes with records."""
    overhead = judge(kernel).overhead
    return overhead is None or overhead.error_percent > TRUSTED_PERCENT


def median_time_ns(cost: KernelResources) -> float | None:
    """Return the median time of a launch: by replays if there are some, otherwise by the program's own launches."""
    times_ns = usable_times(cost.replayed_ns or cost.times_ns or ())
    return float(np.median(times_ns)) if times_ns.size else None


def _builds(clean: KernelResources, with_records: KernelResources, overhead: Overhead | None) -> Iterator[_Finding]:
    if clean.spills is not None and with_records.spills is not None and with_records.spills > clean.spills:
        is_bounded = overhead is not None and overhead.high_percent <= _UNRELIABLE_PERCENT
        level = Level.CAREFUL if is_bounded else Level.UNRELIABLE
        yield level, f"records increase spills from {clean.spills} to {with_records.spills}"
    before, after = clean.ctas_per_sm, with_records.ctas_per_sm
    if before is not None and after is not None and before != after:
        moved, overlaps = ("fell", "less") if after < before else ("rose", "more")
        what = f"occupancy {moved} from {counted(before, 'CTA')} per SM to {after}"
        yield Level.CAREFUL, f"{what}: CTAs overlap {overlaps} than without records"


def _run_time(overhead: Overhead, clean: KernelResources, with_records: KernelResources) -> _Finding:
    """Judge the whole interval, not its middle: what may be bad is not called good."""
    if reason := _why_no_verdict(overhead, clean, with_records):
        # Where the launches without records were slowed, their difference is no overhead.
        measured = "" if overhead.percent < -_UNRELIABLE_PERCENT else f" (measured: {overhead})"
        return (Level.CANNOT_TELL, f"{reason}{measured}")
    if overhead.low_percent > _UNRELIABLE_PERCENT:
        limit = f"the limit is {_UNRELIABLE_PERCENT:g} %"
        return (Level.UNRELIABLE, f"{_effect(overhead)}; {limit}")
    if max(abs(overhead.low_percent), abs(overhead.high_percent)) > TRUSTED_PERCENT:
        return (Level.CAREFUL, _why_careful(overhead))
    cost = _effect(overhead) if overhead.is_measurable else f"recording has no measurable cost ({overhead})"
    if clean.registers is None or with_records.registers is None:
        return Level.TRUSTWORTHY, f"{cost}; registers are unknown"
    if clean.registers == with_records.registers:
        return Level.TRUSTWORTHY, f"{cost}; same registers"
    return Level.TRUSTWORTHY, f"{cost}; registers {clean.registers} → {with_records.registers}"


def _effect(overhead: Overhead) -> str:
    if overhead.error_percent > TRUSTED_PERCENT:
        return f"recording slows the kernel by at least {math.floor(10 * overhead.low_percent) / 10:.1f} %"
    amount = f"{abs(round(overhead.percent, 1)):.1f} % ± {rounded_error(overhead.error_percent)}"
    return f"recording {'slows the kernel by' if overhead.percent > 0 else 'makes the kernel faster by'} {amount}"


def _why_no_verdict(overhead: Overhead, clean: KernelResources, with_records: KernelResources) -> str:
    if overhead.percent < -_UNRELIABLE_PERCENT:
        return (
            "the overhead is not measurable: launches without records took longer than those with them, which records "
            "cannot cause; run both again on an idle GPU"
        )
    # A cost that is certainly beyond the limit allows a verdict, however wide its interval.
    if overhead.error_percent <= TRUSTED_PERCENT or overhead.low_percent > TRUSTED_PERCENT:
        return ""
    if clean.replayed_ns:
        if overhead.min_error_percent > TRUSTED_PERCENT:
            return "the kernel is too short for the timer, whose steps are too coarse; give each launch more work"
        return (
            f"the times of {len(clean.replayed_ns)} launches without records and as many with them, interleaved, "
            "scatter too much; use an idle GPU, or a larger --replay"
        )
    if overhead.min_error_percent > TRUSTED_PERCENT:
        return (
            f"the kernel is too short: two runs of the same build differ by more than {TRUSTED_PERCENT:g} %; --replay "
            "50 compares within one process, or give each launch more work"
        )
    launches = " and ".join(str(len(usable_times(cost.times_ns or ()))) for cost in (clean, with_records))
    return (
        f"the times of {launches} launches, without records and with them, scatter too much; run the kernel more "
        "often, use an idle GPU, or give each launch more work"
    )


def _why_careful(overhead: Overhead) -> str:
    limit = f"the limit is {TRUSTED_PERCENT:g} %"
    # Computed from the rounded figures, because readers add them up.
    upper = abs(round(overhead.percent, 1)) + float(rounded_error(overhead.error_percent))
    if not overhead.is_measurable:
        return f"recording may cost up to {upper:.1f} % ({overhead}), {limit}; run the kernel more often to know"
    if overhead.percent < 0:
        return f"{_effect(overhead)}: it changes how the kernel runs, or something else slowed the run without records"
    if overhead.low_percent > TRUSTED_PERCENT:
        return f"{_effect(overhead)}; {limit}"
    return f"{_effect(overhead)}; the interval reaches {upper:.1f} %, {limit}"


def _why_not_timed(clean: KernelResources, with_records: KernelResources, not_replayed: str | None) -> str:
    reason = f"; it was not replayed, because {not_replayed}" if not_replayed else ""
    for cost, which in ((clean, "without"), (with_records, "with")):
        if cost.not_timed:
            return f"no launch was timed {which} records, because {cost.not_timed}{reason}"
        if cost.times_ns is None:
            return f"the capture has no times {which} records{reason}"
    fewest = min(len(usable_times(cost.times_ns or ())) for cost in (clean, with_records))
    return f"too few launches to time ({fewest}); run the kernel more often, or with --replay 50{reason}"


def _cost_json(cost: KernelResources, time_ns: float | None) -> dict[str, Any]:
    return {
        "registers": cost.registers,
        "spills": cost.spills,
        "shared_bytes": cost.shared_bytes,
        "ctas_per_sm": cost.ctas_per_sm,
        "not_timed": cost.not_timed or "",
        "empty_launch_ns": cost.empty_launch_ns,
        "empty_replay_ns": cost.empty_replay_ns,
        "launches_timed": len(usable_times(cost.times_ns or ())),
        "replays_timed": len(usable_times(cost.replayed_ns or ())),
        "median_time_ns": time_ns,
    }
