"""Slopes of a causal experiment: by how many cycles the kernel slows down for each cycle that is added at a place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, prod
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.causal.critical_path import Blame, CriticalPath, critical_path
from kprof_inject.analysis.causal.delays import Executions, executions
from kprof_inject.analysis.causal.response import DelayErrors, Interval, Response, response
from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.experiments import ExperimentRecord, MeasuredDelayRecord
from kprof_inject.capture.scopes import ScopeInfo, ScopeTable, distinct_names
from kprof_inject.timeline.comparison import MIN_LAUNCHES, trimmed_mean
from kprof_inject.timeline.timeline import Timeline

# A delay ends when its loop next reads the clock, which is half a round later on average. How much of that is in the
# delay's length as measured by itself is random. A round takes 33 cycles by itself and 31 in many kernels (measured on
# an H200), so delays of different lengths are rounded up by different parts of a round.
_DELAY_ERRORS_CYCLES = DelayErrors(offset=12.0, own=10.0)

_CRITICAL = 0.5
_HIDDEN = 0.2  # below it, a gain is not worth the effort

_SELDOM = "too few timings; raise --seconds"

_MIN_ERROR = 2e-5  # of times that all fall on one step of the timer, and so show no scatter


class Point(Struct, frozen=True):
    """A delay: its cycles in each execution, and the relative slowdown of the kernel with its standard error.

    The slowdown is relative to a delay of no cycles at the same place.
    """

    delay_cycles: float
    longer_share: float
    error: float
    pairs: int


class PlaceSlope(Struct, frozen=True):
    """The slope of one place of a kernel. ``response`` is None if it is unknown, for ``reason``."""

    scope: ScopeInfo
    by_cta: float | None
    by_chain: float | None
    disturbed: Interval | None
    """The relative slowdown by a delay of no cycles: the cost of inserting anything there."""
    points: tuple[Point, ...]
    response: Response | None
    reason: str = ""
    none_cycles: float = 0.0
    """The cycles of a delay of no cycles, 0 if not measured.

    The kernel has so much more slack than the build that ``points`` are relative to; ``response`` includes it."""
    time_share: float | None = None
    """The part of the warps' time in it, if it was recorded."""
    blame: Blame | None = None
    """Its part of the critical path, if that is known."""
    index: int | None = None
    """The index of the same scope in the recorded launch's table, if it was recorded."""
    distinct_name: str = ""
    """The scope's name with its site, if other places of the experiment have the same name."""

    @property
    def name(self) -> str:
        """The name in reports."""
        return self.distinct_name or self.scope.name

    @property
    def is_critical(self) -> bool:
        """True if the kernel certainly gains at least half of each cycle saved there."""
        return self.response is not None and self.response.slope.low >= _CRITICAL

    @property
    def is_hidden(self) -> bool:
        """True if a cycle more or less there certainly makes no difference."""
        return self.response is not None and self.response.slope.high < _HIDDEN

    @property
    def spare_cycles(self) -> float | None:
        """The longest delay that has no effect, in cycles; None if unknown."""
        if not self.is_hidden or self.response is None:
            return None
        if self.response.slack is not None:
            return self.response.slack.value
        return self.points[-1].delay_cycles + self.none_cycles if self.points else None

    def to_json(self) -> dict[str, Any]:
        """Return the slope as JSON values."""
        return {
            "scope": self.scope.name,
            "source": self.scope.source,
            "lines": self.scope.lines,
            "executions_by_cta": self.by_cta,
            "executions_by_chain": self.by_chain,
            "disturbed": json_values(self.disturbed) if self.disturbed else None,
            "slope": json_values(self.response.slope) if self.response else None,
            "slope_up_to_cycles": self.response.up_to if self.response else None,
            "slack_cycles": json_values(self.response.slack) if self.response and self.response.slack else None,
            "slope_beyond_slack": self.response.beyond if self.response else None,
            "spare_cycles": self.spare_cycles,
            "points": [json_values(point) for point in self.points],
            "time_share": self.time_share,
            "critical_path": self.blame.share if self.blame else None,
            "reason": self.reason,
        }


