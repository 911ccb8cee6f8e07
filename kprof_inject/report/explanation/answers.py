"""Answers to questions: a figure, how far it may be off and why, of how many samples, and how far to trust it.

Errors add up: each is how far the figure may be off for one reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kprof_inject.analysis.async_work.overlap import together
from kprof_inject.analysis.findings.loops import is_wait
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.scopes import ScopeKind, ScopeTable
from kprof_inject.errors import KprofError, did_you_mean
from kprof_inject.quantities import counted, listed, percent
from kprof_inject.report.explanation.explanation_schema import SCHEMA_VERSION, Answer
from kprof_inject.report.explanation.gathering import verdict_on
from kprof_inject.report.explanation.questions import OVERLAP, SHARE, WAITS_FOR, Question
from kprof_inject.report.explanation.shortening import figure, known_figure, short_name, short_text
from kprof_inject.timeline.phases import outermost

_RECORD_COST = "record cost"
_CLOCK = "clock rate"
_CLOCK_STEP = "clock step"
_COMPLETION = "time of completion"

_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class _Told:
    """What is known: without a value, ``text`` says why there is none. An error of None is no bound at all."""

    text: str
    value: float | None = None
    unit: str = ""
    errors: Mapping[str, float | None] = field(default_factory=dict)
    samples: int = 0
    samples_of: str = ""


def answer(question: Question, report: LaunchAnalysis) -> Answer:
    """What one launch says. Raises ``KprofError`` if it has no scope of a name, and lists those that are near."""
    told = _ANSWERS[question.form.word](report, question.arguments)
    errors = told.errors if told.value is not None else {}
    known = {source: error for source, error in errors.items() if error is not None}
    is_bound = told.value is not None and len(known) == len(errors)
    unknown = [source for source in errors if source not in known]
    without = f"; the error is unknown, because of the {' and the '.join(unknown)}" if unknown else ""
    return Answer(
        schema=SCHEMA_VERSION,
        question=short_text(question.text),
        kernel=short_name(report.summary.kernel),
        launch=report.summary.launch,
        text=short_text(told.text + without),
        value=known_figure(told.value),
        unit=told.unit,
        error=figure(sum(known.values())) if is_bound else None,
        error_from={source: figure(error) for source, error in known.items()},
        samples=told.samples,
        samples_of=told.samples_of,
        verdict=verdict_on(report),
    )


def _share(report: LaunchAnalysis, arguments: Sequence[str]) -> _Told:
    (name,) = arguments
    summary = report.summary
    scopes = _scopes_called(report, name)
    timed = [index for index in scopes if summary.scopes[index].total_ns is not None]
    whole_ns = _whole_ns(summary, scopes)
    if not timed or not whole_ns:
        return _Told(f"{name} has no time: {_why_no_time(summary, scopes)}")
    # As in the table: those of other profilers may overlap others of their name.
    share = min(_total_ns(summary, timed) / whole_ns, 1.0)
    return _Told(
        f"{name}{_how_many(scopes)} takes {percent(share)} of the warps' time",
        share,
        "share of the warps' time",
        {
            _RECORD_COST: _over(_record_error_ns(summary, timed), whole_ns),
            _CLOCK: _clock_error(summary, share),
            _CLOCK_STEP: share * _step_share(report),
        },
        _executions(summary, timed),
        "executions",
    )


def _waits_for(report: LaunchAnalysis, arguments: Sequence[str]) -> _Told:
    around, *what = arguments
    summary, table = report.summary, report.timeline.table
    scopes = _scopes_called(report, around)
    inside = _inside(table, scopes)
    whole_ns = _total_ns(summary, scopes)
    if not whole_ns:
        return _Told(f"{around} has no time: {_why_no_time(summary, scopes)}")
    found = _waits_for_what(report, inside, what[0]) if what else _all_waits(report, inside, around)
    if not found.waits:
        return _Told(found.text)
    unit, samples = f"share of the time of {short_name(around)}", _executions(summary, found.waits)
    if {*found.waits}.issuperset(index for index in scopes if summary.scopes[index].total_ns is not None):
        # Whatever its time is: it has no error to tell.
        return _Told(f"{around}{_how_many(scopes)} is itself a wait", 1.0, unit, {}, samples, "waits")
    share = _total_ns(summary, found.waits) / whole_ns
    errors_ns = [_record_error_ns(summary, part) for part in (found.waits, scopes)]
    known = [error for error in errors_ns if error is not None]
    # What the whole is off by moves the share by as much as it is of it.
    error = (known[0] + share * known[1]) / whole_ns if len(known) == len(errors_ns) else None
    return _Told(
        f"warps spend {percent(share)} of {around}{_how_many(scopes)} in {found.text}",
        share,
        unit,
        {_RECORD_COST: error},
        samples,
        "waits",
    )


@dataclass(frozen=True, slots=True)
class _Waits:
    """Scopes of waits, by index, and what they are in words; without any, why there are none."""

    waits: tuple[int, ...]
    text: str


def _all_waits(report: LaunchAnalysis, inside: Sequence[int], around: str) -> _Waits:
    scopes = report.summary.scopes
    first = outermost(report.timeline.table, is_wait)
    waits = tuple(index for index in inside if first[index] == index and scopes[index].total_ns is not None)
    if waits:
        return _Waits(waits, listed([scopes[index].distinct_name for index in waits], _MOST_NAMES))
    return _Waits((), f"no wait in {around} was recorded; {_ADD_WAITS}")


_ADD_WAITS = "add --at 'op(*wait*)'"
_ADD_ASYNC = "add --at async"


def _waits_for_what(report: LaunchAnalysis, inside: Sequence[int], what: str) -> _Waits:
    """What asks for asynchronous work, or one of the waits itself."""
    scopes, table = report.summary.scopes, report.timeline.table
    called = _scopes_called(report, what)
    timed = [index for index in called if index in inside and scopes[index].total_ns is not None]
    if themselves := tuple(index for index in timed if is_wait(table.scopes[index])):
        return _Waits(themselves, f"{what}{_how_many(themselves)}")
    asked = _inside(table, called)
    if report.in_flight is None:
        return _Waits((), f"what {what} issues is unknown: nothing asynchronous was recorded; {_ADD_ASYNC}")
    groups = report.in_flight.groups
    groups = groups[np.isin(groups["scope"], asked) & np.isin(groups["wait_scope"], inside)]
    waits = tuple(dict.fromkeys(groups["wait_scope"].tolist()))
    if not waits:
        why = "; ".join(f"{operation}: {reason}" for operation, reason in report.in_flight.unpaired.items())
        return _Waits((), f"no recorded wait there is for {what}{f' ({why})' if why else ''}")
    blocked = float((groups["blocked_ns"] > 0).mean())
    names = listed([scopes[index].distinct_name for index in waits], _MOST_NAMES)
    late = f"{percent(blocked)} of {counted(len(groups), 'group')} were still in flight when their wait began"
    return _Waits(waits, f"{names}, for {what}; {late}")


def _overlap(report: LaunchAnalysis, arguments: Sequence[str]) -> _Told:
    first, second = arguments
    found = together(report.timeline, report.in_flight, *(_scopes_called(report, name) for name in arguments))
    if found is None:
        return _Told(f"{first} or {second} has no time: it did not run, or its records are missing")
    share = (found.least + found.most) / 2
    cost = report.summary.record_cost
    edge_ns = None if cost is None else cost.error_cycles * 1e3 / report.summary.clock_mhz
    return _Told(
        f"{second} runs during {percent(share)} of the time of {first}, on the same SM",
        share,
        f"share of the time of {short_name(first)}",
        {
            _COMPLETION: (found.most - found.least) / 2,
            _RECORD_COST: None if edge_ns is None else min(found.edges * edge_ns / found.first_ns, 1.0),
        },
        found.executions,
        "executions",
    )


_ANSWERS: dict[str, Callable[[LaunchAnalysis, Sequence[str]], _Told]] = {
    WAITS_FOR.word: _waits_for,
    OVERLAP.word: _overlap,
    SHARE.word: _share,
}


def _scopes_called(report: LaunchAnalysis, name: str) -> tuple[int, ...]:
    """The scopes that the report shows by this name, all together, by index; of those within each other, the
    outermost."""
    table, scopes = report.timeline.table, report.summary.scopes
    called = {scope.index for scope in scopes if scope.scope == name}
    called = called or {scope.index for scope in scopes if name in (scope.title, scope.distinct_name)}
    if not called:
        known = list(dict.fromkeys(scope.title for scope in scopes))
        there = f"there are scopes {listed(known, _MOST_NAMES)}" if known else "the launch has no scopes"
        raise KprofError(
            f"{report.summary.kernel} has no scope {name!r}",
            hint=f"{did_you_mean(name, known)}{there}",
        )
    return tuple(index for index in sorted(called) if not called.intersection(table.around(index)))


def _how_many(scopes: Sequence[int]) -> str:
    return f" ({len(scopes)} scopes)" if len(scopes) > 1 else ""


def _inside(table: ScopeTable, scopes: Sequence[int]) -> tuple[int, ...]:
    """These scopes, and all that stand in them."""
    wanted = {*scopes}
    return tuple(
        index for index in range(len(table.scopes)) if index in wanted or not wanted.isdisjoint(table.around(index))
    )


def _total_ns(summary: LaunchSummary, scopes: Sequence[int]) -> int:
    return sum(summary.scopes[index].total_ns or 0 for index in scopes)


def _executions(summary: LaunchSummary, scopes: Sequence[int]) -> int:
    return sum(summary.scopes[index].count for index in scopes)


def _whole_ns(summary: LaunchSummary, scopes: Sequence[int]) -> int:
    """The time of the warps of the partitions that run these scopes; of all where there are none."""
    mine = [partition.whole_ns for partition in summary.partitions if not {*scopes}.isdisjoint(partition.scopes)]
    return sum(mine) if mine else summary.warp_time_ns


def _why_no_time(summary: LaunchSummary, scopes: Sequence[int]) -> str:
    if any(summary.scopes[index].kind == ScopeKind.INSTANT for index in scopes):
        return "it is a mark"
    if any(summary.scopes[index].without_partner for index in scopes):
        return "its records have no partners"
    return "it did not run, or its records are missing"


def _record_error_ns(summary: LaunchSummary, scopes: Sequence[int]) -> float | None:
    """How far the totals of scopes may be off, for nobody knows exactly what each record in them costs. What was taken
    out of them tells how many these are."""
    cost = summary.record_cost
    if cost is None or not cost.cycles:
        return None
    raw_ns = sum(summary.scopes[index].raw_total_ns or 0 for index in scopes)
    return (raw_ns - _total_ns(summary, scopes)) * cost.error_cycles / cost.cycles


def _over(part_ns: float | None, whole_ns: int) -> float | None:
    return None if part_ns is None else part_ns / whole_ns


def _clock_error(summary: LaunchSummary, share: float) -> float | None:
    """The warps' time is read from the timer, a scope's from the SM's counter at this rate."""
    return None if summary.duration_error is None else share * summary.duration_error


def _step_share(report: LaunchAnalysis) -> float:
    """What part of a CTA's time a step of the timer is: begin and end are each off by half of one at most."""
    timeline = report.timeline
    whole_ns = timeline.time_of_warps_ns([0])
    return timeline.clock.timer_step_ns * len(timeline.ctas) / whole_ns if whole_ns else 0.0
