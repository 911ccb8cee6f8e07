"""Analysis of a launch: decode and summarise it, gather evidence, then conclude its limit and findings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct, structs

from kprof_inject.analysis.causal.slopes import kernel_slopes
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.launch_conditions import throttled
from kprof_inject.analysis.findings.rules import Judgement, judge_by_rules
from kprof_inject.analysis.interpreter.executions import ExecutedKernel, evaluated_kernel, with_recorded_iterations
from kprof_inject.analysis.limits.coalescing import requests_of
from kprof_inject.analysis.limits.judges import limit_by_bounds, limit_by_counters
from kprof_inject.analysis.limits.limit import CodeBounds, Limit, dram_part, measured_of, memory_wait_limit, whole_roof
from kprof_inject.analysis.limits.speed_of_light import speed_of_light
from kprof_inject.analysis.limits.stalls import kernel_stalls
from kprof_inject.analysis.limits.unit_evidence import UnitEvidence, code_evidence, disagreements, unit_evidence
from kprof_inject.analysis.summary import LaunchSummary, summarise
from kprof_inject.analysis.unjudged import CHECK_MODULE, Unevaluated, Unjudged, evaluating
from kprof_inject.capture.buffer_layouts import LaunchHeaders
from kprof_inject.capture.edits import EditsRecord
from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import machine_code_of
from kprof_inject.errors import KprofError
from kprof_inject.timeline.captures import timeline_of, timelines_of
from kprof_inject.timeline.choice import EVERYTHING, Choice
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import Level, Verdict, judge, median_time_ns
from kprof_inject.timeline.waves import launch_duration_ns

Experiment = ExperimentRecord | EditsRecord  # result of ``causal``, or of ``try``, with one kernel

_DISTURBED = "the records disturb this kernel so much that it may be limited by something else without them"


class LaunchAnalysis(Evidence, frozen=True, eq=False, kw_only=True):
    """A launch analysed: the evidence, and everything that is concluded from it."""

    verdict: Verdict  # the records' effect on the kernel
    code_evidence: CodeBounds | None  # lower bounds of the units' utilization by the machine code
    limit: Limit
    units: tuple[UnitEvidence, ...]  # utilization of each unit by each kind of evidence
    findings: tuple[Finding, ...]  # the causes that limit the launch, sorted by the gain to expect without them
    judgements: tuple[Judgement, ...]  # the conclusion of each rule, in the order of the rules
    edits: EditsRecord | None  # the edits that were tried on this kernel and grid since the launch was captured

    @property
    def launch(self) -> Launch:
        """The recorded launch."""
        return self.timeline.launch

    @property
    def unjudged(self) -> dict[Unjudged, tuple[str, ...]]:
        """The rules that could not judge the launch, by the reason."""
        found: dict[Unjudged, tuple[str, ...]] = {}
        for judgement in self.judgements:
            if judgement.unjudged:
                found[judgement.unjudged] = (*found.get(judgement.unjudged, ()), judgement.rule)
        return found

    @property
    def disagreements(self) -> list[str]:
        """Sentences on lower bounds that exceed what was measured."""
        # Counters are those of one launch: with several grids, it may have had other work.
        return [] if len(self.launch.kernel.grids) > 1 else disagreements(self.units)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons, as sentences, why a launch without findings may still have a problem."""
        unjudged = tuple(f"could not judge {', '.join(rules)}: {why}" for why, rules in self.unjudged.items())
        return (*unjudged, _DISTURBED) if self.verdict.level is Level.UNRELIABLE else unjudged

    @classmethod
    def of(cls, timeline: Timeline, experiments: Sequence[Experiment] = ()) -> LaunchAnalysis:
        """Analyse a launch; ``experiments`` may be with other kernels of its capture."""
        launch = timeline.launch
        key = launch.kernel.program_variant, launch.grid
        experiments = [one for one in experiments if (one.variant, one.grid) == key]
        evidence, verdict, limit, bounds = _evidence_on(timeline, experiments)
        try:
            with evaluating():
                judgements = judge_by_rules(evidence)
        except Unevaluated:
            judgements = judge_by_rules(structs.replace(evidence, executed=None))
        found = [finding for judgement in judgements for finding in judgement.findings]
        found += throttled(evidence)
        tried = (one for one in experiments if isinstance(one, EditsRecord))
        summary, light, measured = evidence.summary, evidence.speed_of_light, evidence.measured
        whole, scale = whole_roof(summary, light), 1.0
        parts = {**(whole.parts if whole else {}), **({} if measured else dram_part(summary, light))}
        if whole and measured and measured.sm_cycles:
            scale = whole.sm_cycles / measured.sm_cycles
        return cls(
            **structs.asdict(evidence),
            verdict=verdict,
            code_evidence=bounds,
            limit=limit,
            units=unit_evidence(parts, bounds.parts if bounds else {}, measured.shares if measured else {}, scale),
            # The sort is stable: findings with equal gains stay in the order of the rules.
            findings=tuple(sorted(found, key=lambda finding: -finding.expected)),
            judgements=judgements,
            edits=next((one for one in tried if one.host_ns >= launch.host_ns), None),
        )


