"""Causes of a launch's change: its scopes and the code in them, how many CTAs run at once, or the clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache

from msgspec import Struct

from kprof_inject.analysis.comparison.matching import NOWHERE, ScopeMatch
from kprof_inject.analysis.comparison.runs import Both, LaunchFigures, LaunchSides
from kprof_inject.analysis.comparison.verdicts import TOTAL, ChangeVerdict, KernelDiff, ScopeChange
from kprof_inject.timeline.comparison import Change
from kprof_inject.timeline.waves import Waves

MIN_EXPLAINED = 0.25  # a scope that explains less of a change is not named as its cause
_MIN_BY_SCOPES, _MAX_BY_SCOPES = 0.5, 1.2  # another part of the change does not come from the scopes alone
_MIN_AT_ONCE = 0.5  # a smaller part of the launch's change is not explained by the number of CTAs at once
_MIN_IDLE = 0.01  # idle shares that change by less of the launch are not the cause
_MANY_LAUNCHES = 20  # with this many launches, ``MORE_LAUNCHES`` has been followed already
_ONE_SIDED = {ChangeVerdict.SLOWER: ChangeVerdict.NEW, ChangeVerdict.FASTER: ChangeVerdict.GONE}


class Explanation(Struct, frozen=True):
    """Part of a launch's change that its scopes explain."""

    percent: float  # change of B's launch, in per cent, if nothing but its scopes had changed
    parts: tuple[float, ...]
    """Part of the launch's change that each match explains by itself, without the matched scopes in it."""


class ScopeGrowth(Struct, frozen=True):
    """Time that a match's scopes took more in B than in A, over all CTAs, in each of ``warps``."""

    ns: float
    warps: frozenset[int]


@lru_cache(maxsize=16)  # each view of a comparison needs it
def explanation_of(diff: KernelDiff) -> Explanation | None:
    """Explain by its scopes the change of a launch, if that is certain and the scopes' changes are known.

    Scopes are timed with records. If the launch's changes with and without records agree within their intervals, the
    parts are those of the change with records.
    """
    change, recorded = diff.launch.change, diff.recorded.change
    duration_ns, cta_ns = diff.sides.duration_ns.a, diff.sides.both(lambda launch: launch.cta_ns).a
    took_ns = diff.compared_ns.a
    if not diff.launch.changed or change is None or not duration_ns or not cta_ns or not took_ns:
        return None
    around, grown = parents_of(diff), list[ScopeGrowth]()
    for scope in diff.unjudged:
        grown_ns = scope.both(TOTAL.time_ns).change
        if scope.basis is not TOTAL or grown_ns is None:
            return None
        warps = (warp for one in scope.sides.launches for warp in one.statistics.warps.ids.tolist())
        grown.append(ScopeGrowth(grown_ns, frozenset(warps)))
    if not grown:
        return None
    # CTAs run in parallel, so a nanosecond of all CTAs' time is a smaller part of the launch, as measured in A.
    explained = explain_change(around, grown, change, 100 * duration_ns / cta_ns / took_ns)
    if recorded is None or not diff.recorded.changed:
        return explained
    if recorded.low_percent > change.high_percent or change.low_percent > recorded.high_percent:
        return explained
    return Explanation(explained.percent, explain_change(around, grown, recorded, 100 / cta_ns).parts)


def explain_change(
    around: Sequence[int], grown: Sequence[ScopeGrowth], change: Change, percent_per_ns: float
) -> Explanation:
    """Explain a launch's ``change`` by its scopes and the match ``around`` each.

    Each nanosecond of all CTAs' time changes the launch by ``percent_per_ns``.
    """
    by_warp: Counter[int] = Counter()
    for growth, outer in zip(grown, around, strict=True):
        if outer == NOWHERE:
            by_warp.update(dict.fromkeys(growth.warps, growth.ns))
    # Warps run in parallel, so the one that explains most of the change counts.
    slowest_ns = change.direction * max((change.direction * ns for ns in by_warp.values()), default=0.0)
    percent = percent_per_ns * slowest_ns
    # A value within the launch's interval may be its whole change.
    whole = percent if change.low_percent <= percent <= change.high_percent else change.percent
    own_ns = _without_inner([growth.ns for growth in grown], around)
    return Explanation(percent, tuple(percent_per_ns * ns / whole for ns in own_ns))


