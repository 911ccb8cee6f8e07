"""Waits for flags in the launches of a report, those who hold them up, and sentences on both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.quantities import counted, numbered, short_time
from kprof_inject.timeline.axis import PlacedLaunch
from kprof_inject.timeline.holders import FlagWaits, Holder, Work, critical_path, flag_waits
from kprof_inject.timeline.task_runs import TaskStatistics, task_statistics
from kprof_inject.timeline.wait_ends import WaitEnds

_MAX_STEPS = 4
# Of the time for which it is waited.
_MIN_LATE = 0.5


class Waits(Struct, frozen=True):
    """The waits for flags of a report's launches, and the critical path of those that ran with the one shown.

    The ``path`` is empty if no wait is on it. The kernel in which it begins began ``begins_after_ns`` after the first
    of these. The ``tasks`` are those of the launch shown.
    """

    scopes: tuple[FlagWaits, ...]
    launches: tuple[PlacedLaunch, ...] = ()
    shown: str = ""
    path: tuple[Work, ...] = ()
    begins_after_ns: int = 0
    tasks: tuple[TaskStatistics, ...] = ()


def waits_in(shown: LaunchAnalysis) -> Waits:
    """Return the waits for flags in the launches of a report, of which all that wait are decoded.

    The critical path is that of the launches that ran with ``shown``.
    """
    ends = shown.together.wait_ends
    scopes = tuple(flag_waits(ends))
    for one in ends:
        launches = one.visits.launches
        spans = {at: span for at, placed in enumerate(launches) if (span := placed.span_ns())}
        number = next((at for at in spans if launches[at].timeline.launch is shown.launch), None)
        if number is not None:
            together = _together(spans, number)
            path = critical_path(one, together)
            first_ns = min(spans[at][0] for at in together)
            after_ns = spans[path[0].launch][0] - first_ns if path else 0
            tasks = tuple(task_statistics(one, number))
            return Waits(scopes, launches, launches[number].title, tuple(path), after_ns, tasks)
    return Waits(scopes)


def wait_ends_in(reports: Sequence[LaunchAnalysis]) -> list[WaitEnds]:
    """Return what ended the waits for flags in launches, and in those that are in a report with them."""
    return [ends for together in dict.fromkeys(report.together for report in reports) for ends in together.wait_ends]


def _together(spans: Mapping[int, tuple[int, int]], number: int) -> list[int]:
    """Return the launches that ran at the same time as one of them, with that one."""
    begin_ns, end_ns = spans[number]
    return [at for at, span in spans.items() if span[0] < end_ns and begin_ns < span[1]]


def flag_notes(waits: Waits) -> Iterator[str]:
    """Yield a line on each scope whose waits others ended or that are unknown, and one on the critical path."""
    for scope in waits.scopes:
        if scope.ended or scope.tagged or scope.unknown:
            yield f"{scope.kernel}, {scope.scope}: {_how_they_ended(scope)}"
            yield from (f"  {holder_text(holder)}" for holder in scope.holders[:1] if _is_late(holder))
    if waits.path:
        yield f"critical path of {waits.shown}: {_path_text(waits)}"


def _is_late(holder: Holder) -> bool:
    """Return whether a CTA came much later than others, so that it alone held some up."""
    return holder.late_ns >= _MIN_LATE * holder.held_ns / holder.waits


def _how_they_ended(scope: FlagWaits) -> str:
    text = f"of {counted(scope.waits, 'wait')}, another CTA ended {scope.ended}"
    text += f"; the flag of {scope.before} was set before" if scope.before else ""
    text += f"; a CTA of the tagged peer ended {scope.tagged}" if scope.tagged else ""
    if scope.unknown:
        text += f"; what ended {scope.unknown} is unknown"
        close = scope.unknown - scope.not_recorded
        text += f" ({close} for two changes too close to each other)" if close else ""
    return text


def holder_text(holder: Holder) -> str:
    """Return a sentence on a CTA that holds others up."""
    where = f"{holder.place}, " if holder.place else ""
    launches = f" of {counted(holder.launches, 'launch')}" if holder.launches > 1 else ""
    text = f"{where}CTA {holder.cta} holds {counted(holder.ctas, 'CTA')} up with {holder.change}{_in_tasks(holder)}: "
    text += f"{short_time(holder.longest_ns)} at most, {short_time(holder.held_ns)} in {counted(holder.waits, 'wait')}"
    text += f"{launches}. It comes {short_time(abs(holder.late_ns))} "
    text += f"{'after' if holder.late_ns >= 0 else 'before'} the median CTA, after {short_time(holder.work_ns)} of work"
    return text + (f", mostly in {holder.work}" if holder.work else "")


def _in_tasks(holder: Holder) -> str:
    """Return the tasks in which a CTA held others up, after a comma."""
    return f", {numbered('task', sorted(holder.tasks))}" if holder.tasks else ""


def _path_text(waits: Waits) -> str:
    """Return the longest parts of a path by place, CTA and scope, the longest first."""
    totals: dict[str, int] = {}
    for work in waits.path:
        place = waits.launches[work.launch].place_name
        name = f"{f'{place}, ' if place else ''}CTA {work.cta}{f' in {work.scope}' if work.scope else ''}"
        totals[name] = totals.get(name, 0) + work.duration_ns
    longest = sorted(totals, key=totals.__getitem__, reverse=True)
    shown = "; ".join(f"{short_time(totals[name])} {name}" for name in longest[:_MAX_STEPS])
    more = len(longest) - _MAX_STEPS
    ctas = counted(len({(work.launch, work.cta) for work in waits.path}), "CTA")
    begins = f"; its first kernel begins {short_time(waits.begins_after_ns)} later" if waits.begins_after_ns else ""
    return f"through {ctas}: {shown}" + (f"; {more} more" if more > 0 else "") + begins
