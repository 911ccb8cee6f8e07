"""Changes and verdicts in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kprof_inject.printable import printable
from kprof_inject.report.diff.cause import cause
from kprof_inject.report.diff.changes import Both
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff
from kprof_inject.report.diff.settings import grid_text
from kprof_inject.report.diff.verdict import ONE_SIDED, Judged, Verdict, change_words
from kprof_inject.report.quantities import counted, time_text
from kprof_inject.timeline.statistics.comparison import Change, rounded_error
from kprof_inject.timeline.statistics.within_process import MIN_LAUNCHES

_MOST_NAMED = 4

MORE_LAUNCHES = "capture more of them with --launches all, or 0:20, from a program that launches the kernel as often"


def first_sentence(diff: CaptureDiff) -> str:
    """The answer: what is different, of all kernels together."""
    if len(diff.kernels) == 1:
        return kernel_sentence(diff.kernels[0])
    changed = [(kernel, kernel.launch.change) for kernel in diff.kernels if kernel.launch.changed]
    unknown = sum(kernel.launch.verdict is Verdict.UNKNOWN for kernel in diff.kernels)
    count = len(diff.kernels)
    if unknown == count:
        return f"cannot tell of any of the {count} kernels: {MORE_LAUNCHES}"
    untold = f"; cannot tell of {unknown}" if unknown else ""
    if not changed:
        return f"no difference in {count - unknown} of {count} kernels{untold}"
    named = [f"{printable(kernel.b.kernel.name)} {_faster_by(change)}" for kernel, change in changed if change]
    return f"{len(changed)} of {count} kernels changed: {_listed(named)}{untold}"


def kernel_sentence(diff: KernelDiff) -> str:
    """The answer for one kernel."""
    change = diff.launch.change
    answer = _unknown(diff) if change is None else _SENTENCES[diff.launch.verdict](diff, change)
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


def _changed(diff: KernelDiff, change: Change) -> str:
    return f"B is {_faster_by(change)}{cause(diff, change)}; {_times(diff)}"


def _same(diff: KernelDiff, change: Change) -> str:
    text = f"no difference: {_times(diff)}, {change_words(change)}; a change of {_smallest(change)} would have shown"
    cycles = diff.recorded.cycles
    if diff.clocks.differ and cycles is not None and cycles.direction:
        text += f". But the clock ran at another rate ({diff.clocks}): in cycles the change is {change_words(cycles)}"
    changed = [
        f"{printable(scope.name)} {change_words(scope.judged.change)}"
        for scope in diff.scopes
        if scope.judged and scope.judged.changed and scope.judged.change
    ]
    return f"{text}. But {counted(len(changed), 'scope')} changed: {_listed(changed)}" if changed else text


def _clock(diff: KernelDiff, change: Change) -> str:
    cycles = diff.launch.cycles
    return (
        f"no difference but the clock's: B is {_faster_by(change)} ({_times(diff)}), clock {diff.clocks}: "
        f"in cycles the change is {change_words(cycles) if cycles else 'unknown'}"
    )


def _scattered(diff: KernelDiff, change: Change) -> str:
    return (
        f"cannot tell: {_times(diff)}, {change_words(change)}: launches, and processes, differ too much by themselves; "
        f"{MORE_LAUNCHES}, or give more captures of each side (--more-a, --more-b)"
    )


def _unknown(diff: KernelDiff) -> str:
    return (
        f"cannot tell: {_times(diff)}, but of {_launches(diff)}, and it takes {MIN_LAUNCHES} on each side: "
        f"{MORE_LAUNCHES}"
    )


_SENTENCES: dict[Verdict, Callable[[KernelDiff, Change], str]] = {
    Verdict.SLOWER: _changed,
    Verdict.FASTER: _changed,
    Verdict.SAME: _same,
    Verdict.CLOCK: _clock,
    Verdict.UNKNOWN: _scattered,
}


def _launches(diff: KernelDiff) -> str:
    a, b = len(diff.figures_a), len(diff.figures_b)
    return "one launch each" if a == b == 1 else f"{counted(a, 'launch')} in A and {counted(b, 'launch')} in B"


def _times(diff: KernelDiff) -> str:
    figures, how = (diff.clean_ns, "without records") if diff.by_clean_times else (diff.duration_ns, "with records")
    return f"{time_text(figures.a)} → {time_text(figures.b)} {how}"


def _faster_by(change: Change) -> str:
    word = "slower" if change.log_ratio > 0 else "faster"
    return f"{abs(change.percent):.1f} % ± {rounded_error(change.error_percent)} {word}"


def _smallest(change: Change) -> str:
    return f"{rounded_error(change.detectable_percent)} %"


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    return ", ".join(words[:_MOST_NAMED]) + more
