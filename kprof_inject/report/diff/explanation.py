"""How much of a launch's change its scopes explain: each by itself, and all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kprof_inject.report.diff.changes import TOTAL, Both, compared_ns, scope_basis
from kprof_inject.report.diff.figures import LaunchFigures
from kprof_inject.report.diff.matching import Match, ScopeIdentity
from kprof_inject.report.diff.verdict import Judged
from kprof_inject.timeline.statistics.comparison import Change

_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Explanation:
    """``percent`` is by how much the launch would take longer in B if nothing but its scopes had changed, and ``parts``
    which part of its change each match explains by itself, without the matched scopes in it."""

    percent: float
    parts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Grown:
    """What the scopes of a match took more in B than in A, over all CTAs in each of these ``warps``."""

    ns: float
    warps: frozenset[int]


def explanation(
    matches: Sequence[Match],
    b: Sequence[ScopeIdentity],
    launches_a: Sequence[LaunchFigures],
    launches_b: Sequence[LaunchFigures],
    launch: Judged,
    took_ns: float | None,
) -> Explanation | None:
    """Of a launch that took ``took_ns`` in A, with records or without. None if it did not change for sure, or what its
    scopes grew by is not known."""
    duration_ns = Both.of(launches_a, launches_b, _duration_ns, _duration_ns).a
    cta_ns = Both.of(launches_a, launches_b, _cta_ns, _cta_ns).a
    grown = [_grown(launches_a, launches_b, match) for match in matches]
    if not launch.changed or launch.change is None or not duration_ns or not cta_ns or not took_ns:
        return None
    # CTAs run beside each other: as many as in A take so much of the launch's time for each ns of all of theirs.
    return explained(matches, b, grown, launch.change, 100 * duration_ns / cta_ns / took_ns)


def explained(
    matches: Sequence[Match],
    b: Sequence[ScopeIdentity],
    grown: Sequence[Grown | None],
    change: Change,
    percent_per_ns: float,
) -> Explanation | None:
    """Of a launch with this ``change``, which all CTAs' time moves by so many per cent for each ns."""
    known = [one for one in grown if one is not None]
    if not known or len(known) < len(grown):
        return None
    at = {match.b: number for number, match in enumerate(matches)}
    around = [at.get(_matched_around(match.b, b, at), _NOWHERE) for match in matches]
    own_ns = [one.ns for one in known]
    for number, outer in enumerate(around):
        if outer != _NOWHERE:
            own_ns[outer] -= known[number].ns
    outermost = [one for one, outer in zip(known, around, strict=True) if outer == _NOWHERE]
    percent = percent_per_ns * _foremost_ns(outermost, change.direction)
    # What the launch's interval holds may be all of its change.
    whole = percent if change.low_percent <= percent <= change.high_percent else change.percent
    return Explanation(percent, tuple(percent_per_ns * ns / whole for ns in own_ns))


def _grown(a: Sequence[LaunchFigures], b: Sequence[LaunchFigures], match: Match) -> Grown | None:
    """None if records are missing."""
    if scope_basis(a, b, match.a, match.b) is not TOTAL:
        return None
    totals = compared_ns(a, b, match.a, match.b, TOTAL)
    if totals.a is None or totals.b is None:
        return None
    warps = [launch.scopes[at].warps for side, at in ((a, match.a), (b, match.b)) for launch in side]
    return Grown(totals.b - totals.a, frozenset().union(*warps))


def _foremost_ns(outermost: Sequence[Grown], direction: int) -> float:
    """What scopes grew by in the warp where that says most of the launch: warps run side by side."""
    by_warp: dict[int, float] = {}
    for one in outermost:
        for warp in one.warps:
            by_warp[warp] = by_warp.get(warp, 0.0) + one.ns
    return direction * max((direction * ns for ns in by_warp.values()), default=0.0)


def _matched_around(index: int, scopes: Sequence[ScopeIdentity], matched: dict[int, int]) -> int:
    """The innermost matched scope around one."""
    parent = scopes[index].parent
    while parent != _NOWHERE and parent not in matched:
        parent = scopes[parent].parent
    return parent


def _duration_ns(launch: LaunchFigures) -> float:
    return float(launch.duration_ns)


def _cta_ns(launch: LaunchFigures) -> float:
    return float(launch.cta_ns)
