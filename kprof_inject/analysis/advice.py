"""Advice on a launch, and how far to trust its figures.

``LaunchAnalysis.limit`` says what limits the launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_records
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import counted, listed, percent
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.trust import Level

_MAX_RULES = 3  # named in one sentence


class Advice(Struct, frozen=True):
    """A thing to try, with the reason."""

    text: str
    reason: str
    """What was observed; empty if ``text`` says it."""
    share: float | None
    """Upper bound of the gain, as part of the launch's time; None if the advice only helps to judge."""
    is_doubtful: bool = False
    """True if some of the records that it is based on are missing."""


class Trust(Struct, frozen=True):
    """Trust in a launch's figures, given the overhead of the records and the records that are missing."""

    level: Level
    text: str


def advice_on(report: LaunchAnalysis) -> tuple[Advice, ...]:
    """Return everything to try, in this order.

    First how to keep all records, if some were lost, and how to disturb the kernel less, if the verdict is unreliable;
    then the advice of the findings, sorted by the largest possible gain; then what it takes to judge the rest. Empty if
    every rule judged the launch and found nothing, and the verdict is reliable.
    """
    lost = missing_records(report.timeline) if report.summary.records_lost else None
    first = [_to_keep(report, lost)] if lost else []
    return (*first, *_to_disturb_less(report), *_by_findings(report), *_to_judge(report, lost))


def _to_keep(report: LaunchAnalysis, lost: Unjudged) -> Advice:
    rules = [rule for why, rules in report.unjudged.items() if why.reason == lost.reason for rule in rules]
    what = _unjudged(rules, lost) if rules else lost.reason
    return Advice(f"{'use a larger buffer' if report.summary.is_foreign else lost.remedy} ({what})", "", None)


def _to_disturb_less(report: LaunchAnalysis) -> Iterator[Advice]:
    if report.verdict.level is not Level.UNRELIABLE:
        return
    why = "the records disturb the kernel: they may cause findings, and hide others"
    if fewer := fewer_records(report):
        yield Advice(f"record less: {fewer}", why, None)
    elif report.slopes is None:
        yield Advice("use causal, which needs no records", why, None)


def _by_findings(report: LaunchAnalysis) -> Iterator[Advice]:
    for finding in report.findings:
        yield Advice(finding.advice, finding.sentence, finding.share, bool(finding.doubt))


def _to_judge(report: LaunchAnalysis, lost: Unjudged | None) -> Iterator[Advice]:
    for why, rules in report.unjudged.items():
        if lost is None or why.reason != lost.reason:
            what = _unjudged(rules, why)
            yield Advice(f"{why.remedy} ({what})" if why.remedy else what, "", None)


def _unjudged(rules: Sequence[str], why: Unjudged) -> str:
    return f"{listed(rules, _MAX_RULES)} could not be judged: {why.reason}"


def trust_in(report: LaunchAnalysis) -> Trust:
    """Return the verdict on the kernel: at most ``CAREFUL`` if records are missing or the clock rate is assumed."""
    verdict = report.verdict
    doubts = [*_missing(report.summary), *_clock(report.summary)]
    if not doubts:
        return Trust(verdict.level, verdict.text)
    level = Level.CAREFUL if verdict.level is Level.TRUSTWORTHY else verdict.level
    return Trust(level, "; ".join((*doubts, verdict.text)))


def fewer_records(report: LaunchAnalysis) -> str:
    """Return options of ``profile`` that record less of the same kernel; empty if nothing would be left."""
    kinds = {scope.kind for scope in report.timeline.table.scopes}
    if not kinds <= {ScopeKind.FUNCTION, ScopeKind.LOOP}:
        return "--at func --at loop"
    if ScopeKind.LOOP in kinds:
        return "--at func"
    return "--at func --warps 0" if len(report.timeline.warps) > 1 else ""


def _missing(summary: LaunchSummary) -> Iterator[str]:
    if summary.records_lost:
        remedy = "use a larger buffer" if summary.is_foreign else "--fit keeps them"
        yield f"{percent(summary.records_lost / summary.records_written)} of the records were lost ({remedy})"
    if summary.records_damaged:
        yield f"{counted(summary.records_damaged, 'record')} were damaged"
    if summary.ctas_damaged:
        yield f"{counted(summary.ctas_damaged, 'CTA')} had a damaged header"
    if summary.ctas_never_ran:
        yield f"{counted(summary.ctas_never_ran, 'CTA')} of the grid wrote nothing"


def _clock(summary: LaunchSummary) -> Iterator[str]:
    if summary.clock_source in (ClockSource.FITTED, ClockSource.TIMER):
        return
    known = summary.nominal_mhz is not None
    doubt = f"by {100 * summary.clock_error:.0f} %" if known else "by any factor"
    yield f"the SM clock is assumed, not measured: durations may be off {doubt}"
