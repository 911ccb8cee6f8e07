"""All that is known of one launch, found out once: the terminal, JSON and the page take it from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from kprof_inject.analysis.async_work.flight_metrics import Flights, flights_of
from kprof_inject.analysis.async_work.groups import InFlight
from kprof_inject.analysis.async_work.recorded import recorded_in_flight
from kprof_inject.analysis.causal.slopes import KernelSlopes, kernel_slopes
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.rules import Judgement, judge_by_rules
from kprof_inject.analysis.interpreter.executions import ExecutedKernel, executed_kernel
from kprof_inject.analysis.roofs.limits import Limit, limit_of
from kprof_inject.analysis.roofs.speed_of_light import SpeedOfLight, speed_of_light
from kprof_inject.analysis.summary import LaunchSummary, summarise
from kprof_inject.analysis.unjudged import CHECK_MODULE, Unevaluated, Unjudged, evaluating
from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.model import Launch
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import Level, Verdict, judge
from kprof_inject.timeline.waves import launch_duration_ns

_DISTURBED = "the records disturb this kernel so much that it may be limited by something else without them"


@dataclass(frozen=True, slots=True, repr=False)
class LaunchReport:
    """A launch, its figures, what each rule says of it, and how far to trust that."""

    timeline: Timeline
    summary: LaunchSummary
    judgements: tuple[Judgement, ...]
    verdict: Verdict
    speed_of_light: SpeedOfLight
    limit: Limit
    in_flight: InFlight | None
    """None if nothing asynchronous was recorded."""
    flights: Flights | None
    slopes: KernelSlopes | None = None
    """None if nobody has delayed the kernel."""
    captured: Sequence[Launch] = ()
    """All launches of its capture, of which it may be the only one that was chosen; empty if nobody said."""

    def __repr__(self) -> str:
        summary = self.summary
        return f"<LaunchReport of {summary.kernel} #{summary.launch}: {self.limit.sentence}; {self.verdict.headline}>"

    @property
    def launch(self) -> Launch:
        return self.timeline.launch

    @property
    def duration_ns(self) -> int:
        return self.summary.duration_ns

    @property
    def full(self) -> LaunchReport:
        """Itself: what ``PendingReport`` has to make."""
        return self

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What limits the launch, that which explains most of its time first."""
        found = [finding for judgement in self.judgements for finding in judgement.findings]
        # Those that explain as much stay in the order of the rules.
        return tuple(sorted(found, key=lambda finding: -finding.share))

    @property
    def unjudged(self) -> dict[Unjudged, tuple[str, ...]]:
        """Why rules could not judge, and for each reason which these are."""
        found: dict[Unjudged, tuple[str, ...]] = {}
        for judgement in self.judgements:
            if judgement.unjudged:
                found[judgement.unjudged] = (*found.get(judgement.unjudged, ()), judgement.rule)
        return found

    @property
    def doubts(self) -> tuple[str, ...]:
        """All that keeps a launch without findings from being a healthy one, in words."""
        return tuple(self._doubts())

    def _doubts(self) -> Iterator[str]:
        for why, rules in self.unjudged.items():
            yield f"could not judge {', '.join(rules)}: {why}"
        if self.verdict.level is Level.UNRELIABLE:
            yield _DISTURBED

    def to_json(self) -> dict[str, Any]:
        """The summary's values, with ``findings``, ``rules``, ``doubts``, ``trust``, ``limit``, ``speed_of_light``,
        ``in_flight`` and ``causal``."""
        return {
            **self.summary.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
            "rules": [judgement.to_json() for judgement in self.judgements],
            "doubts": list(self.doubts),
            "trust": self.verdict.to_json(),
            "limit": self.limit.to_json(),
            "speed_of_light": self.speed_of_light.to_json(),
            "in_flight": self.flights.to_json() if self.flights else None,
            "causal": self.slopes.to_json() if self.slopes else None,
        }


class PendingReport:
    """The report of a launch that is analysed when more is asked for than how long it took: of thousands of launches,
    few are shown."""

    def __init__(
        self, launch: Launch, duration_ns: int, captured: Sequence[Launch], make: Callable[[], LaunchReport]
    ) -> None:
        self.launch = launch
        self.duration_ns = duration_ns
        self.captured = captured
        self._make = make

    @cached_property
    def full(self) -> LaunchReport:
        return self._make()

    def to_json(self) -> dict[str, Any]:
        """The report's. It is not kept: all launches' together would take too much memory."""
        report: LaunchReport | None = self.__dict__.get("full")
        return (report or self._make()).to_json()


AnyReport = LaunchReport | PendingReport


def pending_report(
    timeline: Timeline, experiments: Sequence[ExperimentRecord] = (), captured: Sequence[Launch] = ()
) -> PendingReport:
    """``report_on`` of a launch that may not be shown."""
    make = partial(report_on, timeline, experiments, captured)
    return PendingReport(timeline.launch, launch_duration_ns(timeline), captured, make)


def report_on(
    timeline: Timeline, experiments: Sequence[ExperimentRecord] = (), captured: Sequence[Launch] = ()
) -> LaunchReport:
    """``experiments`` are what is known of kernels that were delayed; that of this launch's kernel is told of.
    ``captured`` are all launches of its capture, the same sequence for each of them."""
    summary = summarise(timeline)
    ran = _ran(timeline, summary)
    if not isinstance(ran, Unjudged):
        try:
            with evaluating():
                return _report(timeline, summary, ran, experiments, captured)
        except Unevaluated as error:
            ran = _unjudged(error)
    return _report(timeline, summary, ran, experiments, captured)


def _report(
    timeline: Timeline,
    summary: LaunchSummary,
    ran: ExecutedKernel | Unjudged,
    experiments: Sequence[ExperimentRecord],
    captured: Sequence[Launch],
) -> LaunchReport:
    """``ran`` is what the launch executed, or why nobody knows."""
    light = speed_of_light(timeline, summary, ran)
    executed = None if isinstance(ran, Unjudged) else ran
    slopes = _slopes(timeline, summary, executed, experiments)
    evidence = Evidence(timeline, summary, light, executed, slopes)
    flew = recorded_in_flight(timeline)
    verdict = judge(timeline.launch.kernel)
    return LaunchReport(
        timeline,
        summary,
        judge_by_rules(evidence),
        verdict,
        light,
        limit_of(summary, light, timeline.launch.kernel.sm_count, verdict.overhead),
        flew,
        flights_of(timeline, flew, light.roofs) if flew else None,
        slopes,
        captured,
    )


def _slopes(
    timeline: Timeline, summary: LaunchSummary, ran: ExecutedKernel | None, experiments: Sequence[ExperimentRecord]
) -> KernelSlopes | None:
    for experiment in experiments:
        # A build with a smaller buffer has a name behind the variant's.
        if timeline.launch.kernel.variant.startswith(experiment.variant) and timeline.launch.grid == experiment.grid:
            return kernel_slopes(experiment, ran, timeline, summary)
    return None


def _ran(timeline: Timeline, summary: LaunchSummary) -> ExecutedKernel | Unjudged:
    try:
        # Where records were lost, they do not tell how many iterations there were.
        return executed_kernel(timeline.launch, None if timeline.records_lost else summary)
    except KprofError as error:
        return _unjudged(error)


def _unjudged(error: KprofError) -> Unjudged:
    if isinstance(error, Unevaluated):
        return Unjudged(error.what, CHECK_MODULE)
    return Unjudged(f"the kernel's module cannot be read: {error.what}", "")
