"""What is known of a kernel's loops: whether it has any, which have others in them, and which were not recorded."""

from __future__ import annotations

import re

from kprof_inject.capture.scopes import ScopeInfo, ScopeTable
from kprof_inject.report.findings.finding import Unjudged
from kprof_inject.report.kernel_files import ttgir_of
from kprof_inject.timeline.statistics.phases import LOOPS
from kprof_inject.timeline.timeline import Timeline

_LOOP_OPERATIONS = ("scf.for", "scf.while")
_NUMBERED = re.compile(r"(?:loop|iter)\[(\d+(?:\.\d+)*)\]")


def has_no_loop(timeline: Timeline) -> bool:
    """Whether the kernel's text proves that it has none: rules on loops have nothing to judge then."""
    text = "" if _recorded(timeline.table, *LOOPS) else ttgir_of(timeline.launch.kernel)
    return bool(text) and not any(operation in text for operation in _LOOP_OPERATIONS)


def unrecorded_loops(table: ScopeTable) -> Unjudged | None:
    """Of a kernel with loops, that none was recorded."""
    return None if _recorded(table, *LOOPS) else Unjudged("no loop was recorded", "add --at loop --at iter")


def unrecorded_iterations(table: ScopeTable) -> Unjudged | None:
    """Of a kernel with loops, that no iteration was recorded."""
    return None if _recorded(table, "iter") else Unjudged("no iteration was recorded", "add --at iter")


def _recorded(table: ScopeTable, *kinds: str) -> bool:
    return any(scope.kind in kinds for scope in table.scopes)


def loops_around(table: ScopeTable) -> frozenset[int]:
    """The loops and iterations in which there is another of these."""
    found: set[int] = set()
    for scope in table.scopes:
        around = scope.parent if scope.kind in LOOPS else -1
        while around >= 0:
            if table.scopes[around].kind in LOOPS:
                found.add(around)
            around = table.scopes[around].parent
    return frozenset(found)


def unrecorded_before(table: ScopeTable, index: int) -> str | None:
    """A loop that stands before the one with this index and was not recorded; None if none is known. Loops are numbered
    in the order of the text: before ``loop[1]`` there is a ``loop[0]``, and behind it there may be more."""
    recorded = {_path(scope) for scope in table.scopes}
    path = _path(table.scopes[index])
    for depth, number in enumerate(path):
        for earlier in range(number):
            if (*path[:depth], earlier) not in recorded:
                return f"loop[{'.'.join(map(str, (*path[:depth], earlier)))}]"
    return None


def _path(scope: ScopeInfo) -> tuple[int, ...]:
    """The numbers of a loop and of those around it, from outside; empty if they are not known."""
    numbers = _NUMBERED.fullmatch(scope.label or scope.name)
    return tuple(map(int, numbers[1].split("."))) if numbers else ()
