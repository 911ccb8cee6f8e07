"""Advice on a launch, how much time it may win, and how far to trust the launch's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from kprof_inject.analysis.findings.busy_units import work_by_line
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.limit import MEMORY_WAITS, MIN_NOTABLE
from kprof_inject.analysis.limits.rates import DRAM, TENSOR, UNIT_NAMES
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import counted, listed, percent, size_text
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.trust import Level, Overhead

_MAX_RULES = 3  # named in one sentence
_MIN_NECESSARY = 0.8  # part of the launch's time from which the necessary work leaves little to win
_MIN_SLOWDOWN = 0.05  # a smaller one leaves the order of a kernel's parts as it is, like the records' cost of all CTAs


class Headroom(Struct, frozen=True):
    """The time of a launch above its necessary work: see ``Evidence.necessary_parts``.

    ``necessary`` is the part of the time that the slowest ``unit`` needs for it; without one, nothing notable is known
    to be necessary. It is not certain if some addresses are unknown, so that not all bytes may be needed.
    """

    unit: str
    necessary: float
    work: str
    is_certain: bool = True

    @property
    def share(self) -> float:
        """Upper bound of what any rewrite wins that computes the same, as part of the launch's time."""
        return max(1 - self.necessary, 0.0)

    @property
    def is_small(self) -> bool:
        """True if the launch is at its roof."""
        return self.is_certain and self.necessary >= _MIN_NECESSARY

    @property
    def rest(self) -> str:
        """The possible gain, in words."""
        needed = "" if self.is_certain else ", if all of it is needed"
        return f"at most {percent(self.share)} to win, as {self.work} takes the rest{needed}"

    @property
    def text(self) -> str:
        """The conclusion that little can be gained, in words."""
        necessary = percent(min(self.necessary, 1.0))
        return f"at its roof: no more than {percent(self.share)} to win, as {self.work} takes {necessary} of the time"


def headroom_of(report: LaunchAnalysis) -> Headroom:
    """Return the headroom of a launch; what findings say is not needed is no necessary work."""
    dram, found = report.speed_of_light.dram, []
    removed = {unit: max([0.0, *(one.removed.get(unit, 0.0) for one in report.findings)]) for unit in (DRAM, TENSOR)}
    necessary = report.necessary_parts(removed)
    if dram is not None and report.dram_moved:
        needed_bytes = round(min(report.dram_once, 1 - removed[DRAM]) * report.dram_moved)
        work = f"moving {size_text(needed_bytes)} from and to DRAM"
        found.append(Headroom(DRAM, necessary[DRAM], work, not dram.unknown))
    if report.limit.evidence == "measured":  # computed parts are of the time in which SMs have work
        found.append(Headroom(TENSOR, necessary[TENSOR], f"the work of {UNIT_NAMES[TENSOR]}"))
    notable = [one for one in found if one.necessary >= MIN_NOTABLE]
    return max(notable, key=lambda one: one.necessary, default=Headroom("", 0.0, ""))


class Gain(Struct, frozen=True):
    """Time that could be won in a launch, and the way to win it."""

    share: float | None  # upper bound, as part of the launch's time
    by: str
    """Edits that won it, or the name of a finding; *at its roof* if the launch gains little unless it has less work."""


UNKNOWN_GAIN = Gain(None, "")


def gain_in(report: LaunchAnalysis) -> Gain:
    """Return what edits won or the first finding's advice may win; without either, what the necessary work leaves."""
    winner = report.edits.winner if report.edits is not None else None
    if winner is not None and winner.confirmed is not None:
        return Gain(winner.confirmed.won, f"tried: {winner.text}")
    best = next((finding for finding in report.findings if finding.expected), None)
    if best is not None:
        return Gain(best.share, best.rule)
    if not report.limit.is_known or not report.limit.parts or report.limit.name == MEMORY_WAITS:
        return UNKNOWN_GAIN  # what the busiest unit leaves is not to be won: warps wait for others
    headroom = headroom_of(report)
    if not headroom.unit:
        return UNKNOWN_GAIN
    return Gain(headroom.share, "at its roof" if headroom.is_small else "")


class Advice(Struct, frozen=True):
    """A thing to try, with the reason."""

    text: str
    reason: str
    share: float | None  # upper bound of the gain, as part of the launch's time; None if the advice only helps to judge
    worth: str = ""  # ``share`` in words, with what limits its validity


