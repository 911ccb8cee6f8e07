"""A launch analysed: each part is computed once, when it is first needed.

The terminal report, JSON, the HTML page and traces read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from kprof_inject.analysis.async_work.groups import InFlight, starts_async
from kprof_inject.analysis.evidence.measured_limit import Measured, measured_limit
from kprof_inject.analysis.evidence.stalls import Stalls, stalls_of
from kprof_inject.analysis.evidence.units import UnitEvidence, disagreements, unit_evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.roofs.computed_limit import dram_part, limit_of, whole_roof
from kprof_inject.analysis.roofs.limits import CodeBounds, Limit
from kprof_inject.analysis.summary import LaunchSummary, summarise
from kprof_inject.analysis.unjudged import CHECK_MODULE, Unevaluated, Unjudged, evaluating
from kprof_inject.capture.edits import EditsRecord
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.model import KERNELS_CACHED, Kernel, Launch
from kprof_inject.capture.reader import machine_code_of
from kprof_inject.capture.source_text import lines_of, ttgir_of
from kprof_inject.errors import KprofError
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import Level, Verdict, judge, median_time_ns
from kprof_inject.timeline.waves import LaunchHeaders, launch_duration_ns

if TYPE_CHECKING:
    from kprof_inject.analysis.async_work.flight_metrics import Flights
    from kprof_inject.analysis.causal.slopes import KernelSlopes
    from kprof_inject.analysis.evidence.code_units import CodeEvidence
    from kprof_inject.analysis.findings.rules import Judgement
    from kprof_inject.analysis.interpreter.executions import ExecutedKernel
    from kprof_inject.analysis.roofs.coalescing import Requests
    from kprof_inject.analysis.roofs.speed_of_light import SpeedOfLight

_DISTURBED = "the records disturb this kernel so much that it may be limited by something else without them"

T = TypeVar("T")


Experiment = ExperimentRecord | EditsRecord
"""Result of ``causal``, or of ``try``, with one kernel."""


class LaunchAnalysis:
    """A launch of a capture: its metrics, what each rule found, and how far to trust that."""

    def __init__(
        self,
        launch: Launch,
        headers: LaunchHeaders,
        decode: Callable[[], Timeline],
        experiments: Sequence[Experiment] = (),
        captured: Sequence[Launch] = (),
    ) -> None:
        """Keep the inputs; nothing is computed yet.

        ``captured`` has all launches of the capture, of which this one may be the only one that was chosen; empty if
        unknown. ``experiments`` are those with any kernels of the capture.
        """
        self.launch = launch
        self.headers = headers
        self.captured = captured
        self._decode = decode
        self._experiments = experiments

    @staticmethod
    def all_of(
        timelines: Iterable[Timeline], experiments: Sequence[Experiment] = (), captured: Sequence[Launch] = ()
    ) -> list[LaunchAnalysis]:
        """Return the analyses of the launches of a report."""
        return [LaunchAnalysis.of(timeline, experiments, captured) for timeline in timelines]

    @classmethod
    def of(
        cls, timeline: Timeline, experiments: Sequence[Experiment] = (), captured: Sequence[Launch] = ()
    ) -> LaunchAnalysis:
        """Return the analysis of a launch that is already decoded."""
        headers = LaunchHeaders(launch_duration_ns(timeline), timeline.records_lost, timeline.ctas_damaged)
        return cls(timeline.launch, headers, lambda: timeline, experiments, captured)

    def __repr__(self) -> str:
        """Return the launch with its limit and verdict."""
        name = f"{self.launch.kernel.name} #{self.launch.index}"
        return f"<LaunchAnalysis of {name}: {self.limit.sentence}; {self.verdict.headline}>"

    @property
    def duration_ns(self) -> int:
        """Time from the first CTA's begin to the last one's end of work."""
        return self.headers.duration_ns

    @cached_property
    def timeline(self) -> Timeline:
        """The decoded records."""
        return self._decode()

    @cached_property
    def summary(self) -> LaunchSummary:
        """The launch in numbers."""
        return summarise(self.timeline)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on how far the records disturbed the kernel."""
        return judge(self.launch.kernel)

    @cached_property
    def executed(self) -> ExecutedKernel | Unjudged:
        """The operations that the launch executed, or why they are unknown.

        Recorded iterations are counted only if no record is missing: the remaining records do not show how many there
        were.
        """
        from kprof_inject.analysis.interpreter.executions import evaluated_kernel, with_recorded_iterations

        try:
            ran = evaluated_kernel(self.launch)
            if self.timeline.records_lost:
                return ran
            with evaluating():
                return with_recorded_iterations(ran, self.summary)
        except KprofError as error:
            return _unjudged(error)

    @cached_property
    def speed_of_light(self) -> SpeedOfLight:
        """The roofs of the launch's scopes."""
        from kprof_inject.analysis.roofs.speed_of_light import speed_of_light

        return self._by_executed(lambda executed: speed_of_light(self.timeline, self.summary, executed, self.requests))

    @cached_property
    def requests(self) -> tuple[Requests, ...]:
        """The requests of loads and stores to the L1, where their addresses are known."""
        if isinstance(self.executed, Unjudged) or not self.launch.kernel.target.startswith("cuda:"):
            return ()
        from kprof_inject.analysis.roofs.coalescing import requests_of

        try:
            with evaluating():
                return requests_of(self.executed, self.machine_code)
        except Unevaluated:
            return ()

    @cached_property
    def slopes(self) -> KernelSlopes | None:
        """The result of the causal experiment with this launch's kernel and grid, or None if there was none."""
        variant, grid = self.launch.kernel.program_variant, self.launch.grid
        delayed = (one for one in self._experiments if isinstance(one, ExperimentRecord))
        own = next((one for one in delayed if (one.variant, one.grid) == (variant, grid)), None)
        if own is None:
            return None
        from kprof_inject.analysis.causal.slopes import kernel_slopes

        return self._by_executed(lambda executed: kernel_slopes(own, _known(executed), self.timeline, self.summary))

    @cached_property
    def edits(self) -> EditsRecord | None:
        """The edits that were tried on this launch's kernel and grid since it was captured; None if there are none."""
        variant, grid = self.launch.kernel.program_variant, self.launch.grid
        tried = (one for one in self._experiments if isinstance(one, EditsRecord))
        own = (one for one in tried if (one.variant, one.grid) == (variant, grid))
        return next((one for one in own if one.host_ns >= self.launch.host_ns), None)

    @cached_property
    def judgements(self) -> tuple[Judgement, ...]:
        """The result of each rule, in the order of the rules."""
        from kprof_inject.analysis.findings.evidence import Evidence
        from kprof_inject.analysis.findings.rules import judge_by_rules

        def judge(executed: ExecutedKernel | Unjudged) -> tuple[Judgement, ...]:
            evidence = Evidence(
                timeline=self.timeline,
                summary=self.summary,
                light=self.speed_of_light,
                ran=_known(executed),
                slopes=self.slopes,
                parts=self.limit.parts,
                measured=self.measured,
                code=self.machine_code,
                requests=self.requests,
            )
            return judge_by_rules(evidence)

        return self._by_executed(judge)

    def _by_executed(self, compute: Callable[[ExecutedKernel | Unjudged], T]) -> T:
        """Compute a part from the executed operations; without them if they are unknown, or if that fails."""
        if isinstance(self.executed, Unjudged):
            return compute(self.executed)
        try:
            with evaluating():
                return compute(self.executed)
        except Unevaluated as error:
            return compute(_unjudged(error))

    @cached_property
    def limit(self) -> Limit:
        """The unit or cause that limits the launch, by the strongest evidence."""
        return measured_limit(self.measured) if self.measured is not None else self.computed_limit

    @cached_property
    def computed_limit(self) -> Limit:
        """The unit or cause that limits the launch, as far as its TTGIR shows."""
        return limit_of(
            self.summary,
            self.speed_of_light,
            self.launch.kernel.sm_count,
            self.verdict.overhead,
            self.code_bounds,
            self.requests,
            median_time_ns(self.launch.kernel.clean.without_launching()),
        )

    @cached_property
    def code_evidence(self) -> CodeEvidence | None:
        """Lower bounds of the units' utilization by the machine code; None if nothing is known."""
        code, whole = self.machine_code, whole_roof(self.summary, self.speed_of_light)
        if code is None or whole is None or isinstance(self.executed, Unjudged):
            return None
        from kprof_inject.analysis.evidence.code_units import code_evidence

        cycles = {scope.index: scope.sm_cycles for scope in self.summary.scopes if scope.sm_cycles}
        try:
            with evaluating():
                return code_evidence(self.launch.kernel, code, self.executed, self.requests, whole.sm_cycles, cycles)
        except Unevaluated:
            return None

    @property
    def code_bounds(self) -> CodeBounds | None:
        """Bounds of the whole launch."""
        return self.code_evidence.launch if self.code_evidence else None

    @cached_property
    def units(self) -> tuple[UnitEvidence, ...]:
        """Utilization of each unit by each kind of evidence."""
        whole, measured = whole_roof(self.summary, self.speed_of_light), self.measured
        parts = whole.parts if whole else {}
        code = self.code_bounds.parts if self.code_bounds else {}
        if measured is None:
            dram = dram_part(self.summary, self.speed_of_light)
            return unit_evidence({**parts, **dram}, code, {}, 1.0)
        scale = whole.sm_cycles / measured.sm_cycles if whole and measured.sm_cycles else 1.0
        return unit_evidence(parts, code, measured.shares, scale)

    @cached_property
    def measured(self) -> Measured | None:
        """Counters of the kernel without records; None if it was not measured."""
        record = self.launch.kernel.measurements
        if record is None or record.counters is None:
            return None
        light, kernel = self.speed_of_light, self.launch.kernel
        return Measured(self.summary, light, kernel, record.counters, self.stalls, self.machine_code, self.requests)

    @cached_property
    def machine_code(self) -> MachineFunction | None:
        """The kernel's instructions without records; None if the capture does not have them."""
        return machine_code_of(self.launch.kernel)

    @cached_property
    def stalls(self) -> Stalls | None:
        """Stall reasons of the kernel's warps; None if they were not sampled."""
        return _stalls_of(self.launch.kernel)

    @cached_property
    def in_flight(self) -> InFlight | None:
        """The asynchronous work that was recorded; None if there was none or the kernel cannot be evaluated."""
        if not any(map(starts_async, self.timeline.table.scopes)):
            return None
        # Most launches have no asynchronous work, so the interpreter is imported only for those that do.
        from kprof_inject.analysis.async_work.in_flight import in_flight
        from kprof_inject.analysis.interpreter.executions import evaluated_kernel

        try:
            with evaluating():
                return in_flight(self.timeline, evaluated_kernel(self.launch))
        except KprofError:
            return None

    @cached_property
    def flights(self) -> Flights | None:
        """Metrics of the asynchronous work that was recorded."""
        if self.in_flight is None:
            return None
        from kprof_inject.analysis.async_work.flight_metrics import flights_of

        return flights_of(self.timeline, self.in_flight, self.speed_of_light.roofs)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The causes that limit the launch, sorted by the gain to expect without them."""
        found = [finding for judgement in self.judgements for finding in judgement.findings]
        # The sort is stable: findings with equal shares stay in the order of the rules.
        return tuple(sorted(found, key=lambda finding: -finding.expected))

    @property
    def unjudged(self) -> dict[Unjudged, tuple[str, ...]]:
        """The rules that could not judge the launch, by the reason."""
        found: dict[Unjudged, tuple[str, ...]] = {}
        for judgement in self.judgements:
            if judgement.unjudged:
                found[judgement.unjudged] = (*found.get(judgement.unjudged, ()), judgement.rule)
        return found

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons, as sentences, why a launch without findings may still have a problem."""
        unjudged = tuple(f"could not judge {', '.join(rules)}: {why}" for why, rules in self.unjudged.items())
        return (*unjudged, _DISTURBED) if self.verdict.level is Level.UNRELIABLE else unjudged

    def to_json(self) -> dict[str, Any]:
        """Return the summary's values and everything that was concluded from them.

        Adds ``findings``, ``rules``, ``doubts``, ``trust``, ``limit``, ``speed_of_light``, ``in_flight``, ``causal``
        and ``edits``. What is computed for this call alone is not kept: for thousands of launches, it would take too
        much memory.
        """
        if "summary" in self.__dict__:
            return self._values()
        fresh = LaunchAnalysis(self.launch, self.headers, self._decode, self._experiments, self.captured)
        return fresh._values()

    def _values(self) -> dict[str, Any]:
        return {
            **self.summary.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
            "rules": [judgement.to_json() for judgement in self.judgements],
            "doubts": list(self.doubts),
            "trust": self.verdict.to_json(),
            "limit": self.limit.to_json(),
            "units": [json_values(unit) for unit in self.units],
            "machine_code": [
                {"index": index, **json_values(bounds)} for index, bounds in self.code_evidence.scopes.items()
            ]
            if self.code_evidence
            else None,
            "moves": {name: json_values(moved) for name, moved in self.launch.kernel.moves.items()},
            "disagreements": disagreements(self.units),
            "counters": json_values(self.measured.counted) if self.measured else None,
            "stalls": self.stalls.to_json() if self.stalls else None,
            "requests": [json_values(one) for one in self.requests],
            "speed_of_light": self.speed_of_light.to_json(),
            "in_flight": self.flights.to_json() if self.flights else None,
            "causal": self.slopes.to_json() if self.slopes else None,
            "edits": json_values(self.edits) if self.edits else None,
        }


@lru_cache(maxsize=KERNELS_CACHED)
def _stalls_of(kernel: Kernel) -> Stalls | None:
    record, code = kernel.measurements, machine_code_of(kernel)
    if record is None or record.samples is None or code is None:
        return None
    return stalls_of(record.samples, code, kernel.scopes, lines_of(ttgir_of(kernel)))


def _known(executed: ExecutedKernel | Unjudged) -> ExecutedKernel | None:
    return None if isinstance(executed, Unjudged) else executed


def _unjudged(error: KprofError) -> Unjudged:
    if isinstance(error, Unevaluated):
        return Unjudged(error.what, CHECK_MODULE)
    return Unjudged(f"the kernel's module cannot be read: {error.what}", "")
