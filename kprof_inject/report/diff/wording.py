"""Sentences on a comparison: the answer in two lines, and the notes that limit it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from kprof_inject.analysis.comparison import causes, runs
from kprof_inject.analysis.comparison.causes import Place
from kprof_inject.analysis.comparison.code import WHOLE, largest_cause, structure_of
from kprof_inject.analysis.comparison.runs import Both, grid_text
from kprof_inject.analysis.comparison.verdicts import (
    MEAN,
    ONE_SIDED,
    CaptureDiff,
    ChangeVerdict,
    Judged,
    KernelDiff,
    ScopeChange,
)
from kprof_inject.capture.source_text import without_folders
from kprof_inject.errors import printable
from kprof_inject.quantities import before_and_after, counted, listed, numbered, percent, short_time
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.comparison import CONFIDENCE, MIN_LAUNCHES, Change, rounded_error
from kprof_inject.timeline.trust import Level, judge

_NO_BOUND_PERCENT = 100.0  # an interval with a larger error is printed as unknown
_UNKNOWN_INTERVAL = "[?]"
_MIN_ALL, _MIN_MAJORITY = 0.95, 0.5  # parts of a change from which it is called all or most of it
_MAX_NAMED = 4
_MAX_TAG_VALUES = 8
_DOUBTFUL = (Level.CAREFUL, Level.UNRELIABLE, Level.CANNOT_TELL)


def change_words(change: Change) -> str:
    """Return a change as ``-32.3 % [-34.5, -27.9]``, or with ``[?]`` for an interval that excludes nothing."""
    low, high = _interval(change)
    is_known = change.direction or change.error_percent <= _NO_BOUND_PERCENT
    interval = f"[{low:+.1f}, {high:+.1f}]" if is_known else _UNKNOWN_INTERVAL
    return f"{round(change.percent, 1) + 0.0:+.1f} % {interval}"


def takes(change: Change) -> str:
    """Return a significant change as ``takes 36.5 % less time [33.8, 39.0]``."""
    low, high = sorted(map(abs, _interval(change)))
    word = "more" if change.log_ratio > 0 else "less"
    return f"takes {abs(change.percent):.1f} % {word} time [{low:.1f}, {high:.1f}]"


def _interval(change: Change) -> tuple[float, float]:
    # Rounding to six digits first keeps a tenth a tenth despite float error; adding 0.0 turns -0.0 into 0.0.
    low, high = (round(10 * end, 6) for end in (change.low_percent, change.high_percent))
    return math.floor(low) / 10 + 0.0, math.ceil(high) / 10 + 0.0


def change_text(judged: Judged | None, figures: Both) -> str:
    """Return a change with its interval, as far as known; "-" if there is nothing to compare."""
    if judged is None or judged.verdict in ONE_SIDED:
        return "-"
    return change_words(judged.change) if judged.change is not None else _by_medians(figures) or "-"


def _by_medians(figures: Both) -> str:
    if not figures.a or figures.b is None:
        return ""
    return f"{round(100 * (figures.b / figures.a - 1), 1) + 0.0:+.1f} % {_UNKNOWN_INTERVAL}"


def both_text(figures: Both, text: Callable[[float], str]) -> str:
    """Return both figures as text, or one if they are equal; ``-`` for an unknown one."""
    return before_and_after(*("-" if value is None else text(value) for value in (figures.a, figures.b)))


def _from_to(times_ns: Both) -> str:
    text = both_text(times_ns, short_time)
    before, _, after = text.partition(" → ")
    number, _, unit = before.partition(" ")
    return f"{number} → {after}" if after and after.endswith(f" {unit}") else text


def _launch_counts(a: int, b: int) -> str:
    return f"{counted(a, 'launch')} each" if a == b else f"{counted(a, 'launch')} in A, {b} in B"


def first_answer(diff: CaptureDiff) -> list[str]:
    """Return the answer for all kernels together: the news and, if known, the largest cause or what to do."""
    kernels = diff.kernels
    if len(kernels) == 1:
        return kernel_answer(kernels[0])
    has_ranks, is_one_each = diff.is_by_rank, len({kernel.b.rank for kernel in kernels}) == len(kernels)
    noun = "kernel" if not has_ranks else "rank" if is_one_each else "rank's kernel"
    judged = [kernel for kernel in kernels if kernel.launch.verdict is not ChangeVerdict.UNKNOWN]
    if not judged:
        remedies = dict.fromkeys(remedy.value for kernel in kernels for remedy in causes.remedies(kernel))
        return _lines([f"cannot tell for any of {len(kernels)} {noun}s"], [", or ".join(remedies)])
    changed = [kernel for kernel in judged if kernel.launch.changed]
    by_clock = [kernel for kernel in judged if kernel.launch.verdict is ChangeVerdict.CLOCK]
    news = []
    if changed:
        news.append(f"{len(changed)} of {len(kernels)} {noun}s changed: {_by_how_much(changed)}")
    if by_clock:
        news.append(f"only the clock differs in {len(by_clock)} of {len(kernels)} {noun}s: {_by_how_much(by_clock)}")
    if not news:
        news.append(f"no difference in {len(judged)} of {len(kernels)} {noun}s")
    if unknown := len(kernels) - len(judged):
        news.append(f"cannot tell for {counted(unknown, noun)}")
    in_cycles = [(kernel, causes.hidden_by_clock(kernel)) for kernel in judged]
    hidden = [f"{_name(kernel)} {change_words(change)}" for kernel, change in in_cycles if change]
    inside = [_name(kernel) for kernel in judged if not kernel.launch.changed and causes.changed_scopes(kernel)]
    resized = [_name(kernel) for kernel in judged if kernel.a.grid != kernel.b.grid]
    reservations = {
        "but the clock rate differs: in cycles the change is": hidden,
        "but scopes changed in": inside,
        "but the grid, and with it the work, differs in": resized,
    }
    return _lines(news, [f"{text} {listed(names, _MAX_NAMED)}" for text, names in reservations.items() if names])


def _by_how_much(kernels: Sequence[KernelDiff]) -> str:
    changes = [f"{_name(kernel)} {takes(kernel.launch.change)}" for kernel in kernels if kernel.launch.change]
    return listed(changes, _MAX_NAMED)


def _name(kernel: KernelDiff) -> str:
    return printable(kernel.b.title)


def kernel_answer(diff: KernelDiff) -> list[str]:
    """Return the answer for one kernel: the news and, if known, the largest cause or what to do."""
    verdict, change = diff.launch.verdict, diff.launch.change
    times = _times(diff)
    more: list[str] = []
    other_clock = f"but the clock rate differs ({_clocks_text(diff)}): in cycles the change is"
    if change is None or verdict is ChangeVerdict.UNKNOWN:
        news = f"cannot tell: {_why_unknown(diff)}; {times}"
        more.append(", or ".join(remedy.value for remedy in causes.remedies(diff)))
    elif verdict is ChangeVerdict.SAME:
        detectable = f"a change of {rounded_error(change.detectable_percent)} % would be detected"
        news = f"no difference: {times}, {change_words(change)}; {detectable}"
        if cycles := causes.hidden_by_clock(diff):
            more.append(f"{other_clock} {change_words(cycles)}")
    elif verdict is ChangeVerdict.CLOCK:
        news = f"only the clock differs: B {takes(change)}, {times}"
        in_cycles = change_words(diff.launch.cycles) if diff.launch.cycles else "unknown"
        more.append(f"largest cause: the clock rate, {_clocks_text(diff)}; in cycles the change is {in_cycles}")
    else:
        news = f"B {takes(change)}: {times}"
        more.append(_cause(diff))
        if causes.may_be_clock(diff):
            more.append(f"{other_clock} {change_in_cycles(diff)}")
    if not diff.launch.changed and (changed := causes.changed_scopes(diff)):
        names = [f"{_scope_name(scope)} {change_words(own)}" for scope, own in changed]
        more.append(f"but {counted(len(changed), 'scope')} changed: {listed(names, _MAX_NAMED)}")
    if diff.a.grid != diff.b.grid:
        more.append(f"but the grid, and with it the work, changed: {grid_text(diff.a.grid)} → {grid_text(diff.b.grid)}")
    return _lines([news], more)


def _lines(news: Sequence[str], more: Sequence[str]) -> list[str]:
    return [line for line in ("; ".join(filter(None, parts)) for parts in (news, more)) if line]


def _cause(diff: KernelDiff) -> str:
    place, explanation = causes.place_of_cause(diff), causes.explanation_of(diff)
    if place is None or explanation is None:
        return ""
    if place is Place.HIDDEN:
        recorded = diff.recorded.change
        return f"cause unknown: with records, the launch's change is {change_words(recorded)}" if recorded else ""
    if place is Place.OUTSIDE:
        alone = round(explanation.percent, 1) + 0.0
        return f"largest cause: outside of the scopes, which alone change the time by {alone:+.1f} %"
    if place is Place.AT_ONCE:
        mean_ns = diff.sides.both(lambda launch: launch.cta_ns / max(len(launch.timeline.all_ctas), 1))
        return f"largest cause: {_at_once(diff)}; a CTA takes {_from_to(mean_ns)}"
    inside = _in_scopes(diff, is_all=place is Place.SCOPES)
    at_once = _at_once(diff) if place is Place.SCOPES_BEYOND else ""
    return f"{inside}; but {at_once}" if inside and at_once else inside


def _in_scopes(diff: KernelDiff, *, is_all: bool) -> str:
    (scope, part, explained), structure = largest_cause(diff), structure_of(diff)
    if scope is not None:
        only_in = f" ({scope.judged.verdict.value})" if scope.judged and scope.judged.verdict in ONE_SIDED else ""
        text = f"{_scope_name(scope)}{only_in}, {_from_to(scope.cta_ns)} per CTA"
    elif part is not None:
        text = part.part.name
    else:
        return ""
    if is_all:
        share = percent(explained)
        amount = "all" if explained >= _MIN_ALL else f"most ({share})" if explained >= _MIN_MAJORITY else share
        text += f", {amount} of the change"
    if part is None:
        return f"largest cause: {text}"
    changes = listed(list(dict.fromkeys(change.text for change in part.changes)), 1)
    if part.part == WHOLE:
        changes = f"of {WHOLE.name}: {changes}"
    elif structure and structure.everywhere:
        changes += f"; or of {WHOLE.name}: {listed([change.text for change in structure.everywhere], 1)}"
    return f"{'largest' if part.is_certain else 'likely'} cause: {text} ({changes})"


_AT_ONCE_WORDS = {
    "SMs": ("on {} SMs", "{:g}".format),
    "slots": ("with room for {} on each", "{:g}".format),
    "waves": ("in {} waves", "{:g}".format),
    "before": ("as SMs idle before their first CTA for {} of the launch", percent),
    "between": ("as SMs idle between CTAs for {} of the launch", percent),
    "tail": ("as the first SM runs out of work {} before the end", short_time),
}


def _at_once(diff: KernelDiff) -> str:
    found = causes.ctas_at_once(diff)
    if found is None:
        return ""
    parts = [f"{both_text(found, '{:.1f}'.format)} CTAs run at once on average"]
    for what, both in causes.why_at_once(diff.sides).items():
        words, text = _AT_ONCE_WORDS[what]
        if "→" in (figures := both_text(both, text)):
            parts.append(words.format(figures))
    return ", ".join(parts)


def _scope_name(scope: ScopeChange) -> str:
    return printable(scope.b.distinct_name)


def _why_unknown(diff: KernelDiff) -> str:
    if causes.took_no_time(diff):
        launches = diff.sides.launches
        step_ns = max(launch.timeline.clock.timer_step_ns for launch in launches)
        by_timer = f" by the timer, whose step is {short_time(step_ns)}" if step_ns else ""
        short = sum(not launch.duration_ns for launch in launches)
        return f"{short} of {counted(len(launches), 'launch')} took 0 ns{by_timer}"
    if diff.launch.change is None:
        counts = _launch_counts(len(diff.sides.a), len(diff.sides.b))
        return f"{counts}, but at least {MIN_LAUNCHES} on each side are needed"
    return f"launches or processes vary too much: {change_words(diff.launch.change)}"


def _clocks_text(diff: KernelDiff) -> str:
    rates = (diff.clocks.a, diff.clocks.b)
    return " → ".join("unknown" if hz is None else f"{hz / 1e9:.2f} GHz" for hz in rates)


def change_in_cycles(diff: KernelDiff) -> str:
    """Return the change in cycles with records, without its interval if there are too few launches."""
    if diff.recorded.cycles is not None:
        return change_words(diff.recorded.cycles)
    estimate = _by_medians(diff.sides.duration_cycles)
    return f"{estimate}, from {_launch_counts(len(diff.sides.a), len(diff.sides.b))}" if estimate else "unknown"


def _times(diff: KernelDiff) -> str:
    events = " (CUDA events)" if runs.has_launching(diff.a, diff.b) else ""
    what, how = ("run time", f"without records{events}") if diff.by_clean_times else ("span", "with records")
    return f"{what} {_from_to(diff.compared_ns)} {how}"


def kernel_notes(diff: KernelDiff) -> Iterator[str]:
    """Yield the notes below a kernel's table: other differences, and the limits of the comparison."""
    differing = printable(", ".join(map(str, runs.differences(diff.a, diff.b))))
    yield f"differs: {differing}" if differing else "builds and launches: no recorded setting differs"
    yield from _launch_notes(diff)
    yield from _record_notes(diff)
    yield from _scope_notes(diff)


