"""Changes and verdicts in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kprof_inject.errors import printable
from kprof_inject.quantities import before_and_after, counted, factor, listed, percent, short_time, time_text
from kprof_inject.report.diff.change_verdicts import (
    ONE_SIDED,
    UNKNOWN_INTERVAL,
    Both,
    ChangeVerdict,
    Judged,
    change_words,
)
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff, ScopeChange
from kprof_inject.report.diff.runs import LaunchFigures, grid_text, has_launching
from kprof_inject.timeline.comparison import MIN_LAUNCHES, Change, rounded_error
from kprof_inject.timeline.idle import IdleSms
from kprof_inject.timeline.waves import Waves

MORE_LAUNCHES = "capture more with --launches all or 0:20, from a program that launches the kernel that often"
_MORE_CAPTURES = "give more captures of each side (--more-a, --more-b)"
_MORE_WORK = "give each launch more work"

_MANY_LAUNCHES = 20
"""Whoever has as many has done what ``MORE_LAUNCHES`` asks for."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """Why it cannot be told whether a launch changed, and what would help."""

    reason: str
    """It follows the launch's times, and begins with what parts it from them."""
    remedies: tuple[str, ...]
    """Empty if nothing would help."""

    def __str__(self) -> str:
        return "; ".join([self.reason, *([", or ".join(self.remedies)] if self.remedies else [])])


def why_cannot_tell(diff: KernelDiff) -> CannotTell:
    if took_no_time(diff):
        return CannotTell(f": {_too_short(diff)}", (_MORE_WORK,))
    change = diff.launch.change
    if change is None:
        reason = f", but from {_launches(diff)}, and it takes {MIN_LAUNCHES} on each side"
        return CannotTell(reason, more_launches(diff)[:1])
    return CannotTell(f", {change_words(change)}: launches and processes vary too much", more_launches(diff))


def more_launches(diff: KernelDiff) -> tuple[str, ...]:
    """How to have more launches to compare, the best way first; empty if more would not tell anything."""
    if diff.is_of_one_capture:
        return ()
    if diff.a.is_of_buffer or diff.b.is_of_buffer:
        return (_MORE_CAPTURES,)
    many = min(len(runs.timelines) for runs in (diff.a, diff.b)) >= _MANY_LAUNCHES
    return (_MORE_CAPTURES,) if many else (MORE_LAUNCHES, _MORE_CAPTURES)


def took_no_time(diff: KernelDiff) -> bool:
    """Whether a launch with records did, by its timer: then its time has no ratio to another."""
    return any(not launch.duration_ns for launch in diff.sides.launches)


def _too_short(diff: KernelDiff) -> str:
    launches = diff.sides.launches
    short = sum(not launch.duration_ns for launch in launches)
    step_ns = max(launch.timer_step_ns for launch in launches)
    by_timer = f", by a timer with {time_text(step_ns)} steps" if step_ns else ""
    return f"{short} of {counted(len(launches), 'launch')} took 0 ns{by_timer}"


def _launches(diff: KernelDiff) -> str:
    a, b = len(diff.sides.a), len(diff.sides.b)
    return "one launch each" if a == b == 1 else f"{counted(a, 'launch')} in A and {counted(b, 'launch')} in B"


_ALL = 0.95
_MOST = 0.5
_MUCH = 0.25
_LEAST_BY_SCOPES, _MOST_BY_SCOPES = 0.5, 1.2
"""Scopes that explain less of a change, or more, are not what it comes of, or not alone."""

_CHANGED = "→"
_TOLD = "occupancy"  # by the driver: a source of the slots

_ONE_SIDED = {ChangeVerdict.SLOWER: ChangeVerdict.NEW, ChangeVerdict.FASTER: ChangeVerdict.GONE}


def cause(diff: KernelDiff, change: Change) -> str:
    """What the launch's ``change`` comes of: its scopes, or how its CTAs run beside each other. Begins with a colon; is
    empty if nothing can be told."""
    alone = diff.by_scopes_percent
    if alone is None:
        return ""
    if _accounts(alone, change):
        return _by_scope(diff)
    word = "slower" if alone > 0 else "faster"
    return f": by its scopes alone it would be {abs(alone):.1f} % {word}{_beside_scopes(diff, change)}"


