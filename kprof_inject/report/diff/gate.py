"""A comparison as a gate for CI: report what is slower by more than a limit, or might be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kprof_inject.errors import KprofError, Position, printable
from kprof_inject.report.diff.change_verdicts import ChangeVerdict, Judged, change_words
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff
from kprof_inject.report.diff.runs import grid_text
from kprof_inject.timeline.choice import matches_scope

_NUMBER = re.compile(r"\s*(\d{1,6}(?:\.\d{0,9})?|\.\d{1,9})\s*(%?)\s*")


def parse_limit(text: str) -> float:
    """Return the limit that ``5%`` or ``0.05`` means, as a fraction of A's time.

    Raises a usage error for anything else.
    """
    read = _NUMBER.fullmatch(text)
    if read is None:
        raise _unreadable(text, "write a percentage, 5%, or a fraction, 0.05")
    value = float(read[1])
    if read[2]:
        return value / 100
    if value >= 1:
        raise _unreadable(text, f"write {read[1]}% or {value / 100:g}")
    return value


def crossings(diff: CaptureDiff, limit: float, globs: Sequence[str]) -> Iterator[str]:
    """Yield a line for each launch, and each scope matched by one of ``globs``, that does not pass.

    It fails if it is certainly slower by more than ``limit``, if it is new in B, so that A has nothing to compare, if
    it is in A alone, or if the verdict is unknown.
    """
    for kernel in diff.kernels:
        name = printable(kernel.b.title)
        yield from _crossing(name, kernel.launch, kernel, limit)
        for scope in kernel.scopes if globs else ():
            if scope.judged is not None:
                yield from _crossing(f"{printable(scope.distinct_name)} of {name}", scope.judged, kernel, limit)
        for side, unmatched in (("A", kernel.only_a), ("B", kernel.only_b)):
            for item in unmatched:
                if any(matches_scope(item.scope.name, glob) for glob in globs):
                    yield _unknown(f"{printable(item.scope.distinct_name)} of {name}", limit, f": only {side} has it")
    for runs in diff.only_a:
        yield _unknown(printable(runs.title), limit, f": only A ran it with grid {grid_text(runs.grid)}")


def _crossing(what: str, judged: Judged, kernel: KernelDiff, limit: float) -> Iterator[str]:
    if judged.verdict is ChangeVerdict.UNKNOWN:
        yield _unknown(what, limit)
    elif judged.verdict is ChangeVerdict.NEW:
        yield f"{what} is new: only B ran it"
    elif judged.verdict is ChangeVerdict.SLOWER and judged.change and _sure_percent(judged, kernel) > 100 * limit:
        yield f"{what} is slower by more than {100 * limit:g} %: {change_words(judged.change)}"


def _unknown(what: str, limit: float, why: str = "") -> str:
    return f"cannot tell whether {what} is slower by more than {100 * limit:g} %{why}"


def _sure_percent(judged: Judged, kernel: KernelDiff) -> float:
    """Return the lower bound of the slowdown in per cent; if the clocks differ, of that in cycles too."""
    changes = (judged.change, judged.cycles if kernel.sides.clocks.differ else None)
    return min((change.low_percent for change in changes if change is not None), default=0.0)


def _unreadable(text: str, hint: str) -> KprofError:
    return KprofError(
        f"cannot read the limit {text!r}", where=Position("--fail-above", 1, 1, text), hint=hint, exit_code=2
    )
