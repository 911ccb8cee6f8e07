"""A comparison as a gate for CI: report what is slower by more than a limit, or might be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kprof_inject.analysis.comparison.runs import grid_text
from kprof_inject.analysis.comparison.verdicts import CaptureDiff, ChangeVerdict
from kprof_inject.errors import KprofError, Position, printable
from kprof_inject.report.diff.rows import Row, kernel_row, scope_rows
from kprof_inject.timeline.choice import matches_scope

_NUMBER = re.compile(r"\s*(\d{1,6}(?:\.\d{0,9})?|\.\d{1,9})\s*(%?)\s*")


def parse_limit(text: str) -> float:
    """Return the limit that ``5%`` or ``0.05`` means, as a fraction of A's time.

    Raises a usage error for anything else.
    """
    read = _NUMBER.fullmatch(text)
    value = float(read[1]) if read else 0.0
    if read is None:
        hint = "write a percentage, 5%, or a fraction, 0.05"
    elif read[2]:
        return value / 100
    elif value < 1:
        return value
    else:
        hint = f"write {read[1]}% or {value / 100:g}"
    where = Position("--fail-above", 1, 1, text)
    raise KprofError(f"cannot read the limit {text!r}", where=where, hint=hint, exit_code=2)


def crossings(diff: CaptureDiff, limit: float, globs: Sequence[str]) -> Iterator[str]:
    """Yield a line for each launch, and each scope matched by one of ``globs``, that does not pass.

    It fails if it is certainly slower by more than ``limit``, if it is new in B, so that A has nothing to compare, if
    it is in A alone, or if the verdict is unknown.
    """
    for kernel in diff.kernels:
        name = printable(kernel.b.title)
        yield from _crossing(name, kernel_row(kernel), limit)
        for row in scope_rows(kernel) if globs else ():
            yield from _crossing(f"{printable(row.name)} of {name}", row, limit)
        for side, unmatched in (("A", kernel.matching.only_a), ("B", kernel.matching.only_b)):
            for item in unmatched:
                if any(matches_scope(item.scope.info.name, glob) for glob in globs):
                    yield _unknown(f"{printable(item.scope.distinct_name)} of {name}", limit, f": only {side} has it")
    for runs in diff.only_a:
        yield _unknown(printable(runs.title), limit, f": only A ran it with grid {grid_text(runs.grid)}")


def _crossing(what: str, row: Row, limit: float) -> Iterator[str]:
    judged = row.judged
    if judged is None:
        return
    if judged.verdict is ChangeVerdict.UNKNOWN:
        yield _unknown(what, limit)
    elif judged.verdict is ChangeVerdict.NEW:
        yield f"{what} is new: only B ran it"
    elif judged.verdict is ChangeVerdict.SLOWER and judged.sure_percent > 100 * limit:
        yield f"{what} is slower by more than {100 * limit:g} %: {row.cells['change']}"


def _unknown(what: str, limit: float, why: str = "") -> str:
    return f"cannot tell whether {what} is slower by more than {100 * limit:g} %{why}"