def _accounts(alone: float, change: Change) -> bool:
    within = change.low_percent <= alone <= change.high_percent
    return within or _LEAST_BY_SCOPES <= alone / change.percent <= _MOST_BY_SCOPES


def _by_scope(diff: KernelDiff) -> str:
    """The scope that explains most of it, if one explains much and changed for sure."""
    verdict = diff.launch.verdict
    known = [
        (scope.explained, scope)
        for scope in diff.every_scope
        if scope.explained is not None and scope.judged and scope.judged.verdict in (verdict, _ONE_SIDED.get(verdict))
    ]
    part, scope = max(known, key=lambda one: one[0], default=(0.0, None))
    if scope is None or part < _MUCH:
        return ""
    how_much = "all" if part >= _ALL else f"most ({percent(part)})" if part >= _MOST else f"{percent(part)}"
    return f": {printable(scope.distinct_name)} ({_how(scope)}) explains {how_much} of it"


def _how(scope: ScopeChange) -> str:
    if scope.judged is None:
        return "-"
    return change_words(scope.judged.change) if scope.judged.change else scope.judged.verdict.value


def _beside_scopes(diff: KernelDiff, change: Change) -> str:
    recorded = diff.recorded.change
    if diff.by_clean_times and recorded is not None and not _accounts(recorded.percent, change):
        return f"; with records the launch's change is {change_words(recorded)}"
    at_once = diff.sides.both(_at_once)
    if not (at_once.a and at_once.b and diff.duration_ns.a and diff.duration_ns.b):
        return ""
    counts = before_and_after(f"{at_once.a:.1f}", f"{at_once.b:.1f}")
    is_little = abs(math.log(at_once.a / at_once.b)) < _MOST * abs(math.log(diff.duration_ns.b / diff.duration_ns.a))
    if is_little or _CHANGED not in counts:
        return ", and the rest is outside these scopes"
    takes = diff.sides.both(lambda launch: launch.cta_ns / max(launch.ctas, 1))
    return ", ".join(
        [
            f": a CTA takes {before_and_after(short_time(takes.a), short_time(takes.b))}",
            f"but {counts} CTAs run at once on average",
            *_why_at_once(diff),
        ]
    )