def _launch_notes(diff: KernelDiff) -> Iterator[str]:
    if diff.clean is not None:
        events = " (CUDA events)" if runs.has_launching(diff.a, diff.b) else ""
        counts = [sum(map(len, times)) for times in diff.clean_times_ns]
        yield _measured(diff.clean, "run time", diff.clean_ns, (counts[0], counts[1]), f"without records{events}")
    elif diff.same_clean_times:
        yield "without records: no comparison, because both sides have the times of the same dump"
    else:
        sides = [side for side, time_ns in (("A", diff.clean_ns.a), ("B", diff.clean_ns.b)) if time_ns is None]
        yield f"without records: no times in {' or '.join(sides)}"
    left_out = len(diff.all_launches.launches) - len(diff.sides.launches)
    first = f", without the first of each process ({left_out} in all)" if left_out else ""
    launches = len(diff.sides.a), len(diff.sides.b)
    yield _measured(diff.recorded, "span", diff.sides.duration_ns, launches, "with records") + first
    verdicts = {judged.verdict for judged in (diff.clean, diff.recorded) if judged is not None}
    if {ChangeVerdict.FASTER, ChangeVerdict.SLOWER} <= verdicts:
        yield "these two contradict each other: records change how this kernel runs; trust the times without records"
    if diff.recorded.other_clock:
        yield f"clock rate {_clocks_text(diff)}: in cycles the change is {change_in_cycles(diff)}"
    elif diff.clocks.a is None or diff.clocks.b is None:
        yield "clock rate not measured on both sides: a change of it would look like a change of the kernel"
    if not all(launch.timeline.clock.source != ClockSource.NOMINAL for launch in diff.sides.launches):
        yield "times are cycles at an assumed clock rate, because no timer was read: only cycles are compared"


