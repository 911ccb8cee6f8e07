"""Compute what a sample of a launch's CTAs leaves open: its figures' errors, and how much records slow its CTAs down.

The intervals hold the value that all CTAs would show in 19 of 20 cases. The durations in one CTA may be alike, so a CTA
counts as one observation. That is at most too careful. What the fit of the clock leaves open is added.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.timeline.clock import ClockFit
from kprof_inject.timeline.spread import SpreadGroups, take_quantiles
from kprof_inject.timeline.timeline import Timeline

_DEVIATIONS = 1.96
"""Standard deviations that a normal distribution exceeds in 1 of 20 cases."""

_MIN_OTHER_TIME = 0.25
"""If less of an SM's time is outside of a CTA, nothing shows how far its clock's rate is off."""

Interval = tuple[float, float | None]
"""Its upper end is None if the sample is too small to have one."""


class ClockBend:
    """Measure of how far the fit of a sample's clock can be trusted inside CTAs.

    Each CTA that records reads the timer at its begin and at its end. With few such readings on an SM, the clock's
    curve can follow their errors: it bends inside each CTA, and back between them. With readings of all CTAs, it
    cannot. (On an H200, curves were up to 8 % steeper inside CTAs of a few microseconds, and the shares of scopes as
    much too large.) The same errors are in the mean rate, the more of them the longer a CTA's part of an SM's time is.
    """

    def __init__(self, clock: ClockFit) -> None:
        """Begin without any scope."""
        self._clock = clock
        self._cycles = self._ns = self._scopes = 0

    def add(self, block: NDArray[np.void]) -> None:
        """Add scopes that ran."""
        outermost = block[block["depth"] == 0]
        self._scopes += len(outermost)
        self._cycles += int((outermost["end_cycles"] - outermost["start_cycles"]).sum())
        self._ns += int((outermost["end_ns"] - outermost["start_ns"]).sum())

    @property
    def part(self) -> float:
        """Relative error of times inside of the scopes, from how the clock runs there and on their SMs."""
        straight_ns = self._cycles * self._clock.rate_ns * self._clock.curves_rate
        if straight_ns <= 0:
            return 0.0
        of_sm = self._cycles / self._scopes / max(self._clock.curves.mean_cycles, 1.0)
        return abs(self._ns / straight_ns - 1) / max(1 - of_sm, _MIN_OTHER_TIME)


class SamplingError(Struct, frozen=True):
    """Intervals of a scope's figures; the durations are None for a scope without any."""

    share: Interval | None
    p50_ns: Interval | None
    p99_ns: Interval | None


def sampling_error(
    timeline: Timeline,
    bend: float,
    ctas: SpreadGroups,
    durations_ns: NDArray[np.signedinteger],
    share: float | None,
    whole_ns: int,
) -> SamplingError:
    """Compute the error of a scope.

    ``bend`` is that of the clock (``ClockBend.part``), ``ctas`` are the scope's times in the CTAs that recorded,
    ``durations_ns`` all of them, which are reordered; ``share`` is their part of ``whole_ns``.
    """
    left_out = 1 - 1 / timeline.ctas_per_recorded
    if not ctas.ids.size or not durations_ns.size:
        return SamplingError(None, None, None)
    return SamplingError(
        None if share is None else _of_share(timeline, bend, ctas, share, whole_ns, left_out),
        *(_of_quantile(durations_ns, bend, point, len(ctas.ids), left_out) for point in (0.5, 0.99)),
    )


def _of_share(
    timeline: Timeline, bend: float, ctas: SpreadGroups, share: float, whole_ns: int, left_out: float
) -> Interval:
    """Return the interval of a ratio of sums: each CTA's distance from the ratio is an error of its own."""
    rows = timeline.ctas[np.argsort(timeline.ctas["cta"])]
    own_ns = np.zeros(len(rows))
    own_ns[np.searchsorted(rows["cta"], ctas.ids)] = ctas.totals_ns
    lasts_ns = (rows["pre_final_ns"] - rows["init_ns"]).astype(np.float64)
    apart_ns = own_ns - share * whole_ns * lasts_ns / max(float(lasts_ns.sum()), 1.0)
    of_sample = float(np.sqrt(left_out * (apart_ns @ apart_ns))) / max(whole_ns, 1)
    # Scopes are timed by the SM's clock, whose rate is fitted, and CTAs by the device's timer.
    error = _DEVIATIONS * float(np.hypot(of_sample, share * timeline.clock.rate_error)) + share * bend
    return max(share - error, 0.0), min(share + error, 1.0)


def _of_quantile(
    durations_ns: NDArray[np.signedinteger], bend: float, point: float, ctas: int, left_out: float
) -> Interval:
    """Return the durations whose ranks differ from the quantile's by the error of a share among ``ctas`` CTAs."""
    error = _DEVIATIONS * float(np.sqrt(left_out * point * (1 - point) / ctas))
    low, high = take_quantiles(durations_ns, (max(point - error, 0.0), min(point + error, 1.0)))
    return low * max(1 - bend, 0.0), high * (1 + bend) if point + error < 1 else None


class Slowdown(Struct, frozen=True):
    """Extra time of the CTAs that record: ``part`` ± ``error`` of the time that the others take."""

    part: float
    error: float


def slowdown_of(timeline: Timeline) -> Slowdown | None:
    """Compare the CTAs that record with the others of their blocks; None if all record."""
    sample, others = timeline.launch.sample, timeline.unrecorded
    if sample is None or not others.size or not timeline.ctas.size:
        return None
    block_ctas = sample.cluster_ctas << sample.shift
    blocks = int(max(timeline.ctas["cta"].max(), others["cta"].max())) // block_ctas + 1
    of_others = others["cta"] // block_ctas
    counts = np.bincount(of_others, minlength=blocks)
    sums_ns = np.bincount(of_others, others["pre_final_ns"] - others["init_ns"], blocks)
    block = timeline.ctas["cta"] // block_ctas
    compared = counts[block] > 0
    others_ns = (sums_ns / np.maximum(counts, 1))[block][compared]
    own_ns = (timeline.ctas["pre_final_ns"] - timeline.ctas["init_ns"])[compared].astype(np.float64)
    if not others_ns.sum():
        return None
    ratio = float(own_ns.sum() / others_ns.sum())
    apart_ns = own_ns - ratio * others_ns
    return Slowdown(ratio - 1, _DEVIATIONS * float(np.sqrt(apart_ns @ apart_ns) / others_ns.sum()))
