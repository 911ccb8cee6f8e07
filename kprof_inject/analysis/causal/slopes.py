"""Slopes of a causal experiment: by how many cycles the kernel slows down for each cycle that is added at a place.

CTAs follow each other in a slot of an SM, and the launch ends with the chain of CTAs that ends last. Delays count as
often as this chain executes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, exp, prod
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.analysis.causal.response import Interval, Response, response
from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.experiments import ExperimentRecord, MeasuredDelayRecord
from kprof_inject.capture.scopes import Scope, ScopeTable, distinct_names
from kprof_inject.timeline.comparison import MIN_LAUNCHES, trimmed_mean
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import end_of_work_ns

_CRITICAL = 0.5
_HIDDEN = 0.2  # below it, a gain is not worth the effort
_MIN_ERROR = 2e-5  # of times that all fall on one step of the timer, and so show no scatter


class Point(Struct, frozen=True):
    """A delay's cycles in each execution, and the slowdown relative to a delay of no cycles, with its error."""

    delay_cycles: float
    longer_share: float
    error: float
    pairs: int


class PlaceSlope(Struct, frozen=True):
    """The slope of one place of a kernel. ``response`` is None if it is unknown, for ``reason``."""

    scope: Scope
    by_cta: float | None
    by_chain: float | None
    disturbed: Interval | None  # the relative slowdown by a delay of no cycles: the cost of inserting anything there
    points: tuple[Point, ...]
    response: Response | None
    reason: str = ""
    none_cycles: float = 0.0
    """The cycles of a delay of no cycles: the slack in ``response`` that the build of ``points`` does not have."""
    time_share: float | None = None  # the part of the warps' time in it, if it was recorded
    index: int | None = None
    distinct_name: str = ""  # the scope's name with its site, if other places of the experiment have the same name

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
        """The longest delay that has no effect, in cycles."""
        if not self.is_hidden or self.response is None:
            return None
        if self.response.slack is not None:
            return self.response.slack.value
        return self.points[-1].delay_cycles + self.none_cycles if self.points else None

    def to_json(self) -> dict[str, Any]:
        """Return the slope as JSON values."""
        found = json_values(self.response) if self.response else {}
        return {
            "scope": self.scope.name,
            "source": self.scope.source,
            "lines": self.scope.lines,
            "executions_by_cta": self.by_cta,
            "executions_by_chain": self.by_chain,
            "disturbed": json_values(self.disturbed) if self.disturbed else None,
            "slope": found.get("slope"),
            "slope_up_to_cycles": found.get("up_to"),
            "slack_cycles": found.get("slack"),
            "slope_beyond_slack": found.get("beyond"),
            "spare_cycles": self.spare_cycles,
            "points": [json_values(point) for point in self.points],
            "time_share": self.time_share,
            "reason": self.reason,
        }


class KernelSlopes(Struct, frozen=True):
    """The slopes of all places of one kernel, in the order of the text."""

    experiment: ExperimentRecord
    clean_ns: float
    clock_hz: float  # the SM clock that converts cycles; 0 if unknown
    chain: float | None  # the number of CTAs that follow each other until the end of the launch
    places: tuple[PlaceSlope, ...]

    @property
    def ranked(self) -> tuple[PlaceSlope, ...]:
        """The places by descending slope; those with an unknown slope last."""
        return tuple(sorted(self.places, key=lambda one: -(one.response.slope.value if one.response else -np.inf)))

    @property
    def error(self) -> float | None:
        """The largest error of all slopes."""
        return max((one.response.slope.error for one in self.places if one.response), default=None)

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
            "places": [place.to_json() for place in self.places],
        }


