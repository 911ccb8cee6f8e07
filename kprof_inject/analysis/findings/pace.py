"""Places of a kernel that set its pace, and places with slack, from an experiment with delays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kprof_inject.analysis.causal.slopes import PlaceSlope
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.capture.scopes import Scope, ScopeKind
from kprof_inject.quantities import listed
from kprof_inject.select.parts import COPIES, WAIT, part_of

_MAX_NAMES = 4  # named in one sentence


def pace(evidence: Evidence) -> Iterator[Finding]:
    """Yield the critical places; nothing if there are none, because then the kernel waits for what all CTAs share."""
    slopes = evidence.slopes
    if slopes is None:
        return
    critical = [place for place in slopes.ranked if place.is_critical]
    if not critical:
        return
    hidden = [place for place in slopes.places if place.is_hidden]
    first = critical[0]
    slope = first.response.slope.value if first.response else 0.0
    names = listed([place.name for place in critical], _MAX_NAMES)
    sets, there = ("sets", "there") if len(critical) == 1 else ("set", f"in {first.name}")
    measured = [place for place in (*critical, *hidden) if place.response]
    slacks = [f"{slack:.0f} cycles in {place.name}" for place in hidden if (slack := place.spare_cycles)]
    spare = f"; slack: {listed(slacks, _MAX_NAMES)}" if slacks else ""
    yield Finding(
        rule="pace",
        scope=first.scope.name,
        index=first.index,
        share=min(sum(map(_worth, critical)), 1.0),
        text=f"{names} {sets} the pace: each cycle saved {there} makes the kernel {slope:.2f} cycles faster{spare}",
        advice=_advice(slopes.places, critical),
        figures={f"slope of {one.name}": round(one.response.slope.value, 3) for one in measured if one.response},
    )


def _worth(place: PlaceSlope) -> float:
    """Return an upper bound of the part of the kernel's time that can be gained there."""
    slope = place.response.slope.value if place.response else 0.0
    return min(slope, 1.0) * (place.time_share or 0.0)


def _advice(places: Sequence[PlaceSlope], critical: Sequence[PlaceSlope]) -> str:
    """Return what to do about the critical places.

    Code that issues copies should start earlier, not get shorter, and a wait is as long as what it waits for.
    """
    shortened = [one.name for one in critical if _part(one.scope) not in (COPIES, WAIT)]
    advice = [f"shorten {listed(shortened, _MAX_NAMES)}"] if shortened else []
    copies = [place for place in places if _part(place.scope) == COPIES]
    if any(place.is_critical for place in copies):
        advice.append("start the copies earlier, with more stages: the kernel waits for them")
    elif copies and all(place.is_hidden for place in copies):
        advice.append("the copies are hidden: more stages would gain nothing")
    return "; ".join(advice) or f"see what {critical[0].name} waits for"


def _part(scope: Scope) -> str:
    """Return the kind of part that a scope is, whatever name the user gave it; empty if it is none."""
    label = scope.label or scope.name
    return label.partition("@")[0] if scope.kind == ScopeKind.PART else part_of(label)