def advice_on(report: LaunchAnalysis, found: Mapping[tuple[str, int | None], str] = {}) -> tuple[Advice, ...]:
    """Return everything to try, at least what would find more; ``found`` says in how many launches a cause holds.

    First that the launch is at its roof, if no finding gains more than what is left; then the advice of the findings,
    sorted by the gain to expect; then what it takes to judge the rest.
    """
    headroom, findings = headroom_of(report), list(_by_findings(report, found))
    at_roof = [Advice(headroom.text, "", None)] if headroom.is_small else []
    is_worth_more = any((one.share or 0.0) > headroom.share for one in findings)
    first = [*findings, *at_roof] if is_worth_more else [*at_roof, *findings]
    less, where = work_by_line(report)
    if less and not at_roof:
        left = "" if findings or not headroom.unit else f"; {headroom.rest}"
        first.append(Advice(f"see whether all of this work is needed: {less}{left}", where, None))
    if not first and not report.summary.is_foreign:  # no experiment can repeat another profiler's launch
        first.append(Advice(_nothing_found(report, headroom), "", None))
    for why, rules in report.unjudged.items():
        what = f"{listed(rules, _MAX_RULES)} could not be judged: {why.reason}"
        first.append(Advice(f"{why.remedy} ({what})" if why.remedy else what, "", None))
    return tuple(first)


def _nothing_found(report: LaunchAnalysis, headroom: Headroom) -> str:
    how = "causal shows which part is critical, and try measures other options"
    if not report.limit.is_known:
        return f"could not judge what to change: the limit is not known; {how}"
    if report.limit.name == MEMORY_WAITS:
        less = "let fewer CTAs wait, do other work meanwhile, or divide the kernel into two launches where it waits"
        return f"wait less: {less}; {how}"
    return f"no specific advice: {f'{headroom.rest}; ' if headroom.unit else ''}{how}"


def _by_findings(report: LaunchAnalysis, found: Mapping[tuple[str, int | None], str]) -> Iterator[Advice]:
    """Yield the advice of the findings; once, with the most that it may win, if several places need the same."""
    same: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.expected:
            same.setdefault(finding.advice, []).append(finding)
    for text, findings in same.items():
        share, where = max(one.share for one in findings), found.get(findings[0].cause)
        worth = f"worth up to {percent(share)}"
        worth += ", but doubtful" if all(one.doubt for one in findings) else ""
        worth += f"; {where}" if where else ""
        yield Advice(text, findings[0].sentence, share, worth)


class Trust(Struct, frozen=True):
    """Trust in a launch's figures, given the overhead of the records and the records that are missing."""

    level: Level
    text: str
    overhead: Overhead | None
    figure: str  # ``overhead`` as text; empty if it allows no verdict


def trust_in(report: LaunchAnalysis) -> Trust:
    """Return the verdict on the kernel: at most ``CAREFUL`` if records are missing or the clock rate is assumed."""
    verdict = report.verdict
    doubts = list(_doubts(report.summary))
    level = Level.CAREFUL if doubts and verdict.level is Level.TRUSTWORTHY else verdict.level
    texts = [*doubts, verdict.text]
    if level is Level.UNRELIABLE:
        why = "as records may cause findings, and hide others"
        if fewer := _fewer_records(report):
            texts.append(f"record less, {why}: {fewer}")
        elif report.slopes is None:
            texts.append(f"use causal, which needs no records, {why}")
    return Trust(level, "; ".join(texts), verdict.overhead, verdict.figure)


def _fewer_records(report: LaunchAnalysis) -> str:
    kinds = {scope.kind for scope in report.timeline.table.scopes}
    if not kinds <= {ScopeKind.FUNCTION, ScopeKind.LOOP}:
        return "--at func --at loop"
    if ScopeKind.LOOP in kinds:
        return "--at func"
    return "--at func --warps 0" if len(report.timeline.warps) > 1 else ""


def _doubts(summary: LaunchSummary) -> Iterator[str]:
    if summary.records_lost:
        yield f"{percent(summary.records_lost / summary.records_written)} of the records were lost (--fit keeps them)"
    if summary.records_damaged:
        yield f"{counted(summary.records_damaged, 'record')} were damaged"
    if summary.ctas_damaged:
        yield f"{counted(summary.ctas_damaged, 'CTA')} had a damaged header"
    if summary.ctas_never_ran:
        yield f"{counted(summary.ctas_never_ran, 'CTA')} of the grid wrote nothing"
    if summary.clock_source not in (ClockSource.FITTED, ClockSource.TIMER):
        doubt = "by any factor" if summary.nominal_mhz is None else f"by {100 * summary.clock_error:.0f} %"
        yield f"the SM clock is assumed, not measured: durations may be off {doubt}"
    slowdown = summary.slowdown
    if slowdown is not None and abs(slowdown.beyond_error) > _MIN_SLOWDOWN:
        part = f"{100 * abs(slowdown.part):.0f} % ± {100 * slowdown.error:.0f}"
        if any(scope.kind == ScopeKind.FUNCTION for scope in summary.scopes):
            yield f"scopes are {part} too {'long' if slowdown.part > 0 else 'short'}, by the CTAs that do not record"
        else:
            yield f"CTAs that record take {part} {'longer' if slowdown.part > 0 else 'less'} than the others"
