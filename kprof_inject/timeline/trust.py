"""The verdict on one kernel's durations: how far did the records in it disturb what they measure?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.resources import KernelResources
from kprof_inject.timeline.comparison import (
    CONFIDENCE,
    OF_RECORDS,
    change_between,
    change_in_pairs,
    mean_share,
    rounded_error,
    run_noise,
    timer_step_ns,
)

_NO_BOUND_PERCENT = 100.0
"""An interval wider than this bounds nothing: that is all there is to say of it."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """How much longer a kernel takes with records in it: ``percent`` ± ``error_percent`` of the time without. The
    interval holds the truth with ``CONFIDENCE``; it is judged as it is printed, with the larger half on both sides."""

    percent: float
    error_percent: float
    min_error_percent: float = 0.0
    """What would be left of the error after any number of launches."""

    @property
    def low_percent(self) -> float:
        return self.percent - self.error_percent

    @property
    def high_percent(self) -> float:
        return self.percent + self.error_percent

    @property
    def is_measurable(self) -> bool:
        """Whether the times with and without records differ by more than chance."""
        return abs(self.percent) > self.error_percent

    def __str__(self) -> str:
        is_bound = self.error_percent <= _NO_BOUND_PERCENT
        error = rounded_error(self.error_percent) if is_bound else f">{_NO_BOUND_PERCENT:g}"
        # -0.0 is no number to show.
        return f"{round(self.percent, 1) + 0.0:+.1f} % ± {error}"


def usable_times(times_ns: Sequence[float]) -> NDArray[np.float64]:
    """The times without those that no launch can have taken."""
    times = np.asarray(times_ns, dtype=np.float64)
    return times[_is_usable(times)]


def _is_usable(times_ns: NDArray[np.float64]) -> NDArray[np.bool_]:
    usable: NDArray[np.bool_] = np.isfinite(times_ns) & (times_ns > 0)
    return usable


def overhead_of(clean_ns: NDArray[np.float64], with_records_ns: NDArray[np.float64]) -> Overhead | None:
    """Compare the launches of two processes, in their order; None if one has fewer than ``MIN_LAUNCHES``."""
    if not (clean_ns.size and with_records_ns.size):
        return None
    medians_ns = float(np.median(clean_ns)), float(np.median(with_records_ns))
    change = change_between(
        [clean_ns],
        [with_records_ns],
        floor=run_noise(*medians_ns),
        step=timer_step_ns((clean_ns, with_records_ns)) * mean_share(*medians_ns),
        method=OF_RECORDS,
    )
    return None if change is None else Overhead(change.percent, change.error_percent, change.min_error_percent)


def overhead_in_pairs(clean_ns: Sequence[float], with_records_ns: Sequence[float]) -> Overhead | None:
    """Compare launches that were made in turn; None if there are fewer than ``MIN_LAUNCHES``."""
    pairs = np.asarray([clean_ns, with_records_ns], dtype=np.float64)
    pairs = pairs[:, _is_usable(pairs).all(axis=0)]
    if not pairs.size:
        return None
    change = change_in_pairs(*pairs, step=timer_step_ns(pairs) * mean_share(*np.median(pairs, axis=1)))
    return None if change is None else Overhead(change.percent, change.error_percent, change.min_error_percent)


def is_comparable(clean_ns: NDArray[np.float64]) -> bool:
    """Whether such launches can be compared with those of another process: they are enough, and not too short."""
    repeated = overhead_of(clean_ns, clean_ns)
    return repeated is not None and repeated.min_error_percent <= _TRUSTED_PERCENT


_TRUSTED_PERCENT = 5.0
"""Whoever asks where a kernel's time goes is after larger parts of it than this: their order holds. An interval that is
wider than ± this fits into no limits, wherever it lies."""

_UNRELIABLE_PERCENT = 20.0
"""Beyond it a fifth of what is shown, or more, is the records' own: it may be the largest part of all. As much less
time with records than without is nothing that records do: the two runs cannot be compared."""


class Level(Enum):
    """How far to trust a kernel's durations."""

    TRUSTWORTHY = "trustworthy"
    CAREFUL = "careful"
    UNRELIABLE = "unreliable"
    CANNOT_TELL = "cannot tell"
    """There are times, and they do not suffice."""
    UNKNOWN = "unknown"
    """There are no times to compare."""