_Known = tuple[Evidence, Verdict, Limit, CodeBounds | None]


def _evidence_on(timeline: Timeline, experiments: Sequence[Experiment]) -> _Known:
    """Return the evidence on a launch: without the module's operations if it cannot be evaluated."""
    summary = summarise(timeline)
    try:
        ran = evaluated_kernel(timeline.launch)
        with evaluating():
            if not timeline.records_lost:  # the remaining records do not show how many iterations there were
                ran = with_recorded_iterations(ran, summary)
            return _gathered(timeline, summary, ran, experiments)
    except Unevaluated as error:
        unknown = Unjudged(error.what, CHECK_MODULE)
    except KprofError as error:
        unknown = Unjudged(f"the kernel's module cannot be read: {error.what}", "")
    return _gathered(timeline, summary, unknown, experiments)


def _gathered(
    timeline: Timeline, summary: LaunchSummary, ran: ExecutedKernel | Unjudged, experiments: Sequence[Experiment]
) -> _Known:
    kernel, executed = timeline.launch.kernel, None if isinstance(ran, Unjudged) else ran
    code, verdict, measured = machine_code_of(kernel), judge(kernel), measured_of(kernel)
    requests = requests_of(executed, code) if executed and kernel.target.startswith("cuda:") else ()
    light = speed_of_light(timeline, summary, ran, requests)
    bounds, whole = None, whole_roof(summary, light)
    if code is not None and whole is not None and executed is not None:
        cycles = {scope.index: scope.sm_cycles for scope in summary.scopes if scope.sm_cycles}
        bounds = code_evidence(kernel, code, executed, requests, whole.sm_cycles, cycles)
    if measured:
        limit = limit_by_counters(measured, summary.waves, summary.idle, memory_wait_limit(summary))
    else:
        clean_ns = median_time_ns(kernel.clean.without_launching())
        limit = limit_by_bounds(summary, light, kernel.sm_count, verdict.overhead, bounds, requests, clean_ns)
    delayed = next((one for one in experiments if isinstance(one, ExperimentRecord)), None)
    evidence = Evidence(
        timeline=timeline,
        summary=summary,
        speed_of_light=light,
        executed=executed,
        slopes=kernel_slopes(delayed, executed, timeline, summary) if delayed else None,
        parts=limit.parts,
        measured=measured,
        stalls=kernel_stalls(kernel),
        machine_code=code,
        requests=requests,
    )
    return evidence, verdict, limit, bounds


class ReportLaunch(Struct, eq=False, dict=True):
    """A launch to report on, decoded and analysed on first use."""

    launch: Launch
    headers: LaunchHeaders
    choice: Choice = EVERYTHING
    experiments: Sequence[Experiment] = ()
    timeline: Timeline | None = None  # the part of the launch that ``choice`` keeps, if it is decoded

    @classmethod
    def of(cls, timeline: Timeline, experiments: Sequence[Experiment] = ()) -> ReportLaunch:
        """Return a decoded launch."""
        headers = LaunchHeaders(launch_duration_ns(timeline), timeline.records_lost, timeline.ctas_damaged)
        return cls(timeline.launch, headers, EVERYTHING, experiments, timeline)

    @property
    def duration_ns(self) -> int:
        """Time from the first CTA's begin to the last one's end."""
        return self.headers.duration_ns

    @cached_property
    def analysis(self) -> LaunchAnalysis:
        """The analysis of the launch."""
        timeline = self.timeline or timeline_of(self.launch).chosen(self.choice)
        return LaunchAnalysis.of(timeline, self.experiments)

    @staticmethod
    def decode(reports: Sequence[ReportLaunch]) -> None:
        """Decode launches together, which takes less than half the time; the analysis of damaged ones will raise."""
        new = [one for one in reports if one.timeline is None and one.known_analysis is None]
        for one, timeline in zip(new, timelines_of([report.launch for report in new]), strict=True):
            if isinstance(timeline, Timeline):
                one.timeline = timeline.chosen(one.choice)

    @property
    def known_analysis(self) -> LaunchAnalysis | None:
        """The analysis, if it was needed before."""
        return self.__dict__.get("analysis")

    def forget(self) -> None:
        """Free the analysis: thousands of them take too much memory."""
        self.__dict__.pop("analysis", None)
