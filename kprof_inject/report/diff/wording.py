"""Changes and verdicts in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kprof_inject.printable import printable
from kprof_inject.report.diff.cause import cause
from kprof_inject.report.diff.changes import Both
from kprof_inject.report.diff.kernel_diff import KernelDiff
from kprof_inject.report.diff.settings import grid_text
from kprof_inject.report.diff.untold import why_untold
from kprof_inject.report.diff.verdict import ONE_SIDED, Judged, Verdict, change_words
from kprof_inject.report.quantities import counted, time_text
from kprof_inject.timeline.statistics.comparison import Change, rounded_error

_MOST_NAMED = 4


def kernel_sentence(diff: KernelDiff) -> str:
    """The answer for one kernel."""
    change, sentence = diff.launch.change, _SENTENCES.get(diff.launch.verdict)
    answer = sentence(diff, change) if sentence and change else f"cannot tell: {_times(diff)}{why_untold(diff)}"
    grids = [grid_text(runs.grid) for runs in (diff.a, diff.b)]
    return (
        answer if grids[0] == grids[1] else f"{answer}; but the grid, and with it the work, is {grids[0]} → {grids[1]}"
    )


def change_text(judged: Judged | None, figures: Both) -> str:
    """A change with its interval, as far as that is known; "-" where there is nothing to compare."""
    if judged is None or judged.verdict in ONE_SIDED:
        return "-"
    if judged.change is not None:
        return change_words(judged.change)
    if not figures.a or figures.b is None:
        return "-"
    return f"{round(100 * (figures.b / figures.a - 1), 1) + 0.0:+.1f} % ± ?"


def launch_counts(a: int, b: int) -> str:
    """How many launches there are of A and of B."""
    return "one launch each" if a == b == 1 else f"{a} and {b} launches"


def changed_scopes(diff: KernelDiff) -> list[str]:
    """The scopes that are slower or faster, each with its change."""
    return [
        f"{printable(scope.name)} {change_words(scope.judged.change)}"
        for scope in diff.scopes
        if scope.judged and scope.judged.changed and scope.judged.change
    ]


def change_in_cycles_alone(diff: KernelDiff) -> Change | None:
    """That of a launch which takes as long as before because the clock ran at another rate; None if there is none."""
    cycles = diff.recorded.cycles
    hidden = diff.launch.verdict is Verdict.SAME and diff.clocks.differ and cycles is not None and cycles.direction
    return cycles if hidden else None


def faster_by(change: Change) -> str:
    """``2.5 % ± 0.1 slower``."""
    word = "slower" if change.log_ratio > 0 else "faster"
    return f"{abs(change.percent):.1f} % ± {rounded_error(change.error_percent)} {word}"


def listed(words: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    return ", ".join(words[:_MOST_NAMED]) + more


def _changed(diff: KernelDiff, change: Change) -> str:
    return f"B is {faster_by(change)}{cause(diff, change)}; {_times(diff)}"


def _same(diff: KernelDiff, change: Change) -> str:
    text = f"no difference: {_times(diff)}, {change_words(change)}; a change of {_smallest(change)} would have shown"
    if cycles := change_in_cycles_alone(diff):
        text += f". But the clock ran at another rate ({diff.clocks}): in cycles the change is {change_words(cycles)}"
    return text + _beside_launch(diff)


def _clock(diff: KernelDiff, change: Change) -> str:
    cycles = diff.launch.cycles
    return (
        f"no difference but the clock's: B is {faster_by(change)} ({_times(diff)}), clock {diff.clocks}: "
        f"in cycles the change is {change_words(cycles) if cycles else 'unknown'}{_beside_launch(diff)}"
    )


def _beside_launch(diff: KernelDiff) -> str:
    """What changed in it, of a launch that did not itself."""
    changed = changed_scopes(diff)
    return f". But {counted(len(changed), 'scope')} changed: {listed(changed)}" if changed else ""


_SENTENCES: dict[Verdict, Callable[[KernelDiff, Change], str]] = {
    Verdict.SLOWER: _changed,
    Verdict.FASTER: _changed,
    Verdict.SAME: _same,
    Verdict.CLOCK: _clock,
}


def _times(diff: KernelDiff) -> str:
    if diff.by_clean_times:
        return f"run time {time_text(diff.clean_ns.a)} → {time_text(diff.clean_ns.b)} without records"
    return f"span {time_text(diff.duration_ns.a)} → {time_text(diff.duration_ns.b)} with records"


def _smallest(change: Change) -> str:
    return f"{rounded_error(change.detectable_percent)} %"
