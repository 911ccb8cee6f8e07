"""What stands under a kernel's table: in what else the two sides differ, and what bounds the comparison."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.printable import printable
from kprof_inject.report.diff.changes import MEAN
from kprof_inject.report.diff.kernel_diff import KernelDiff
from kprof_inject.report.diff.settings import grid_text
from kprof_inject.report.diff.untold import MORE_LAUNCHES, took_no_time
from kprof_inject.report.diff.verdict import ONE_SIDED, Verdict, change_words
from kprof_inject.report.diff.wording import change_text, launch_counts
from kprof_inject.report.quantities import time_text
from kprof_inject.timeline.statistics.comparison import CONFIDENCE
from kprof_inject.timeline.trust import Level, judge

_DOUBTFUL = (Level.CAREFUL, Level.UNRELIABLE)


def kernel_notes(diff: KernelDiff) -> Iterator[str]:
    """Each is a line, if there is something to say."""
    yield from _settings(diff)
    yield from _launches(diff)
    yield from _clock(diff)
    yield from _work(diff)
    yield from _records(diff)
    yield from _scopes(diff)


def _settings(diff: KernelDiff) -> Iterator[str]:
    if diff.differences:
        yield f"differs: {printable(', '.join(map(str, diff.differences)))}"
    else:
        yield "differs: nothing that the captures tell of the builds and their launches"


def _launches(diff: KernelDiff) -> Iterator[str]:
    if diff.clean is not None:
        yield (
            f"without records: run time {time_text(diff.clean_ns.a)} → {time_text(diff.clean_ns.b)}, "
            f"{change_text(diff.clean, diff.clean_ns)}, of {launch_counts(*diff.clean_launches)}: "
            f"{diff.clean.verdict.value}"
        )
    elif diff.same_clean_times:
        yield "without records: both sides have the same times, of one dump, which say nothing of a change"
    else:
        sides = [side for side, time_ns in (("A", diff.clean_ns.a), ("B", diff.clean_ns.b)) if time_ns is None]
        yield f"without records: no times in {' and '.join(sides)}"
    launches = launch_counts(len(diff.figures_a), len(diff.figures_b))
    first = f"; left out the first of each process, {diff.left_out} in all" if diff.left_out else ""
    yield (
        f"with records: span {time_text(diff.duration_ns.a)} → {time_text(diff.duration_ns.b)}, "
        f"{change_text(diff.recorded, diff.duration_ns)}, of {launches}{first}: "
        f"{diff.recorded.verdict.value}"
    )
    verdicts = {judged.verdict for judged in (diff.clean, diff.recorded) if judged is not None}
    if {Verdict.FASTER, Verdict.SLOWER} <= verdicts:
        yield "the two contradict each other: records change how this kernel runs; go by the times without them"


def _clock(diff: KernelDiff) -> Iterator[str]:
    cycles = diff.recorded.cycles
    if diff.clocks.differ:
        yield f"clock {diff.clocks}: in cycles the change is {change_words(cycles) if cycles else 'unknown'}"
    elif diff.clocks.a_hz is None or diff.clocks.b_hz is None:
        yield "clock: not measured on both sides; a change of the clock would look like one of the kernel"
    if not all(launch.timed for launch in (*diff.figures_a, *diff.figures_b)):
        yield "times are from cycles at an assumed clock, for no timer was read: cycles alone are compared"


def _work(diff: KernelDiff) -> Iterator[str]:
    if diff.a.grid != diff.b.grid:
        yield (
            f"grid {grid_text(diff.a.grid)} → {grid_text(diff.b.grid)}: a CTA, or the launch, does other work; totals "
            "are of all CTAs, means of one scope each"
        )
    ran = [{launch.ctas for launch in side} for side in (diff.figures_a, diff.figures_b)]
    if diff.a.grid == diff.b.grid and ran[0] != ran[1]:
        yield "not as many CTAs ran in all launches: totals are of those that did"
    if diff.a.kernel.num_warps != diff.b.kernel.num_warps:
        yield "the CTAs have another number of warps: changes are of what one warp takes, totals of all"
    if diff.warps is not None:
        which = (
            f"warps {', '.join(map(str, diff.warps))}, which both recorded"
            if diff.warps
            else "no warp: none is in both"
        )
        yield f"recorded warps differ: scopes are compared in {which}"


def _records(diff: KernelDiff) -> Iterator[str]:
    for side, launches in (("A", diff.figures_a), ("B", diff.figures_b)):
        if missing := sum(launch.records_missing for launch in launches):
            yield f"lost: {missing} records of {side}. run --fit keeps them all"
    if any(scope.basis == MEAN.name for scope in diff.scopes):
        yield "records are missing, and totals with them: scopes are compared by the mean of those that are whole"
    known = {launch.record_cost_known for launch in (*diff.figures_a, *diff.figures_b)}
    if known == {True, False}:
        yield "record cost: known of one side alone, and subtracted there: scopes are not quite comparable"
    for side, runs in (("A", diff.a), ("B", diff.b)):
        trust = judge(runs.kernel)
        if trust.level in _DOUBTFUL:
            yield f"trust in {side}: {trust.text}"


def _scopes(diff: KernelDiff) -> Iterator[str]:
    compared = [scope.judged for scope in diff.scopes if scope.judged and scope.judged.verdict not in ONE_SIDED]
    if compared and all(judged.change is None for judged in compared):
        yield f"scopes: {_why_no_scope(diff)}"
    elif compared:
        yield f"±: all scopes' intervals hold the truth together with {100 * CONFIDENCE:.0f} % confidence"
    for scope in diff.scopes:
        if scope.note:
            yield printable(f"{scope.name}: {scope.note}")
    for side, unmatched in (("A", diff.only_a), ("B", diff.only_b)):
        for one in unmatched:
            source = f" ({one.scope.short_source})" if one.scope.source else ""
            yield printable(f"only in {side}: {one.scope.name}{source}: {one.why}")


def _why_no_scope(diff: KernelDiff) -> str:
    """Why no scope's change is known."""
    if diff.recorded.change is None and not took_no_time(diff):
        return f"too few launches to tell a change from chance; {MORE_LAUNCHES}"
    return "no change can be told where a launch, or the scope in it, took no time at all"