def parents_of(diff: KernelDiff) -> list[int]:
    """Return for each match the number of the innermost match around it in B, or ``NOWHERE``."""
    at = {match.b: number for number, match in enumerate(diff.matching.matches)}
    around = diff.b.kernel.scopes.around
    return [next((at[outer] for outer in around(inner) if outer in at), NOWHERE) for inner in at]


def _without_inner(grown_ns: Sequence[float], around: Sequence[int]) -> list[float]:
    own_ns = list(grown_ns)
    for inner_ns, outer in zip(grown_ns, around, strict=True):
        if outer != NOWHERE:
            own_ns[outer] -= inner_ns
    return own_ns


def explained_by(diff: KernelDiff, scope: ScopeChange) -> float | None:
    """Return a scope's own part of the launch's change, if known."""
    found = explanation_of(diff)
    return found.parts[diff.matching.matches.index(scope.match)] if found else None


@lru_cache(maxsize=16)
def own_cta_changes_ns(diff: KernelDiff) -> Mapping[ScopeMatch, float]:
    """Return the change of each scope's time in a CTA, without the matched scopes in it, if no records are missing."""
    changes_ns = [scope.cta_ns.change for scope in diff.unjudged if scope.basis is TOTAL]
    grown_ns = [change_ns for change_ns in changes_ns if change_ns is not None]
    if len(grown_ns) < len(diff.unjudged):
        return {}
    return dict(zip(diff.matching.matches, _without_inner(grown_ns, parents_of(diff)), strict=True))


def net_cta_change_ns(diff: KernelDiff) -> float | None:
    """Return the change of a warp's time in a CTA, without records; None for partitions, which run in parallel."""
    has_partitions = any(scope.b.partition for scope in diff.unjudged)
    return None if has_partitions else diff.sides.both(lambda launch: launch.net_cta_ns).change


class Place(Enum):
    """Main cause of a launch's change."""

    SCOPES = "scopes"
    SCOPES_BEYOND = "scopes, beyond the change"
    AT_ONCE = "CTAs at once"
    OUTSIDE = "outside of scopes"
    HIDDEN = "hidden by records"  # with records, the launch changed otherwise


def place_of_cause(diff: KernelDiff) -> Place | None:
    """Find the main cause of a launch's change."""
    change, recorded, explanation = diff.launch.change, diff.recorded.change, explanation_of(diff)
    if explanation is None or change is None:
        return None

    def is_whole(percent: float) -> bool:
        is_within = change.low_percent <= percent <= change.high_percent
        return is_within or _MIN_BY_SCOPES <= percent / change.percent <= _MAX_BY_SCOPES

    if is_whole(explanation.percent):
        return Place.SCOPES
    if diff.by_clean_times and recorded is not None and not is_whole(recorded.percent):
        return Place.HIDDEN
    if explanation.percent / change.percent > _MAX_BY_SCOPES:
        return Place.SCOPES_BEYOND
    return Place.AT_ONCE if ctas_at_once(diff) else Place.OUTSIDE


def is_certain(diff: KernelDiff, scope: ScopeChange) -> bool:
    """Return True if a scope certainly changed in the direction of its launch."""
    verdict = diff.launch.verdict
    return scope.judged is not None and scope.judged.verdict in (verdict, _ONE_SIDED.get(verdict))


def largest_scope(diff: KernelDiff) -> ScopeChange | None:
    """Return the scope that explains most of the change, if it explains much and certainly changed."""
    parts = {scope: explained_by(diff, scope) or 0.0 for scope in diff.every_scope if is_certain(diff, scope)}
    best = max(parts, key=lambda scope: parts[scope], default=None)
    return best if best is not None and parts[best] >= MIN_EXPLAINED else None


