"""Whether B is slower by more than is allowed: for CI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kprof_inject.errors import KprofError, Position
from kprof_inject.printable import printable
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff
from kprof_inject.report.diff.verdict import Judged, Verdict

_NUMBER = re.compile(r"\s*(\d{1,6}(?:\.\d{0,9})?|\.\d{1,9})\s*(%?)\s*")


@dataclass(frozen=True, slots=True)
class Crossing:
    """``what`` is slower by more than the limit, or nothing is known of it; ``text`` says how."""

    what: str
    text: str
    known: bool


def parse_limit(text: str) -> float:
    """``5%`` or ``0.05``, as a part of A's time. Raises a usage error for anything else."""
    read = _NUMBER.fullmatch(text)
    if read is None:
        raise _unreadable(text, "write a percentage, 5%, or a part, 0.05")
    value = float(read[1])
    if read[2]:
        return value / 100
    if value >= 1:
        raise _unreadable(text, f"write {read[1]}% or {value / 100:g}")
    return value


def crossings(diff: CaptureDiff, limit: float, *, scopes: bool) -> Iterator[Crossing]:
    """The launches, and with ``scopes`` what was compared in them, that are slower by more than ``limit`` with
    confidence; and those of which nothing can be told, which no gate lets through unseen."""
    for kernel in diff.kernels:
        name = printable(kernel.b.kernel.name)
        yield from _crossing(name, kernel.launch, kernel, limit)
        for scope in kernel.scopes if scopes else ():
            if scope.judged is not None:
                yield from _crossing(f"{printable(scope.name)} of {name}", scope.judged, kernel, limit)


def _crossing(what: str, judged: Judged, kernel: KernelDiff, limit: float) -> Iterator[Crossing]:
    if judged.verdict is Verdict.UNKNOWN:
        yield Crossing(what, f"cannot tell whether {what} is slower by more than {100 * limit:g} %", known=False)
    elif judged.verdict is Verdict.SLOWER and _sure_percent(judged, kernel) > 100 * limit:
        yield Crossing(what, f"{what} is slower by more than {100 * limit:g} %: {judged.change}", known=True)


def _sure_percent(judged: Judged, kernel: KernelDiff) -> float:
    """By how much it is slower at the least; where the clocks differ, in cycles as well."""
    changes = (judged.change, judged.cycles if kernel.clocks.differ else None)
    return min((change.low_percent for change in changes if change is not None), default=0.0)


def _unreadable(text: str, hint: str) -> KprofError:
    return KprofError(
        f"cannot read the limit {text!r}", where=Position("--fail-above", 1, 1, text), hint=hint, exit_code=2
    )
