"""Who comes last where ranks wait for each other, on both sides of a comparison of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.scopes import distinct_names
from kprof_inject.errors import printable
from kprof_inject.quantities import counted, short_time
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff
from kprof_inject.report.diff.runs import KernelRuns
from kprof_inject.report.rank_notes import last_ranks_of
from kprof_inject.timeline.rank_waits import LastRank

_Scope = tuple[str, str]


class RankChange(Struct, frozen=True):
    """Who comes last in one ``scope`` of a kernel, both named as in B; None on a side where ranks do not wait."""

    kernel: str
    scope: str
    a: LastRank | None
    b: LastRank | None

    @property
    def changed(self) -> bool:
        """True unless both sides have the same last rank, or none."""
        return self.a is None or self.b is None or self.a.last != self.b.last

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON values."""
        return {**json_values(self), "changed": self.changed}


def rank_changes(diff: CaptureDiff) -> list[RankChange]:
    """Return who comes last in each scope where ranks wait, in A's order; empty unless ranks are compared."""
    if not diff.is_by_rank:
        return []
    named_in_b = {a: b for kernel in diff.kernels for a, b in _matched(kernel)}
    found_a = {named_in_b.get(at, at): last for at, last in _lasts([*(one.a for one in diff.kernels), *diff.only_a])}
    found_b = dict(_lasts([*(one.b for one in diff.kernels), *diff.only_b]))
    return [RankChange(*scope, found_a.get(scope), found_b.get(scope)) for scope in found_a | found_b]


def _matched(kernel: KernelDiff) -> Iterator[tuple[_Scope, _Scope]]:
    """Yield the kernel and scope by their names in A and in B."""
    names_a, names_b = (distinct_names(side.timelines[0].table.scopes) for side in (kernel.a, kernel.b))
    for scope in kernel.every_scope:
        a = kernel.a.kernel.name, names_a[scope.index_a]
        yield a, (kernel.b.kernel.name, names_b[scope.index_b])


def _lasts(side: Sequence[KernelRuns]) -> Iterator[tuple[_Scope, LastRank]]:
    for last in last_ranks_of(timeline for runs in side for timeline in runs.timelines):
        yield (last.kernel, last.scope), last


def rank_lines(changes: Sequence[RankChange]) -> Iterator[str]:
    """Yield a line on each scope where ranks wait: who comes last on each side, and whether that changed."""
    for change in changes:
        what = "who comes last changed" if change.changed else "the same rank comes last"
        if not change.changed and change.b is not None and change.b.last is None:
            what = "no rank comes last"
        yield printable(f"{change.kernel}, {change.scope}: {what}: A: {_who(change.a)}; B: {_who(change.b)}")


def _who(last: LastRank | None) -> str:
    if last is None:
        return "ranks do not wait here"
    error = f"± {short_time(last.error_ns)}"
    if last.last is None:
        return f"none by more than the clocks' error ({error})"
    where = f"{last.launches_last} of {counted(last.launches, 'launch')}"
    return f"{last.last} in {where}, by {short_time(last.after_ns)} ({error})"