def kernel_slopes(
    experiment: ExperimentRecord,
    ran: ExecutedKernel | None,
    timeline: Timeline | None = None,
    summary: LaunchSummary | None = None,
) -> KernelSlopes:
    """Return the slopes of an experiment; ``timeline`` and ``summary`` are of a recorded launch with the same grid."""
    table = experiment.scopes
    clean = [ns for one in experiment.delays for ns in one.clean_ns]
    clean_ns = float(np.median(clean)) if clean else 0.0
    # The nominal clock is the device's maximum.
    clock_hz = min(filter(None, (experiment.sm_clock_hz, experiment.nominal_clock_hz)), default=0.0)
    slots = (experiment.sm_count or 0) * (experiment.clean.ctas_per_sm or 0)
    by_cta, by_chain = executions(table, ran, prod(experiment.grid), slots, timeline)
    names = distinct_names(table.scopes)
    spins = {one.delay_cycles: one.cycles for one in experiment.spins}
    places: list[PlaceSlope] = []
    for number, scope in enumerate(table.scopes):
        delays = [one for one in experiment.delays if one.scope == number]
        if not delays:
            continue
        place = _place(scope, delays, spins, by_cta[number], by_chain[number], clean_ns * 1e-9 * clock_hz)
        index = timeline.table.at_site_of(scope) if timeline else None
        share = summary.scopes[index].share if summary and index is not None else None
        places.append(replace(place, distinct_name=names[number], time_share=share, index=index))
    chain = next((one.by_chain / one.by_cta for one in places if one.by_chain and one.by_cta), None)
    return KernelSlopes(experiment, clean_ns, clock_hz, chain, tuple(places))


def _place(
    scope: Scope,
    delays: Sequence[MeasuredDelayRecord],
    spins: Mapping[int, float],
    by_cta: float | None,
    by_chain: float | None,
    kernel_cycles: float,
) -> PlaceSlope:
    measured = [one for one in sorted(delays, key=lambda one: one.delay_cycles) if len(one.ns) >= MIN_LAUNCHES]
    seldom = next((one.refusal for one in delays if one.refusal), "too few timings; raise --seconds")
    place = PlaceSlope(scope, by_cta, by_chain, disturbed=None, points=(), response=None, reason=seldom)
    if not measured or measured[0].delay_cycles:
        return place
    none_cycles = spins.get(0, 0.0)
    ratios, points = [], []
    for one in measured:
        # Of the kernel's times with the delay and without, with its standard error.
        location = trimmed_mean(np.array(one.ns) / np.array(one.clean_ns))
        ratios.append(exp(location.log_ns))
        error = max(ratios[-1] * location.variance**0.5, _MIN_ERROR)
        by_itself = spins.get(one.delay_cycles, 0.0) - none_cycles
        cycles = by_itself if by_itself > 0 else float(one.delay_cycles)
        points.append(Point(cycles, ratios[-1] - ratios[0], error, len(one.ns)))
    disturbed = Interval.about(ratios[0] - 1, points[0].error)
    place = replace(place, disturbed=disturbed, points=tuple(points), none_cycles=none_cycles)
    if not by_chain or not kernel_cycles:
        return replace(place, reason="how often it runs is unknown" if kernel_cycles else "the clock is unknown")
    columns = np.array([(one.delay_cycles, one.longer_share, one.error) for one in points])
    # Only delays that are longer than all before them: measured lengths may be equal.
    is_longer = np.diff(np.maximum.accumulate(columns[:, 0]), prepend=-1) > 0
    cycles, longer, errors = (columns * (1, *2 * [kernel_cycles / by_chain]))[is_longer].T
    found = response(cycles, longer, errors, none_cycles)
    return replace(place, response=found, reason="") if found else place


def last_chain(ctas: NDArray[np.void]) -> NDArray[np.int32]:
    """Return the CTAs that ran one after another until the end of the launch, the last first."""
    found: list[int] = []
    ends = end_of_work_ns(ctas)
    before = np.arange(len(ctas))
    while before.size:
        found.append(row := int(before[ends[before].argmax()]))
        # Its slot was free when it began: the last CTA that left the SM before that made room for it.
        is_earlier = (ends <= ctas["init_ns"][row]) & (ends < ends[row])
        before = np.flatnonzero((ctas["sm"] == ctas["sm"][row]) & is_earlier)
    return np.array(ctas["cta"][found], np.int32)


