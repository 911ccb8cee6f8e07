"""Sentences on changes and verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from kprof_inject.errors import printable
from kprof_inject.quantities import before_and_after, counted, factor, listed, percent, short_time
from kprof_inject.report.diff.change_verdicts import (
    ONE_SIDED,
    UNKNOWN_INTERVAL,
    Both,
    ChangeVerdict,
    Judged,
    change_words,
)
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff
from kprof_inject.report.diff.runs import grid_text, has_launching
from kprof_inject.timeline.comparison import MIN_LAUNCHES, Change, rounded_error
from kprof_inject.timeline.waves import IdleSms, Waves

MORE_LAUNCHES = "capture more launches (--launches all or 0:20, from a program that launches the kernel that often)"
_MORE_CAPTURES = "give more captures of each side (--more-a, --more-b)"
_MORE_WORK = "give each launch more work"

_MANY_LAUNCHES = 20
"""With this many launches, ``MORE_LAUNCHES`` has been followed already."""


class CannotTell(Struct, frozen=True):
    """Reason why the verdict on a launch is unknown, and what would help; no remedies if nothing would."""

    reason: str
    remedies: tuple[str, ...]


def why_cannot_tell(diff: KernelDiff) -> CannotTell:
    """Return why the verdict on the launch is unknown."""
    if took_no_time(diff):
        launches = diff.sides.launches
        short = sum(not launch.duration_ns for launch in launches)
        step_ns = max(launch.timer_step_ns for launch in launches)
        by_timer = f" by the timer, whose step is {short_time(step_ns)}" if step_ns else ""
        return CannotTell(f"{short} of {counted(len(launches), 'launch')} took 0 ns{by_timer}", (_MORE_WORK,))
    change = diff.launch.change
    if change is None:
        counts = launch_counts(len(diff.sides.a), len(diff.sides.b))
        return CannotTell(f"{counts}, but at least {MIN_LAUNCHES} on each side are needed", more_launches(diff)[:1])
    return CannotTell(f"launches or processes vary too much: {change_words(change)}", more_launches(diff))


def more_launches(diff: KernelDiff) -> tuple[str, ...]:
    """Return how to get more launches to compare, best way first; empty if more would not help."""
    if diff.is_of_one_capture:
        return ()
    if diff.a.is_of_buffer or diff.b.is_of_buffer:
        return (_MORE_CAPTURES,)
    many = min(len(runs.timelines) for runs in (diff.a, diff.b)) >= _MANY_LAUNCHES
    return (_MORE_CAPTURES,) if many else (MORE_LAUNCHES, _MORE_CAPTURES)


def took_no_time(diff: KernelDiff) -> bool:
    """Return whether a launch with records took 0 ns by its timer, so that it has no ratio to another."""
    return any(not launch.duration_ns for launch in diff.sides.launches)


# A scope that explains at least this part of a change explains all of it, most of it, or enough to be named.
_ALL_OF_CHANGE = 0.95
_MAJORITY = 0.5
_MIN_EXPLAINED = 0.25
_MIN_BY_SCOPES, _MAX_BY_SCOPES = 0.5, 1.2
"""A part of the change outside this range does not come from the scopes, or not from them alone."""

_CHANGED = "→"
_SLOTS_BY_DRIVER = "occupancy"  # the source of the number of slots

_ONE_SIDED = {ChangeVerdict.SLOWER: ChangeVerdict.NEW, ChangeVerdict.FASTER: ChangeVerdict.GONE}


def cause(diff: KernelDiff, change: Change) -> str:
    """Return the cause of the launch's ``change``: its scopes, or how many CTAs run at once.

    The text begins with a colon; it is empty if the cause is unknown.
    """
    alone = diff.by_scopes_percent
    if alone is None:
        return ""
    if _accounts(alone, change):
        return _by_scope(diff)
    word = "slower" if alone > 0 else "faster"
    return f": its scopes alone make it {abs(alone):.1f} % {word}{_outside_scopes(diff, change)}"


def _accounts(alone: float, change: Change) -> bool:
    within = change.low_percent <= alone <= change.high_percent
    return within or _MIN_BY_SCOPES <= alone / change.percent <= _MAX_BY_SCOPES


def _by_scope(diff: KernelDiff) -> str:
    """Name the scope that explains most of the change, if it explains much and certainly changed."""
    verdict = diff.launch.verdict
    known = [
        (scope.explained, scope, scope.judged)
        for scope in diff.every_scope
        if scope.explained is not None and scope.judged and scope.judged.verdict in (verdict, _ONE_SIDED.get(verdict))
    ]
    if not known:
        return ""
    part, scope, judged = max(known, key=lambda item: item[0])
    if part < _MIN_EXPLAINED:
        return ""
    how_much = (
        "all" if part >= _ALL_OF_CHANGE else f"most ({percent(part)})" if part >= _MAJORITY else f"{percent(part)}"
    )
    how = change_words(judged.change) if judged.change else judged.verdict.value
    return f": {printable(scope.distinct_name)} ({how}) explains {how_much} of it"


def _outside_scopes(diff: KernelDiff, change: Change) -> str:
    recorded = diff.recorded.change
    if diff.by_clean_times and recorded is not None and not _accounts(recorded.percent, change):
        return f"; with records the launch's change is {change_words(recorded)}"
    at_once = diff.sides.both(lambda launch: launch.cta_ns / max(launch.duration_ns, 1))
    if not (at_once.a and at_once.b and diff.sides.duration_ns.a and diff.sides.duration_ns.b):
        return ""
    counts = before_and_after(f"{at_once.a:.1f}", f"{at_once.b:.1f}")
    is_little = abs(math.log(at_once.a / at_once.b)) < _MAJORITY * abs(
        math.log(diff.sides.duration_ns.b / diff.sides.duration_ns.a)
    )
    if is_little or _CHANGED not in counts:
        is_more = (diff.by_scopes_percent or 0.0) / change.percent > 1
        return ", more than the launch changed" if is_more else ", the rest is outside of scopes"
    takes = diff.sides.both(lambda launch: launch.cta_ns / max(launch.ctas, 1))
    return ", ".join(
        [
            f": a CTA takes {before_and_after(short_time(takes.a), short_time(takes.b))}",
            f"but {counts} CTAs run at once on average",
            *_why_at_once(diff),
        ]
    )


def _why_at_once(diff: KernelDiff) -> Iterator[str]:
    """Yield why the number of CTAs at once changed: SMs, slots and waves, or else idle SMs."""
    figures = {
        "on {} SMs": _of_waves(diff, lambda waves: waves.sms),
        "with room for {} on each": _of_waves(diff, lambda waves: _if_slots_known(waves, waves.slots_per_sm)),
        "in {} waves": _of_waves(diff, lambda waves: _if_slots_known(waves, waves.waves)),
    }
    differ = [
        text.format(f"{both.a:g} → {both.b:g}")
        for text, both in figures.items()
        if both.a is not None and both.b is not None and both.a != both.b
    ]
    yield from differ
    if differ:
        return
    if idle := _why_idle(diff):
        yield idle
        return
    tail = _of_waves(diff, lambda waves: waves.tail.duration_ns)
    if tail.a is not None and tail.b is not None:
        times = before_and_after(short_time(tail.a), short_time(tail.b))
        if _CHANGED in times:
            yield f"as the first SM runs out of work {times} before the end"


def _if_slots_known(waves: Waves, value: float) -> float | None:
    """Return the value if the driver gave the number of slots: the number seen at once may be lower."""
    return value if waves.slots_source == _SLOTS_BY_DRIVER else None


def _why_idle(diff: KernelDiff) -> str:
    """Return where SMs are idle before or between CTAs, if that changed more than the tail; else empty."""
    shares = {
        "as SMs idle before their first CTA for {} of the launch": _of_idle(diff, lambda idle: idle.before_share),
        "as SMs idle between CTAs for {} of the launch": _of_idle(diff, lambda idle: idle.between_share),
    }
    after = _of_idle(diff, lambda idle: idle.after_share)
    text, most = max(shares.items(), key=lambda item: _moved(item[1]))
    if most.a is None or most.b is None or _moved(most) <= max(_moved(after), _MIN_IDLE):
        return ""
    return text.format(before_and_after(percent(most.a), percent(most.b)))


def _moved(both: Both) -> float:
    return 0.0 if both.a is None or both.b is None else abs(both.b - both.a)


def _of_idle(diff: KernelDiff, value: Callable[[IdleSms], float]) -> Both:
    return diff.sides.both(lambda launch: None if launch.idle is None else value(launch.idle))


def _of_waves(diff: KernelDiff, value: Callable[[Waves], float | None]) -> Both:
    return diff.sides.both(lambda launch: None if launch.waves is None else value(launch.waves))


_MAX_NAMED = 4
# Idle shares that change by less than 1 % of the launch are not the cause.
_MIN_IDLE = 0.01


def kernel_sentence(diff: KernelDiff) -> str:
    """Return the answer for one kernel."""
    change, sentence = diff.launch.change, _SENTENCES.get(diff.launch.verdict)
    answer = sentence(diff, change) if sentence and change else _unknown(diff)
    grids = [grid_text(runs.grid) for runs in (diff.a, diff.b)]
    if grids[0] == grids[1]:
        return answer
    return f"{answer}; but the grid, and with it the work, changed: {grids[0]} → {grids[1]}"


def _unknown(diff: KernelDiff) -> str:
    why = why_cannot_tell(diff)
    return "; ".join(filter(None, [f"cannot tell: {why.reason}", _times(diff), ", or ".join(why.remedies)]))


def change_text(judged: Judged | None, figures: Both) -> str:
    """Return a change with its interval, as far as known; "-" if there is nothing to compare."""
    if judged is None or judged.verdict in ONE_SIDED:
        return "-"
    if judged.change is not None:
        return change_words(judged.change)
    by_medians = _by_medians(figures)
    return f"{by_medians} {UNKNOWN_INTERVAL}" if by_medians else "-"


def _by_medians(figures: Both) -> str:
    """Return by how much B's median exceeds A's; empty if a side has none."""
    if not figures.a or figures.b is None:
        return ""
    return f"{round(100 * (figures.b / figures.a - 1), 1) + 0.0:+.1f} %"


def launch_counts(a: int, b: int) -> str:
    """Return the number of launches in A and in B as text."""
    return f"{counted(a, 'launch')} each" if a == b else f"{counted(a, 'launch')} in A, {b} in B"


def changed_scopes(diff: KernelDiff) -> list[str]:
    """Return the slower and faster scopes, each with its change."""
    return [
        f"{printable(scope.distinct_name)} {change_words(scope.judged.change)}"
        for scope in diff.every_scope
        if scope.judged and scope.judged.changed and scope.judged.change
    ]


def change_in_cycles(diff: KernelDiff) -> str:
    """Return the change in cycles with records, without its interval if there are too few launches."""
    cycles = diff.recorded.cycles
    if cycles is not None:
        return change_words(cycles)
    estimate = _by_medians(diff.sides.duration_cycles)
    return (
        f"{estimate} {UNKNOWN_INTERVAL}, from {launch_counts(len(diff.sides.a), len(diff.sides.b))}"
        if estimate
        else "unknown"
    )


def change_in_cycles_alone(diff: KernelDiff) -> Change | None:
    """Return a change in cycles that a different clock rate hides from the time; None if there is none."""
    cycles = diff.recorded.cycles
    hidden = (
        diff.launch.verdict is ChangeVerdict.SAME
        and diff.sides.clocks.differ
        and cycles is not None
        and cycles.direction
    )
    return cycles if hidden else None


def faster_by(change: Change) -> str:
    """Return a change as ``1.48 × faster (time -32.3 % [-34.5, -27.9])``."""
    word = "slower" if change.log_ratio > 0 else "faster"
    return f"{factor(math.exp(abs(change.log_ratio)))} {word} (time {change_words(change)})"


def _changed(diff: KernelDiff, change: Change) -> str:
    return f"B is {faster_by(change)}{cause(diff, change)}; {_times(diff)}{_untested_clock(diff, change)}"


def _untested_clock(diff: KernelDiff, change: Change) -> str:
    """Return a note if the clock may explain the whole ``change``, but there are too few launches to test it."""
    cycles = diff.sides.duration_cycles
    if not diff.sides.clocks.differ or diff.recorded.cycles is not None or not cycles.a or not cycles.b:
        return ""
    if (cycles.b - cycles.a) * change.log_ratio > 0:
        return ""
    return f". But the clock rate differs ({diff.sides.clocks}): in cycles the change is {change_in_cycles(diff)}"


def _same(diff: KernelDiff, change: Change) -> str:
    detectable = f"a change of {rounded_error(change.detectable_percent)} % would be detected"
    text = f"no difference: {change_words(change)}, where {detectable}; {_times(diff)}"
    if cycles := change_in_cycles_alone(diff):
        text += f". But the clock rate differs ({diff.sides.clocks}): in cycles the change is {change_words(cycles)}"
    return text + _changes_within(diff)


def _clock(diff: KernelDiff, change: Change) -> str:
    cycles = diff.launch.cycles
    return (
        f"only the clock differs ({diff.sides.clocks}): B is {faster_by(change)}, but in cycles the change is "
        f"{change_words(cycles) if cycles else 'unknown'}; {_times(diff)}{_changes_within(diff)}"
    )


def _changes_within(diff: KernelDiff) -> str:
    """Return the changes within a launch that itself did not change."""
    changed = changed_scopes(diff)
    return f". But {counted(len(changed), 'scope')} changed: {listed(changed, _MAX_NAMED)}" if changed else ""


_SENTENCES: dict[ChangeVerdict, Callable[[KernelDiff, Change], str]] = {
    ChangeVerdict.SLOWER: _changed,
    ChangeVerdict.FASTER: _changed,
    ChangeVerdict.SAME: _same,
    ChangeVerdict.CLOCK: _clock,
}


def _times(diff: KernelDiff) -> str:
    return clean_times(diff) if diff.by_clean_times else spans(diff)


def clean_times(diff: KernelDiff) -> str:
    """Return the run times without records of both sides."""
    by_events = " (CUDA events)" if has_launching(diff.a, diff.b) else ""
    return f"{_medians('run time', diff.clean_ns, diff.clean_launches)} without records{by_events}"


def spans(diff: KernelDiff) -> str:
    """Return the spans with records of both sides."""
    return f"{_medians('span', diff.sides.duration_ns, (len(diff.sides.a), len(diff.sides.b)))} with records"


def _medians(what: str, times_ns: Both, launches: tuple[int, int]) -> str:
    median = "median " if max(launches) > 1 else ""
    return f"{median}{what} {before_and_after(short_time(times_ns.a), short_time(times_ns.b))}"


def first_sentence(diff: CaptureDiff) -> str:
    """Return the answer for all kernels together."""
    if len(diff.kernels) == 1:
        return kernel_sentence(diff.kernels[0])
    judged = [kernel for kernel in diff.kernels if kernel.launch.verdict is not ChangeVerdict.UNKNOWN]
    if not judged:
        remedies = dict.fromkeys(remedy for kernel in diff.kernels for remedy in why_cannot_tell(kernel).remedies)
        answer = f"cannot tell for any of {len(diff.kernels)} {_noun(diff.kernels)}s"
        return f"{answer}: {', or '.join(remedies)}" if remedies else answer
    unknown = len(diff.kernels) - len(judged)
    noun = _noun(diff.kernels)
    unjudged = [f"cannot tell for {counted(unknown, noun)}"] if unknown else []
    return "; ".join([*_answers(judged, f"{len(diff.kernels)} {noun}s"), *_reservations(judged), *unjudged])


def _noun(kernels: Sequence[KernelDiff]) -> str:
    if kernels[0].b.rank is None:
        return "kernel"
    return "rank" if len({kernel.b.rank for kernel in kernels}) == len(kernels) else "rank's kernel"


def _answers(judged: Sequence[KernelDiff], all_of_them: str) -> Iterator[str]:
    """Yield the answers for ``judged``, the kernels with a verdict, of ``all_of_them``, such as ``3 kernels``."""
    changed = [kernel for kernel in judged if kernel.launch.changed]
    by_clock = [kernel for kernel in judged if kernel.launch.verdict is ChangeVerdict.CLOCK]
    if changed:
        yield f"{len(changed)} of {all_of_them} changed: {_by_how_much(changed)}"
    if by_clock:
        yield f"only the clock differs in {len(by_clock)} of {all_of_them}: {_by_how_much(by_clock)}"
    if not changed and not by_clock:
        yield f"no difference in {len(judged)} of {all_of_them}"


def _reservations(judged: Sequence[KernelDiff]) -> Iterator[str]:
    """Yield changes that the kernels' launches as a whole do not show."""
    in_cycles = [(kernel, change_in_cycles_alone(kernel)) for kernel in judged]
    hidden = [f"{_name(kernel)} {change_words(change)}" for kernel, change in in_cycles if change]
    if hidden:
        yield f"but the clock rate differs: in cycles the change is {listed(hidden, _MAX_NAMED)}"
    if inside := [_name(kernel) for kernel in judged if not kernel.launch.changed and changed_scopes(kernel)]:
        yield f"but scopes changed in {listed(inside, _MAX_NAMED)}"
    if resized := [_name(kernel) for kernel in judged if kernel.a.grid != kernel.b.grid]:
        yield f"but the grid, and with it the work, differs in {listed(resized, _MAX_NAMED)}"


def _by_how_much(kernels: Sequence[KernelDiff]) -> str:
    changes = [f"{_name(kernel)} {faster_by(kernel.launch.change)}" for kernel in kernels if kernel.launch.change]
    return listed(changes, _MAX_NAMED)


def _name(kernel: KernelDiff) -> str:
    return printable(kernel.b.title)