def _why_at_once(diff: KernelDiff) -> Iterator[str]:
    """What is known of it: SMs, the room on each and waves, or else when SMs have no CTA."""
    told = {
        "on {} SMs": _of_waves(diff, lambda waves: waves.sms),
        "with room for {} on each": _of_waves(diff, lambda waves: _if_told(waves, waves.slots_per_sm)),
        "in {} waves": _of_waves(diff, lambda waves: _if_told(waves, waves.waves)),
    }
    differ = [
        text.format(f"{both.a:g} → {both.b:g}")
        for text, both in told.items()
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
            yield f"and the first SM runs out of work {times} before the end"


def _if_told(waves: Waves, value: float) -> float | None:
    """Of how many CTAs there is room for: no more than were seen at once may be fewer."""
    return value if waves.slots_source == _TOLD else None


def _at_once(launch: LaunchFigures) -> float:
    return launch.cta_ns / max(launch.duration_ns, 1)


def _why_idle(diff: KernelDiff) -> str:
    """Where SMs have no CTA before their first or between two, and that changed more than the tail; empty otherwise."""
    told = {
        "and SMs wait for their first CTA for {} of the launch": _of_idle(diff, lambda idle: idle.before_share),
        "and SMs have no CTA between two for {} of the launch": _of_idle(diff, lambda idle: idle.between_share),
    }
    after = _of_idle(diff, lambda idle: idle.after_share)
    text, most = max(told.items(), key=lambda one: _moved(one[1]))
    if most.a is None or most.b is None or _moved(most) <= max(_moved(after), _LEAST_IDLE):
        return ""
    return text.format(before_and_after(percent(most.a), percent(most.b)))


def _moved(both: Both) -> float:
    return 0.0 if both.a is None or both.b is None else abs(both.b - both.a)


def _of_idle(diff: KernelDiff, value: Callable[[IdleSms], float]) -> Both:
    return diff.sides.both(lambda launch: None if launch.idle is None else value(launch.idle))


def _of_waves(diff: KernelDiff, value: Callable[[Waves], float | None]) -> Both:
    return diff.sides.both(lambda launch: None if launch.waves is None else value(launch.waves))


_MOST_NAMED = 4
# Of a launch's time: less is no cause of what is told here.
_LEAST_IDLE = 0.01


def kernel_sentence(diff: KernelDiff) -> str:
    """The answer for one kernel."""
    change, sentence = diff.launch.change, _SENTENCES.get(diff.launch.verdict)
    answer = sentence(diff, change) if sentence and change else f"cannot tell: {_times(diff)}{why_cannot_tell(diff)}"
    grids = [grid_text(runs.grid) for runs in (diff.a, diff.b)]
    return (
        answer
        if grids[0] == grids[1]
        else f"{answer}; but the grid, and with it the work, changed: {grids[0]} → {grids[1]}"
    )


def change_text(judged: Judged | None, figures: Both) -> str:
    """A change with its interval, as far as that is known; "-" where there is nothing to compare."""
    if judged is None or judged.verdict in ONE_SIDED:
        return "-"
    if judged.change is not None:
        return change_words(judged.change)
    by_medians = _by_medians(figures)
    return f"{by_medians} {UNKNOWN_INTERVAL}" if by_medians else "-"


def _by_medians(figures: Both) -> str:
    """By how much B's is more; empty if a side has none."""
    if not figures.a or figures.b is None:
        return ""
    return f"{round(100 * (figures.b / figures.a - 1), 1) + 0.0:+.1f} %"


def launch_counts(a: int, b: int) -> str:
    """How many launches there are of A and of B."""
    return "one launch each" if a == b == 1 else f"{a} and {b} launches"


def changed_scopes(diff: KernelDiff) -> list[str]:
    """The scopes that are slower or faster, each with its change."""
    return [
        f"{printable(scope.distinct_name)} {change_words(scope.judged.change)}"
        for scope in diff.every_scope
        if scope.judged and scope.judged.changed and scope.judged.change
    ]


def change_in_cycles(diff: KernelDiff) -> str:
    """That of a launch with records; without its interval where the launches are too few for one."""
    cycles = diff.recorded.cycles
    if cycles is not None:
        return change_words(cycles)
    estimate = _by_medians(diff.sides.duration_cycles)
    return (
        f"{estimate} {UNKNOWN_INTERVAL}, of {launch_counts(len(diff.sides.a), len(diff.sides.b))}"
        if estimate
        else "unknown"
    )


def change_in_cycles_alone(diff: KernelDiff) -> Change | None:
    """That of a launch which takes as long as before because the clock rate differed; None if there is none."""
    cycles = diff.recorded.cycles
    hidden = (
        diff.launch.verdict is ChangeVerdict.SAME and diff.clocks.differ and cycles is not None and cycles.direction
    )
    return cycles if hidden else None


def faster_by(change: Change) -> str:
    """``1.48 × faster (time -32.3 % [-34.5, -27.9])``."""
    word = "slower" if change.log_ratio > 0 else "faster"
    return f"{factor(math.exp(abs(change.log_ratio)))} {word} (time {change_words(change)})"


def _changed(diff: KernelDiff, change: Change) -> str:
    return f"B is {faster_by(change)}{cause(diff, change)}; {_times(diff)}{_untested_clock(diff, change)}"


def _untested_clock(diff: KernelDiff, change: Change) -> str:
    """Where all of the ``change`` may be the clock's, but the launches are too few to tell."""
    cycles = diff.sides.duration_cycles
    if not diff.clocks.differ or diff.recorded.cycles is not None or not cycles.a or not cycles.b:
        return ""
    if (cycles.b - cycles.a) * change.log_ratio > 0:
        return ""
    return f". But the clock rate differed ({diff.clocks}): in cycles the change is {change_in_cycles(diff)}"


def _same(diff: KernelDiff, change: Change) -> str:
    text = f"no difference: {_times(diff)}, {change_words(change)}; a change of {_smallest(change)} would have shown"
    if cycles := change_in_cycles_alone(diff):
        text += f". But the clock rate differed ({diff.clocks}): in cycles the change is {change_words(cycles)}"
    return text + _beside_launch(diff)


def _clock(diff: KernelDiff, change: Change) -> str:
    cycles = diff.launch.cycles
    return (
        f"no difference except in the clock: B is {faster_by(change)} ({_times(diff)}), clock {diff.clocks}: "
        f"in cycles the change is {change_words(cycles) if cycles else 'unknown'}{_beside_launch(diff)}"
    )


def _beside_launch(diff: KernelDiff) -> str:
    """What changed in it, of a launch that did not itself."""
    changed = changed_scopes(diff)
    return f". But {counted(len(changed), 'scope')} changed: {listed(changed, _MOST_NAMED)}" if changed else ""


_SENTENCES: dict[ChangeVerdict, Callable[[KernelDiff, Change], str]] = {
    ChangeVerdict.SLOWER: _changed,
    ChangeVerdict.FASTER: _changed,
    ChangeVerdict.SAME: _same,
    ChangeVerdict.CLOCK: _clock,
}


def _times(diff: KernelDiff) -> str:
    return f"{clean_times(diff)} without records" if diff.by_clean_times else f"{spans(diff)} with records"


def clean_times(diff: KernelDiff) -> str:
    """Without records."""
    by_events = " by events" if has_launching(diff.a, diff.b) else ""
    return _medians("run time", diff.clean_ns, diff.clean_launches) + by_events


def spans(diff: KernelDiff) -> str:
    """With records."""
    return _medians("span", diff.duration_ns, (len(diff.sides.a), len(diff.sides.b)))


def _medians(what: str, times_ns: Both, launches: tuple[int, int]) -> str:
    median = "median " if max(launches) > 1 else ""
    return f"{median}{what} {time_text(times_ns.a)} → {time_text(times_ns.b)}"


def _smallest(change: Change) -> str:
    return f"{rounded_error(change.detectable_percent)} %"


def first_sentence(diff: CaptureDiff) -> str:
    """The answer for all kernels together: what is different."""
    if len(diff.kernels) == 1:
        return kernel_sentence(diff.kernels[0])
    told = [kernel for kernel in diff.kernels if kernel.launch.verdict is not ChangeVerdict.UNKNOWN]
    if not told:
        remedies = dict.fromkeys(remedy for kernel in diff.kernels for remedy in why_cannot_tell(kernel).remedies)
        answer = f"cannot tell for any of the {len(diff.kernels)} kernels"
        return f"{answer}: {', or '.join(remedies)}" if remedies else answer
    unknown = len(diff.kernels) - len(told)
    untold = [f"cannot tell for {unknown}"] if unknown else []
    return "; ".join([*_answers(told, len(diff.kernels)), *_reservations(told), *untold])


def _answers(told: Sequence[KernelDiff], count: int) -> Iterator[str]:
    """What is said of the launches of ``told``, of ``count`` kernels in all."""
    changed = [kernel for kernel in told if kernel.launch.changed]
    by_clock = [kernel for kernel in told if kernel.launch.verdict is ChangeVerdict.CLOCK]
    if changed:
        yield f"{len(changed)} of {count} kernels changed: {_by_how_much(changed)}"
    if by_clock:
        yield f"no difference except in the clock in {len(by_clock)} of {count} kernels: {_by_how_much(by_clock)}"
    if not changed and not by_clock:
        yield f"no difference in {len(told)} of {count} kernels"


def _reservations(told: Sequence[KernelDiff]) -> Iterator[str]:
    """What their launches as a whole do not show."""
    in_cycles = [(kernel, change_in_cycles_alone(kernel)) for kernel in told]
    hidden = [f"{_name(kernel)} {change_words(change)}" for kernel, change in in_cycles if change]
    if hidden:
        yield f"but the clock rate differed: in cycles the change is {listed(hidden, _MOST_NAMED)}"
    if inside := [_name(kernel) for kernel in told if not kernel.launch.changed and changed_scopes(kernel)]:
        yield f"but scopes changed in {listed(inside, _MOST_NAMED)}"
    if resized := [_name(kernel) for kernel in told if kernel.a.grid != kernel.b.grid]:
        yield f"but the grid, and with it the work, differs in {listed(resized, _MOST_NAMED)}"


def _by_how_much(kernels: Sequence[KernelDiff]) -> str:
    changes = [f"{_name(kernel)} {faster_by(kernel.launch.change)}" for kernel in kernels if kernel.launch.change]
    return listed(changes, _MOST_NAMED)


def _name(kernel: KernelDiff) -> str:
    return printable(kernel.b.kernel.name)