def executions(
    table: ScopeTable, ran: ExecutedKernel | None, ctas: int, slots: int, timeline: Timeline | None
) -> tuple[Sequence[float | None], Sequence[float | None]]:
    """Count each scope's executions by the mean CTA, and by the last chain of CTAs; the device holds ``slots`` of them.

    The records of ``timeline`` count, or the kernel's arguments where records are missing.
    """
    # How often a CTA executes the block in which each scope begins, by the kernel's arguments.
    evaluated: list[float | None] = [None] * len(table.scopes)
    if ran is not None and ctas:
        scope_map, lines = ScopeMap(ran.module, table), [one.line for one in ran.operations]
        for index in range(len(table.scopes)):
            rows = scope_map.rows_in(index, lines)
            if rows:
                begin = scope_map.outermost_from(ran.operations[rows.start].operation, index)
                inside = (one for one in ran.operations if one.operation.block is begin.block)
                times = (one.times for one in inside if one.times is not None and not one.executed.is_predicated)
                evaluated[index] = next((count / ctas for count in times), None)
    if timeline is None or not timeline.ctas.size:
        length = max(ceil(ctas / slots), 1) if slots else 1  # all CTAs count as equally long
        return evaluated, [None if one is None else one * length for one in evaluated]
    chain = last_chain(timeline.all_ctas)
    recorded = _recorded(timeline, chain)
    by_chain: list[float | None] = []
    by_cta: list[float | None] = []
    for scope, one in zip(table.scopes, evaluated, strict=True):
        place = timeline.table.at_site_of(scope)
        counted = None if recorded is None or place is None else float(recorded[place])
        by_chain.append(counted if counted else None if one is None else one * len(chain))
        by_cta.append(one if one is not None else None if counted is None else counted / len(chain))
    return by_cta, by_chain


def _recorded(timeline: Timeline, chain: NDArray[np.int32]) -> NDArray[np.float64] | None:
    # If only a sample of the CTAs recorded, those of the chain count like the mean of these.
    ctas = timeline.ctas["cta"] if timeline.unrecorded.size else chain
    if np.isin(timeline.incomplete["cta"], ctas).any():
        return None
    scopes = len(timeline.table.scopes)
    counts = np.zeros(scopes)
    for block in timeline.blocks():
        rows = block[np.isin(block["cta"], ctas)]
        # All warps that execute it do so together.
        of_warps = np.unique(np.stack([rows["scope"].astype(np.int64), rows["warp"]]), axis=1)[0]
        warps = np.bincount(of_warps, minlength=scopes)
        counts += np.bincount(rows["scope"], minlength=scopes) / np.maximum(warps, 1)
    return counts * (len(chain) / max(len(ctas), 1))


SHORTEST_CYCLES = 48  # A delay spins in steps of some 20 cycles; a shorter one is dominated by noise
_LONGEST_CYCLES = 1 << 22
_FACTOR = 3
_MIN_STEPS = 4  # short delays show no slope, and a few cannot tell a bend from a line
_MIN_SHARE = 0.02  # of the time between two executions
# An iteration can be hidden by the work of a stage or two; code that is executed once, by another CTA at most.
_MAX_SHARE_OFTEN, _MAX_SHARE_SELDOM = 2.0, 0.6
_OFTEN = 4.0
_BLIND = (64, 192, 576, 1728)  # the delays if it is unknown how often the place is executed


def delays_for(kernel_cycles: float | None, by_cta: float | None, by_chain: float | None) -> tuple[int, ...]:
    """Return delays in cycles, ascending from 0, for a place that CTAs and their last chain execute so often."""
    if not kernel_cycles or not by_chain:
        return (0, *_BLIND)
    between = kernel_cycles / by_chain
    longest = between * (_MAX_SHARE_OFTEN if (by_cta or 0) >= _OFTEN else _MAX_SHARE_SELDOM)
    cycles = max(_MIN_SHARE * between, SHORTEST_CYCLES)
    steps: list[int] = []
    while len(steps) < _MIN_STEPS or cycles <= min(longest, _LONGEST_CYCLES):
        steps.append(min(round(cycles), _LONGEST_CYCLES))
        cycles *= _FACTOR
    return (0, *dict.fromkeys(steps))


def whole_share(delay_cycles: int, kernel_cycles: float | None, by_chain: float | None) -> float:
    """Return the relative slowdown of the kernel if no part of a delay is hidden; 0 if unknown."""
    return delay_cycles * by_chain / kernel_cycles if kernel_cycles and by_chain else 0.0