_WEIGHTS = {Level.TRUSTWORTHY: 0, Level.UNKNOWN: 1, Level.CANNOT_TELL: 1, Level.CAREFUL: 2, Level.UNRELIABLE: 3}
"""What is known to be bad weighs more than what is not known."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``text`` says all that ``level`` rests on, the weightiest first. ``overhead`` is the estimate with its interval,
    whatever it is worth; None without times."""

    level: Level
    text: str
    overhead: Overhead | None
    clean: KernelResources
    with_records: KernelResources
    has_launching: bool
    """The times hold what launching takes, which was not measured on both sides; else they are the kernel's own."""

    @property
    def clean_ns(self) -> float | None:
        """The median time of a launch without records."""
        return median_time_ns(self.clean)

    @property
    def with_records_ns(self) -> float | None:
        """The time of a launch with records: the time without them and the overhead give it, because the overhead of
        launches in turn is the median of their ratios."""
        if self.overhead is None or self.clean_ns is None:
            return median_time_ns(self.with_records)
        return self.clean_ns * (1 + self.overhead.percent / 100)

    @property
    def figure(self) -> str:
        """The overhead, as far as it tells something; empty if it tells nothing."""
        if self.overhead is None or _untold(self.overhead, self.clean, self.with_records):
            return ""
        return _figure(self.overhead)

    @property
    def sentence(self) -> str:
        """``careful: recording slows the kernel by 5.5 % ± 0.3; the limit is 5 %``."""
        return f"{self.level.value}: {self.text}"

    @property
    def headline(self) -> str:
        """``careful (+4.5 % ± 2.9)``; without the figure where that tells nothing."""
        return f"{self.level.value} ({self.figure})" if self.figure else self.level.value

    def to_json(self) -> dict[str, Any]:
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


@dataclass(frozen=True, slots=True)
class _Finding:
    level: Level
    text: str


def judge(kernel: Kernel) -> Verdict:
    """Compare a kernel with records to itself without. A variant that ran in two processes has a verdict for each."""
    clean, with_records = kernel.clean, kernel.with_records
    has_launching = not (clean.has_empty_times and with_records.has_empty_times)
    if not has_launching:
        clean, with_records = clean.without_launching(), with_records.without_launching()
    overhead = _overhead(clean, with_records)
    findings = [
        *_spills(clean, with_records),
        *_occupancy(clean, with_records),
        _run_time(overhead, clean, with_records)
        if overhead
        else _no_run_time(clean, with_records, kernel.not_replayed),
    ]
    # Those that weigh the same stay in order.
    findings.sort(key=lambda finding: -_WEIGHTS[finding.level])
    told = [finding for finding in findings if finding.level is not Level.TRUSTWORTHY] or findings
    text = "; ".join(finding.text for finding in told)
    return Verdict(told[0].level, text, overhead, clean, with_records, has_launching)


def _overhead(clean: KernelResources, with_records: KernelResources) -> Overhead | None:
    """Replays tell it best: both sides ran in one process, in turn."""
    if clean.replayed_ns and with_records.replayed_ns:
        return overhead_in_pairs(clean.replayed_ns, with_records.replayed_ns)
    return overhead_of(usable_times(clean.times_ns or ()), usable_times(with_records.times_ns or ()))


def median_time_ns(cost: KernelResources) -> float | None:
    """How long a launch takes: by replays if there are some, else by the program's own launches."""
    times_ns = usable_times(cost.replayed_ns or cost.times_ns or ())
    return float(np.median(times_ns)) if times_ns.size else None


def _spills(clean: KernelResources, with_records: KernelResources) -> Iterator[_Finding]:
    if clean.spills is None or with_records.spills is None or with_records.spills <= clean.spills:
        return
    grew = f"spills grew from {clean.spills} to {with_records.spills}"
    yield _Finding(Level.UNRELIABLE, grew if clean.spills else "the kernel spills with records, and not without")


def _occupancy(clean: KernelResources, with_records: KernelResources) -> Iterator[_Finding]:
    before, after = clean.ctas_per_sm, with_records.ctas_per_sm
    if before is None or after is None or before == after:
        return
    moved, overlaps = ("fell", "less") if after < before else ("rose", "more")
    what = f"occupancy {moved} from {before} to {after} CTAs per SM"
    yield _Finding(Level.CAREFUL, f"{what}: the kernel overlaps {overlaps} than without records")


def _run_time(overhead: Overhead, clean: KernelResources, with_records: KernelResources) -> _Finding:
    """The whole interval is judged, not its middle: what may be bad is not called good."""
    if untold := _untold(overhead, clean, with_records):
        return _Finding(Level.CANNOT_TELL, f"{untold} (measured: {overhead})")
    if overhead.low_percent > _UNRELIABLE_PERCENT:
        limit = f"the limit is {_UNRELIABLE_PERCENT:g} %"
        return _Finding(Level.UNRELIABLE, f"{_effect(overhead)}; {limit}")
    if max(abs(overhead.low_percent), abs(overhead.high_percent)) > _TRUSTED_PERCENT:
        return _Finding(Level.CAREFUL, _why_careful(overhead))
    cost = _effect(overhead) if overhead.is_measurable else f"recording has no measurable cost ({overhead})"
    return _Finding(Level.TRUSTWORTHY, f"{cost}; {_registers(clean, with_records)}")


