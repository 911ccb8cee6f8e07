"""What a launch's change comes of, in words: its scopes, or how its CTAs run beside each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from kprof_inject.printable import printable
from kprof_inject.report.diff.changes import Both
from kprof_inject.report.diff.figures import LaunchFigures
from kprof_inject.report.diff.kernel_diff import KernelDiff, ScopeChange
from kprof_inject.report.diff.verdict import Verdict, change_words
from kprof_inject.report.quantities import percent, short_time
from kprof_inject.timeline.statistics.comparison import Change
from kprof_inject.timeline.statistics.waves import Waves

_ALL = 0.95
_MOST = 0.5
_MUCH = 0.25
_LEAST_BY_SCOPES, _MOST_BY_SCOPES = 0.5, 1.2
"""Scopes that explain less of a change, or more, are not what it comes of, or not alone."""

_TOLD = "occupancy"  # by the driver: a source of the slots

_ONE_SIDED = {Verdict.SLOWER: Verdict.NEW, Verdict.FASTER: Verdict.GONE}


def cause(diff: KernelDiff, change: Change) -> str:
    """Of the launch's ``change``; begins with a colon, and is empty if nothing can be told."""
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
        for scope in diff.scopes
        if scope.explained is not None and scope.judged and scope.judged.verdict in (verdict, _ONE_SIDED.get(verdict))
    ]
    part, scope = max(known, key=lambda one: one[0], default=(0.0, None))
    if scope is None or part < _MUCH:
        return ""
    how_much = "all" if part >= _ALL else f"most ({percent(part)})" if part >= _MOST else f"{percent(part)}"
    return f": {printable(scope.name)} ({_how(scope)}) explains {how_much} of it"


def _how(scope: ScopeChange) -> str:
    if scope.judged is None:
        return "-"
    return change_words(scope.judged.change) if scope.judged.change else scope.judged.verdict.value


def _beside_scopes(diff: KernelDiff, change: Change) -> str:
    recorded = diff.recorded.change
    if diff.by_clean_times and recorded is not None and not _accounts(recorded.percent, change):
        return f", for with records the launch's change is {change_words(recorded)}"
    at_once = _both(diff, _at_once)
    if not (at_once.a and at_once.b and diff.duration_ns.a and diff.duration_ns.b):
        return ""
    if abs(math.log(at_once.a / at_once.b)) < _MOST * abs(math.log(diff.duration_ns.b / diff.duration_ns.a)):
        return ", and the rest of it is what a CTA takes outside of them"
    takes = _both(diff, lambda launch: launch.cta_ns / max(launch.ctas, 1))
    return ", ".join(
        [
            f": a CTA takes {short_time(takes.a)} → {short_time(takes.b)}",
            f"but {at_once.a:.1f} → {at_once.b:.1f} CTAs run at once on average",
            *_why_at_once(diff),
        ]
    )


def _why_at_once(diff: KernelDiff) -> Iterator[str]:
    """What is known of it: SMs, the room on each and waves, or else the tail."""
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
    tail = _of_waves(diff, lambda waves: waves.tail.duration_ns)
    if not differ and tail.a is not None and tail.b is not None:
        yield f"and the first SM is done {short_time(tail.a)} → {short_time(tail.b)} before the end"


def _if_told(waves: Waves, value: float) -> float | None:
    """Of how many CTAs there is room for: no more than were seen at once may be fewer."""
    return value if waves.slots_source == _TOLD else None


def _at_once(launch: LaunchFigures) -> float:
    return launch.cta_ns / max(launch.duration_ns, 1)


def _both(diff: KernelDiff, value: Callable[[LaunchFigures], float | None]) -> Both:
    return Both.of(diff.figures_a, diff.figures_b, value, value)


def _of_waves(diff: KernelDiff, value: Callable[[Waves], float | None]) -> Both:
    return _both(diff, lambda launch: None if launch.waves is None else value(launch.waves))