def _measured(judged: Judged, what: str, times_ns: Both, launches: tuple[int, int], how: str) -> str:
    change, median = change_text(judged, times_ns), "median " if max(launches) > 1 else ""
    verdict = judged.verdict.value if change == "-" else f"{judged.verdict.value}, {change}"
    return f"{verdict}: {median}{what} {both_text(times_ns, short_time)} {how}, {_launch_counts(*launches)}"


def _record_notes(diff: KernelDiff) -> Iterator[str]:
    if diff.warps is not None:
        both = f"scopes are compared in {numbered('warp', diff.warps)}" if diff.warps else "no scope is compared"
        yield f"recorded warps differ: {both}, {'which' if diff.warps else 'as no warp'} both sides recorded"
    for side, launches in (("A", diff.sides.a), ("B", diff.sides.b)):
        timelines = [launch.timeline for launch in launches]
        if missing := sum(timeline.records_lost + timeline.records_damaged for timeline in timelines):
            lost = counted(missing, "record")
            yield f"lost: {lost} of {side}; run --fit keeps them all, and so do larger buffers of other profilers"
    if any(scope.basis is MEAN for scope in diff.scopes):
        yield "scopes are compared by their means, because records are missing and totals incomplete"
    known = {launch.timeline.launch.kernel.record_cost is not None for launch in diff.sides.launches}
    if known == {True, False}:
        yield "record cost: subtracted on one side only, because it is unknown on the other: scopes differ by it"
    for side, of_side in (("A", diff.a), ("B", diff.b)):
        trust = judge(of_side.kernel)
        if trust.level in _DOUBTFUL:
            yield f"trust in {side}: {trust.text}"


