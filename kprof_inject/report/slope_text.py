"""Slopes and slacks in words, for the terminal, the page and the notes."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.causal.response import Interval
from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope
from kprof_inject.quantities import percent

MEANING = (
    "slope: cycles that the kernel loses per cycle added there on a CTA's path: 1 is critical, 0 is hidden, above 1 "
    "CTAs slow each other down. Saving a few cycles there gains as much for each."
)

# By so much, a delay of no cycles changes the kernel itself.
_DISTURBING = 0.03

# Slope and path differ for sure: one of them is nothing, and the other one is not.
_SMALL_PART, _LARGE_PART = 0.01, 0.1


def slope_text(place: PlaceSlope) -> str:
    """With its interval; "-" where there is none."""
    if place.response is None:
        return "-"
    slope = place.response.slope
    return f"{round(slope.value, 2) + 0.0:.2f} ± {slope.error:.2f}"


def slack_text(place: PlaceSlope) -> str:
    """Up to which delay it stays as it is; or why nobody knows."""
    if place.response is None:
        return place.reason
    if place.response.slack is not None:
        return f"{_cycles(place.response.slack)} cycles, then {place.response.beyond or 0.0:.2f}"
    return f"{place.spare_cycles:.0f} cycles or more" if place.spare_cycles else "none"


def _cycles(slack: Interval) -> str:
    return f"{slack.value:.0f}" if slack.error < 1 else f"{slack.value:.0f} ± {slack.error:.0f}"


def slope_notes(slopes: KernelSlopes) -> Iterator[str]:
    """A line on what matters, and those of ``doubts_on_slopes``."""
    told = [f"{place.name} {slope_text(place)}" for place in slopes.ranked if place.response]
    if told:
        yield f"what matters, by delays: {', '.join(told)}"
    yield from doubts_on_slopes(slopes)


def doubts_on_slopes(slopes: KernelSlopes) -> Iterator[str]:
    """Where a slope is not quite that of the program's own kernel, and where the critical path says something else."""
    yield from _disturbances(slopes)
    yield from _disagreements(slopes)


def _disagreements(slopes: KernelSlopes) -> Iterator[str]:
    for place in slopes.places if slopes.path else ():
        share = place.blame.share if place.blame else 0.0
        if place.is_hidden and share >= _LARGE_PART:
            yield (
                f"{place.name}: {percent(share)} of the critical path goes through it, but delays there have no "
                "effect: another path is nearly as long, or it is the records' own time"
            )
        elif place.is_critical and share < _SMALL_PART:
            yield (
                f"{place.name}: delays there slow the kernel, but {percent(share)} of the critical path goes "
                "through it: it is short, or what it holds up is in no scope"
            )


def _disturbances(slopes: KernelSlopes) -> Iterator[str]:
    for place in slopes.places:
        moved = place.disturbed
        if moved is not None and abs(moved.value) > max(_DISTURBING, moved.error):
            more = "longer" if moved.value > 0 else "less long"
            yield (
                f"{place.name}: inserting anything there changes the kernel, which takes "
                f"{percent(abs(moved.value))} {more} with a zero-cycle delay; the slope is that of the changed kernel"
            )
    if not slopes.experiment.spins:
        yield "the real length of the delays could not be measured here: nominal lengths are used"
