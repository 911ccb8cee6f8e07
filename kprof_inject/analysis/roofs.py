"""The speed of light: what part of its time each scope would take if a unit of the SM did nothing but its work.

Work comes from the module's types, how often it is done from the records, and the cycles from the SM's own counter: so
no clock's rate is in it. CTAs that share an SM share its units. All work is a least, and so is each part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import prod
from typing import Any

from kprof_inject.analysis.findings.finding import Unjudged, missing_records, unpaired_records
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unit_rates import UnitRates, rates_of
from kprof_inject.analysis.work import NO_WORK, Work, work_of
from kprof_inject.capture.model import Kernel, ttgir_of
from kprof_inject.capture.scopes import ScopeInfo, ScopeKind
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.loop_bounds import iterations_of_loops
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.parser import parse


@dataclass(frozen=True, slots=True)
class Roof:
    """One scope of a launch. ``sm_cycles`` is the time in which any warp ran it, on each SM, summed over the SMs;
    ``parts`` what each unit needs of that at least, from 0 to 1, by the unit's name."""

    scope: str
    executions: int
    """By CTAs."""
    sm_cycles: int
    work: Work
    parts: Mapping[str, float]

    @property
    def unit(self) -> str:
        """The unit that needs most."""
        return max(self.parts, key=lambda unit: self.parts[unit])

    @property
    def part(self) -> float:
        return self.parts[self.unit]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "unit": self.unit}


@dataclass(frozen=True, slots=True)
class SpeedOfLight:
    """The roofs of a launch's scopes, in the order of the table, or why there are none. ``unknown`` operations do work
    that is not in them: they are under a condition, or in a loop whose iterations nobody counted."""

    roofs: tuple[Roof, ...]
    unknown: int = 0
    missing: Unjudged | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "scopes": [roof.to_json() for roof in self.roofs],
            "unknown_operations": self.unknown,
            "missing": str(self.missing) if self.missing else None,
        }


def speed_of_light(timeline: Timeline, summary: LaunchSummary) -> SpeedOfLight:
    """Of one launch, whose module is read for it."""
    kernel = timeline.launch.kernel
    target = _target(kernel)
    rates = rates_of(target)
    if rates is None:
        return SpeedOfLight((), missing=Unjudged(f"no rates are known of {target}", ""))
    if missing := missing_records(timeline) or unpaired_records(timeline):
        return SpeedOfLight((), missing=missing)
    try:
        worked = _worked(ttgir_of(kernel), str(kernel.folder))
    except KprofError as error:
        return SpeedOfLight((), missing=Unjudged(f"the kernel's module cannot be read: {error.what}", ""))
    executed = _Executions(worked, timeline, summary)
    done = [(line, executed.of(operation), work) for operation, line, work in worked.working]
    roofs = tuple(_roofs(timeline, summary, rates, done))
    return SpeedOfLight(roofs, unknown=sum(times is None for _, times, _ in done))


def _target(kernel: Kernel) -> str:
    target = kernel.metadata.get("target")
    return f"{target.get('backend')}:{target.get('arch')}" if isinstance(target, dict) else "an unknown device"


@dataclass(frozen=True, slots=True)
class _Worked:
    """What of a module is asked for: the operations that have work to do, with their lines; and the loops, with the
    first and the last line of each, and how often it goes round (None: the text does not tell)."""

    working: tuple[tuple[Operation, int, Work], ...]
    loops: tuple[tuple[Operation, int, int], ...]
    iterations: Mapping[Operation, int | None]
    functions: int


@lru_cache(maxsize=4)  # the launches of a kernel come together
def _worked(text: str, file: str) -> _Worked:
    """Raises ``KprofError``."""
    module = parse(text, file)
    operations = list(module.walk())
    working = [(one, work) for one in operations if (work := work_of(one, module.aliases)) != NO_WORK]
    iterations = iterations_of_loops(operations)
    lines = module.line_numbers([one.start for one, _ in working])
    begins = module.line_numbers([loop.start for loop in iterations])
    ends = module.line_numbers([loop.end - 1 for loop in iterations])
    return _Worked(
        tuple((one, line, work) for (one, work), line in zip(working, lines, strict=True)),
        tuple(zip(iterations, begins, ends, strict=True)),
        iterations,
        sum(one.name == FUNCTION for one in operations),
    )


class _Executions:
    """How often operations were executed by the CTAs of a launch, all together."""

    def __init__(self, worked: _Worked, timeline: Timeline, summary: LaunchSummary) -> None:
        self._iterations = worked.iterations
        self._has_one_function = worked.functions == 1
        self._ctas = prod(timeline.launch.grid)
        self._recorded: dict[Operation, int] = {}
        for index, scope in enumerate(timeline.table.scopes):
            if scope.kind != ScopeKind.ITERATION or scope.lines is None:
                continue
            first, last = scope.lines
            around = [(begin, loop) for loop, begin, end in worked.loops if begin < first and last <= end]
            if around:
                self._recorded[max(around, key=lambda one: one[0])[1]] = executions(summary, index)

    def of(self, operation: Operation) -> int | None:
        """None if it is under a condition, or in a loop of which nobody knows how often it went round."""
        times = 1
        for owner in operation.ancestors():
            if owner in self._recorded:
                return times * self._recorded[owner]
            if owner.name == FUNCTION:
                # Where there are several functions, nobody counts how often one is called.
                return times * self._ctas if self._has_one_function else None
            if owner.traits.is_loop:
                iterations = self._iterations[owner]
                if iterations is None:
                    return None
                times *= iterations
            elif owner.traits.regions == "branch":
                return None
        return None


def executions(summary: LaunchSummary, scope: int) -> int:
    """By CTAs: all the warps that run a scope do so together."""
    found = summary.scopes[scope]
    return found.count // max(len(found.warps.ids), 1)


def _roofs(
    timeline: Timeline, summary: LaunchSummary, rates: UnitRates, done: Sequence[tuple[int, int | None, Work]]
) -> Iterator[Roof]:
    for index, scope in enumerate(timeline.table.scopes):
        sm_cycles = summary.scopes[index].sm_cycles
        if scope.lines is None or not sm_cycles or not _is_whole(scope):
            continue
        first, last = scope.lines
        work = NO_WORK
        for line, times, each in done:
            if times and first <= line <= last:
                work += each * times
        if work != NO_WORK:
            parts = {unit: needed / sm_cycles for unit, needed in rates.cycles(work).items()}
            yield Roof(scope.name, executions(summary, index), sm_cycles, work, parts)


def _is_whole(scope: ScopeInfo) -> bool:
    """Whether the scope has all the time of what is in it: other operations only issue what ends later."""
    return scope.kind in (ScopeKind.FUNCTION, ScopeKind.LOOP, ScopeKind.ITERATION)