def ctas_at_once(diff: KernelDiff) -> Both | None:
    """Return the average number of CTAs at once; None if its change is small against the launch's."""
    found, span_ns = diff.sides.both(lambda launch: launch.cta_ns / max(launch.duration_ns, 1)), diff.sides.duration_ns
    if not (found.a and found.b and span_ns.a and span_ns.b) or f"{found.a:.1f}" == f"{found.b:.1f}":
        return None
    is_little = abs(math.log(found.a / found.b)) < _MIN_AT_ONCE * abs(math.log(span_ns.b / span_ns.a))
    return None if is_little else found


def why_at_once(sides: LaunchSides) -> dict[str, Both]:
    """Return the reasons for another number of CTAs at once: SMs, slots and waves, or else idle SMs or the tail."""

    def by_driver(launch: LaunchFigures) -> Waves | None:
        # The number of slots seen at once may be lower than the driver's.
        return launch.waves if launch.waves and launch.waves.slots_source == "occupancy" else None

    counts = {
        "SMs": sides.both(lambda launch: getattr(launch.waves, "sms", None)),
        "slots": sides.both(lambda launch: getattr(by_driver(launch), "slots_per_sm", None)),
        "waves": sides.both(lambda launch: getattr(by_driver(launch), "waves", None)),
    }
    if differ := {what: both for what, both in counts.items() if both.change}:
        return differ
    idle = {
        "before": sides.both(lambda launch: launch.idle.before_share if launch.idle else None),
        "between": sides.both(lambda launch: launch.idle.between_share if launch.idle else None),
        "after": sides.both(lambda launch: launch.idle.after_share if launch.idle else None),
    }
    moved = {what: abs(both.change or 0.0) for what, both in idle.items()}
    most = max(("before", "between"), key=moved.__getitem__)
    if moved[most] > max(moved["after"], _MIN_IDLE):
        return {most: idle[most]}
    return {"tail": sides.both(lambda launch: launch.waves.tail.duration_ns if launch.waves else None)}


def took_no_time(diff: KernelDiff) -> bool:
    """Return True if a launch with records took 0 ns by its timer, and thus has no ratio to another."""
    return any(not launch.duration_ns for launch in diff.sides.launches)


class Remedy(Enum):
    """Remedy for a missing verdict on a launch."""

    MORE_WORK = "give each launch more work"
    MORE_LAUNCHES = "capture more launches (--launches all or 0:20, from a program that launches the kernel that often)"
    MORE_CAPTURES = "give more captures of each side (--more-a, --more-b)"


def remedies(diff: KernelDiff) -> tuple[Remedy, ...]:
    """Return remedies for missing verdicts on the launch or its scopes, best first; empty if the sides are the same."""
    if took_no_time(diff):
        return (Remedy.MORE_WORK,)
    sides = (diff.a.timelines, diff.b.timelines)
    a, b = ({timeline.launch.path.resolve() for timeline in side} for side in sides)
    if a == b:
        return ()
    if min(map(len, sides)) >= _MANY_LAUNCHES or diff.a.is_of_buffer or diff.b.is_of_buffer:
        return (Remedy.MORE_CAPTURES,)
    return (Remedy.MORE_LAUNCHES,) if diff.launch.change is None else (Remedy.MORE_LAUNCHES, Remedy.MORE_CAPTURES)


def hidden_by_clock(diff: KernelDiff) -> Change | None:
    """Return a change in cycles that a different clock rate hides from the time."""
    cycles = diff.recorded.cycles
    is_hidden = diff.launch.verdict is ChangeVerdict.SAME and diff.recorded.other_clock
    return cycles if is_hidden and cycles is not None and cycles.direction else None


def may_be_clock(diff: KernelDiff) -> bool:
    """Return True if the clock may explain the whole change, but there are too few launches to test it."""
    cycles, change = diff.sides.duration_cycles, diff.launch.change
    if change is None or not diff.recorded.other_clock or diff.recorded.cycles is not None:
        return False
    return bool(cycles.a and cycles.b) and (cycles.change or 0.0) * change.log_ratio <= 0


def changed_scopes(diff: KernelDiff) -> list[tuple[ScopeChange, Change]]:
    """Return the slower and faster scopes, with their changes."""
    judged = [(scope, scope.judged) for scope in diff.every_scope if scope.judged is not None]
    return [(scope, one.change) for scope, one in judged if one.changed and one.change is not None]
