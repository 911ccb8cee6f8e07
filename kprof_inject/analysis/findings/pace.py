"""Places that set a kernel's pace, by a causal experiment."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from kprof_inject.analysis.causal.slopes import PlaceSlope
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Results, found, rule
from kprof_inject.capture.scopes import Scope, ScopeKind
from kprof_inject.quantities import listed
from kprof_inject.select.parts import COPIES, WAIT, part_of

_MAX_NAMES = 4  # named in one sentence


@rule()
def pace(evidence: Evidence) -> Results:
    """Yield the critical places; without any, the kernel waits for what all CTAs share."""
    slopes = evidence.slopes
    critical = [place for place in slopes.ranked if place.is_critical] if slopes else []
    if slopes is None or not critical:
        return
    hidden = [place for place in slopes.places if place.is_hidden]
    first, values = critical[0], [place.response.slope.value if place.response else 0.0 for place in critical]
    # Each place can gain its slope times its part of the time.
    gains = [min(value, 1.0) * (place.time_share or 0.0) for place, value in zip(critical, values, strict=True)]
    names = listed([place.name for place in critical], _MAX_NAMES)
    sets, there = ("sets", "there") if len(critical) == 1 else ("set", f"in {first.name}")
    slacks = [f"{slack:.0f} cycles in {place.name}" for place in hidden if (slack := place.spare_cycles)]
    spare = f"; slack: {listed(slacks, _MAX_NAMES)}" if slacks else ""
    finding = found(
        evidence,
        min(sum(gains), 1.0),
        text=f"{names} {sets} the pace: each cycle saved {there} makes the kernel {values[0]:.2f} cycles faster{spare}",
        advice=_advice(slopes.places, critical),
        figures={
            f"slope of {one.name}": round(one.response.slope.value, 3) for one in (*critical, *hidden) if one.response
        },
    )
    yield replace(finding, scope=first.scope.name, index=first.index)


def _advice(places: Sequence[PlaceSlope], critical: Sequence[PlaceSlope]) -> str:
    """Return remedies for the critical places.

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
