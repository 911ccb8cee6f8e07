"""The first line: the answer for all kernels together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kprof_inject.printable import printable
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff
from kprof_inject.report.diff.untold import why_untold
from kprof_inject.report.diff.verdict import Verdict, change_words
from kprof_inject.report.diff.wording import change_in_cycles_alone, changed_scopes, faster_by, kernel_sentence, listed


def first_sentence(diff: CaptureDiff) -> str:
    """The answer: what is different."""
    if len(diff.kernels) == 1:
        return kernel_sentence(diff.kernels[0])
    told = [kernel for kernel in diff.kernels if kernel.launch.verdict is not Verdict.UNKNOWN]
    if not told:
        remedies = dict.fromkeys(remedy for kernel in diff.kernels for remedy in why_untold(kernel).remedies)
        return f"cannot tell of any of the {len(diff.kernels)} kernels: {', or '.join(remedies)}"
    unknown = len(diff.kernels) - len(told)
    untold = [f"cannot tell of {unknown}"] if unknown else []
    return "; ".join([*_answers(told, len(diff.kernels)), *_reservations(told), *untold])


def _answers(told: Sequence[KernelDiff], count: int) -> Iterator[str]:
    """What is said of the launches of ``told``, of ``count`` kernels in all."""
    changed = [kernel for kernel in told if kernel.launch.changed]
    by_clock = [kernel for kernel in told if kernel.launch.verdict is Verdict.CLOCK]
    if changed:
        yield f"{len(changed)} of {count} kernels changed: {_by_how_much(changed)}"
    if by_clock:
        yield f"no difference but the clock's in {len(by_clock)} of {count} kernels: {_by_how_much(by_clock)}"
    if not changed and not by_clock:
        yield f"no difference in {len(told)} of {count} kernels"


def _reservations(told: Sequence[KernelDiff]) -> Iterator[str]:
    """What their launches as a whole do not show."""
    in_cycles = [(kernel, change_in_cycles_alone(kernel)) for kernel in told]
    hidden = [f"{_name(kernel)} {change_words(change)}" for kernel, change in in_cycles if change]
    if hidden:
        yield f"but the clock ran at another rate: in cycles the change is {listed(hidden)}"
    if inside := [_name(kernel) for kernel in told if not kernel.launch.changed and changed_scopes(kernel)]:
        yield f"but scopes changed in {listed(inside)}"
    if resized := [_name(kernel) for kernel in told if kernel.a.grid != kernel.b.grid]:
        yield f"but the grid, and with it the work, is another in {listed(resized)}"


def _by_how_much(kernels: Sequence[KernelDiff]) -> str:
    return listed([f"{_name(kernel)} {faster_by(kernel.launch.change)}" for kernel in kernels if kernel.launch.change])


def _name(kernel: KernelDiff) -> str:
    return printable(kernel.b.kernel.name)
