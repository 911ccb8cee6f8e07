"""Why it cannot be told whether a launch changed, and what would help."""

from __future__ import annotations

from dataclasses import dataclass

from kprof_inject.report.diff.kernel_diff import KernelDiff
from kprof_inject.report.diff.verdict import change_words
from kprof_inject.report.quantities import counted, time_text
from kprof_inject.timeline.statistics.within_process import MIN_LAUNCHES

MORE_LAUNCHES = "capture more of them with --launches all, or 0:20, from a program that launches the kernel as often"
_MORE_CAPTURES = "give more captures of each side (--more-a, --more-b)"
_MORE_WORK = "give each launch more work"

_MANY_LAUNCHES = 20
"""Whoever has as many has done what ``MORE_LAUNCHES`` asks for."""


@dataclass(frozen=True, slots=True)
class Untold:
    """``reason`` follows the launch's times, and begins with what parts it from them."""

    reason: str
    remedies: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.reason}; {', or '.join(self.remedies)}"


def why_untold(diff: KernelDiff) -> Untold:
    """Of a kernel of which nothing can be told."""
    if took_no_time(diff):
        return Untold(f": {_too_short(diff)}", (_MORE_WORK,))
    change = diff.launch.change
    if change is None:
        return Untold(f", but of {_launches(diff)}, and it takes {MIN_LAUNCHES} on each side", (MORE_LAUNCHES,))
    many = min(len(runs.timelines) for runs in (diff.a, diff.b)) >= _MANY_LAUNCHES
    remedies = (_MORE_CAPTURES,) if many else (MORE_LAUNCHES, _MORE_CAPTURES)
    return Untold(f", {change_words(change)}: launches, and processes, differ too much by themselves", remedies)


def took_no_time(diff: KernelDiff) -> bool:
    """Whether a launch with records did, by its timer: then its time has no ratio to another."""
    return any(not launch.duration_ns for launch in (*diff.figures_a, *diff.figures_b))


def _too_short(diff: KernelDiff) -> str:
    launches = (*diff.figures_a, *diff.figures_b)
    short = sum(not launch.duration_ns for launch in launches)
    step_ns = max(launch.timer_step_ns for launch in launches)
    by_timer = f", by a timer with steps of {time_text(step_ns)}" if step_ns else ""
    return f"{short} of {counted(len(launches), 'launch')} took no time at all{by_timer}"


def _launches(diff: KernelDiff) -> str:
    a, b = len(diff.figures_a), len(diff.figures_b)
    return "one launch each" if a == b == 1 else f"{counted(a, 'launch')} in A and {counted(b, 'launch')} in B"