class KernelSlopes(Struct, frozen=True):
    """The slopes of all places of one kernel, in the order of the text."""

    experiment: ExperimentRecord
    clean_ns: float
    clock_hz: float
    """The SM clock that converts cycles; 0 if unknown."""
    chain: float | None
    """The number of CTAs that follow each other until the end of the launch."""
    places: tuple[PlaceSlope, ...]
    path: CriticalPath | None = None
    """The critical path of a recorded launch of the same kernel."""

    @property
    def kernel_cycles(self) -> float:
        """The time of a launch without delays, in cycles."""
        return self.clean_ns * 1e-9 * self.clock_hz

    @property
    def ranked(self) -> tuple[PlaceSlope, ...]:
        """The places by descending slope; those with an unknown slope last."""
        return tuple(sorted(self.places, key=lambda one: -(one.response.slope.value if one.response else -np.inf)))

    @property
    def error(self) -> float | None:
        """The largest error of all slopes; None without any."""
        errors = [one.response.slope.error for one in self.places if one.response]
        return max(errors, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the slopes as JSON values."""
        one = self.experiment
        return {
            "kernel": one.name,
            "variant": one.variant,
            "pid": one.pid,
            "device": one.device_name,
            "grid": list(one.grid),
            "clean_ns": self.clean_ns,
            "clock_mhz": self.clock_hz / 1e6,
            "chain": self.chain,
            "seconds": one.seconds,
            "timed": one.timed,
            "ended": one.ended,
            "warps": list(one.warps),
            "slope_error": self.error,
            "critical_path_outside": self.path.outside if self.path else None,
            "places": [place.to_json() for place in self.places],
        }


def kernel_slopes(
    experiment: ExperimentRecord,
    ran: ExecutedKernel | None,
    timeline: Timeline | None = None,
    summary: LaunchSummary | None = None,
) -> KernelSlopes:
    """Return the slopes of an experiment.

    ``ran`` is what the kernel executes, if known; ``timeline`` a recorded launch of it with the same grid, if there is
    one, and ``summary`` that launch's.
    """
    table = ScopeTable.of(experiment.scopes)
    clean = [ns for one in experiment.delays for ns in one.clean_ns]
    clean_ns = float(np.median(clean)) if clean else 0.0
    # The nominal clock is the device's maximum.
    measured_hz, maximum_hz = experiment.sm_clock_hz, experiment.nominal_clock_hz
    clock_hz = min(measured_hz, maximum_hz) if measured_hz and maximum_hz else measured_hz or maximum_hz
    slots = experiment.sm_count * (experiment.clean.ctas_per_sm or 0)
    counted = executions(table, ran, prod(experiment.grid), slots, timeline)
    cycles = clean_ns * 1e-9 * clock_hz
    names = distinct_names(table.scopes)
    places = tuple(
        replace(
            _place(scope, [one for one in experiment.delays if one.scope == index], experiment, counted, index, cycles),
            distinct_name=names[index],
        )
        for index, scope in enumerate(table.scopes)
        if any(one.scope == index for one in experiment.delays)
    )
    path = critical_path(timeline, ran) if timeline else None
    if timeline is not None and summary is not None:
        places = tuple(_with_record(place, timeline, summary, path) for place in places)
    chain = next((one.by_chain / one.by_cta for one in places if one.by_chain and one.by_cta), None)
    return KernelSlopes(experiment, clean_ns, clock_hz, chain, places, path)


def _with_record(
    place: PlaceSlope, timeline: Timeline, summary: LaunchSummary, path: CriticalPath | None
) -> PlaceSlope:
    index = timeline.table.at_site_of(place.scope)
    if index is None:
        return place
    return replace(place, time_share=summary.scopes[index].share, blame=path.of(index) if path else None, index=index)


def _place(
    scope: ScopeInfo,
    delays: Sequence[MeasuredDelayRecord],
    experiment: ExperimentRecord,
    counted: Executions,
    index: int,
    kernel_cycles: float,
) -> PlaceSlope:
    by_cta, by_chain = counted.by_cta[index], counted.by_chain[index]
    measured = [one for one in sorted(delays, key=lambda one: one.delay_cycles) if len(one.ns) >= MIN_LAUNCHES]
    seldom = next((one.refusal for one in delays if one.refusal), _SELDOM)
    place = PlaceSlope(scope, by_cta, by_chain, disturbed=None, points=(), response=None, reason=seldom)
    if not measured or measured[0].delay_cycles:
        return place
    ratio, error = _ratio(measured[0])
    points = tuple(_points(measured, experiment))
    place = replace(place, disturbed=Interval.about(ratio - 1, error), points=points)
    if not by_chain or not kernel_cycles:
        reason = "how often it runs is unknown" if kernel_cycles else "the clock is unknown"
        return replace(place, reason=reason)
    found = _response(points, kernel_cycles / by_chain)
    if found is None:
        return place
    none_cycles = _takes(experiment).get(0, 0.0)
    return replace(place, response=found.with_slack_of(none_cycles), reason="", none_cycles=none_cycles)


def _takes(experiment: ExperimentRecord) -> dict[int, float]:
    return {one.delay_cycles: one.cycles for one in experiment.spins}


def _ratio(one: MeasuredDelayRecord) -> tuple[float, float]:
    location = trimmed_mean(np.array(one.ns) / np.array(one.clean_ns))
    ratio = exp(location.log_ns)
    return ratio, max(ratio * location.variance**0.5, _MIN_ERROR)


def _points(measured: Sequence[MeasuredDelayRecord], experiment: ExperimentRecord) -> Iterator[Point]:
    takes = _takes(experiment)
    begin, base_error = _ratio(measured[0])
    for one in measured:
        ratio, error = _ratio(one)
        if not one.delay_cycles:
            yield Point(0.0, 0.0, base_error, len(one.ns))
            continue
        by_itself = takes.get(one.delay_cycles, 0.0) - takes.get(0, 0.0)
        yield Point(by_itself if by_itself > 0 else float(one.delay_cycles), ratio - begin, error, len(one.ns))


def _response(points: Sequence[Point], cycles_between: float) -> Response | None:
    """Fit the delays that are longer than all before them: measured lengths may be equal."""
    longest = np.maximum.accumulate([-1.0, *(point.delay_cycles for point in points)])
    points = [point for point, before in zip(points, longest[:-1], strict=True) if point.delay_cycles > before]
    return response(
        np.array([point.delay_cycles for point in points]),
        np.array([point.longer_share for point in points]) * cycles_between,
        np.array([point.error for point in points]) * cycles_between,
        _DELAY_ERRORS_CYCLES,
    )