def _effect(overhead: Overhead) -> str:
    """``recording slows the kernel by 4.5 % ± 2.9``."""
    if overhead.error_percent > _TRUSTED_PERCENT:
        return f"recording slows the kernel by at least {math.floor(10 * overhead.low_percent) / 10:.1f} %"
    amount = f"{abs(round(overhead.percent, 1)):.1f} % ± {rounded_error(overhead.error_percent)}"
    return f"recording {'slows the kernel by' if overhead.percent > 0 else 'makes the kernel faster by'} {amount}"


def _figure(overhead: Overhead) -> str:
    """With its interval; of one that is too wide, its end alone, which is beyond a limit for sure."""
    if overhead.error_percent <= _TRUSTED_PERCENT:
        return str(overhead)
    return f"at least {math.floor(10 * overhead.low_percent) / 10:+.1f} %"


def _untold(overhead: Overhead, clean: KernelResources, with_records: KernelResources) -> str:
    """Why an overhead allows no verdict, and what would help; empty if it does allow one."""
    if overhead.percent < -_UNRELIABLE_PERCENT:
        return (
            "with records the kernel took far less time than without, which records cannot cause: something else "
            "slowed the run without them; run both again on an idle GPU"
        )
    # A cost that lies beyond the limit for sure is one, however large.
    if overhead.error_percent <= _TRUSTED_PERCENT or overhead.low_percent > _TRUSTED_PERCENT:
        return ""
    if clean.replayed_ns:
        if overhead.min_error_percent > _TRUSTED_PERCENT:
            return "the kernel is too short for the timer, whose steps are too coarse; give each launch more work"
        return (
            f"the times of {len(clean.replayed_ns)} launches without records and as many with them, interleaved, "
            "scatter too much; use an idle GPU, or a larger --replay"
        )
    if overhead.min_error_percent > _TRUSTED_PERCENT:
        return (
            f"the kernel is too short: two runs of the same build differ by more than {_TRUSTED_PERCENT:g} %; --replay "
            "50 compares within one process, or give each launch more work"
        )
    launches = " and ".join(str(len(usable_times(cost.times_ns or ()))) for cost in (clean, with_records))
    return (
        f"the times of {launches} launches, without records and with them, scatter too much; run the kernel more "
        "often, use an idle GPU, or give each launch more work"
    )


def _why_careful(overhead: Overhead) -> str:
    limit = f"the limit is {_TRUSTED_PERCENT:g} %"
    # What the reader gets who adds up the figures beside it.
    most = abs(round(overhead.percent, 1)) + float(rounded_error(overhead.error_percent))
    if not overhead.is_measurable:
        return f"recording may cost up to {most:.1f} % ({overhead}), {limit}; run the kernel more often to know"
    if overhead.percent < 0:
        return f"{_effect(overhead)}: it changes how the kernel runs, or something else slowed the run without records"
    if overhead.low_percent > _TRUSTED_PERCENT:
        return f"{_effect(overhead)}; {limit}"
    return f"{_effect(overhead)}; the interval reaches {most:.1f} %, {limit}"


def _no_run_time(clean: KernelResources, with_records: KernelResources, not_replayed: str) -> _Finding:
    reason = f"; it was not replayed, because {not_replayed}" if not_replayed else ""
    return _Finding(Level.UNKNOWN, f"{_why_not_timed(clean, with_records)}{reason}")


def _why_not_timed(clean: KernelResources, with_records: KernelResources) -> str:
    for cost, which in ((clean, "without"), (with_records, "with")):
        if cost.not_timed:
            return f"no launch was timed {which} records, because {cost.not_timed}"
        if cost.times_ns is None:
            return f"the capture has no times {which} records"
    fewest = min(len(usable_times(cost.times_ns or ())) for cost in (clean, with_records))
    return f"too few launches to time ({fewest}); run the kernel more often, or with --replay 50"


def _registers(clean: KernelResources, with_records: KernelResources) -> str:
    if clean.registers is None or with_records.registers is None:
        return "registers are unknown"
    if clean.registers == with_records.registers:
        return "same registers"
    return f"registers {clean.registers} → {with_records.registers}"


def _cost_json(cost: KernelResources, time_ns: float | None) -> dict[str, Any]:
    values = asdict(cost)
    times: Sequence[float] = values.pop("times_ns") or ()
    replayed: Sequence[float] = values.pop("replayed_ns") or ()
    return {
        **values,
        "launches_timed": len(usable_times(times)),
        "replays_timed": len(usable_times(replayed)),
        "median_time_ns": time_ns,
    }