def _scope_notes(diff: KernelDiff) -> Iterator[str]:
    compared = [scope.judged for scope in diff.scopes if scope.judged and scope.judged.verdict not in ONE_SIDED]
    if compared and any(judged.change for judged in compared):
        yield f"[low, high]: intervals of {100 * CONFIDENCE:.0f} % confidence, for all scopes together"
    elif compared and diff.recorded.change is None and not causes.took_no_time(diff):
        few = "scopes: too few launches to separate a change from noise"
        yield "; ".join([few, *(remedy.value for remedy in causes.remedies(diff)[:1])])
    for scope in diff.scopes:
        if scope.match.note:
            yield printable(f"{scope.b.distinct_name}: {scope.match.note}")
        for tag, medians_ns in scope.tags().items():
            medians = [f"{value}: {both_text(both, short_time)}" for value, both in medians_ns.items()]
            yield printable(f"{scope.b.distinct_name} by {tag}, p50: {listed(medians, _MAX_TAG_VALUES)}")
    for side, unmatched in (("A", diff.matching.only_a), ("B", diff.matching.only_b)):
        for item in unmatched:
            source = f" ({without_folders(item.scope.info.source)})" if item.scope.info.source else ""
            yield printable(f"only in {side}: {item.scope.title}{source}: {item.why}")


def unpaired_lines(diff: CaptureDiff) -> list[str]:
    """Return a line for each kernel of one capture alone, by a name that is unique in that capture."""
    lines = []
    for side, paired, alone in (
        ("A", [kernel.a for kernel in diff.kernels], diff.only_a),
        ("B", [kernel.b for kernel in diff.kernels], diff.only_b),
    ):
        names = runs.distinct_runs([*alone, *paired])[: len(alone)]
        lines += [
            f"only in {side}: {name}, grid {grid_text(one.grid)}, {counted(len(one.timelines), 'launch')}"
            for name, one in zip(names, alone, strict=True)
        ]
    return lines


def kernel_title(kernel: KernelDiff) -> str:
    """Return the title of a kernel's table."""
    grids, counts = (kernel.a.grid, kernel.b.grid), (len(kernel.a.timelines), len(kernel.b.timelines))
    return f"{kernel.b.title}, A → B: grid {before_and_after(*map(grid_text, grids))}, {_launch_counts(*counts)}"
