"""The part of a trace that is shown first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kprof_inject.export.drawing.draw import process_of, program_names
from kprof_inject.export.drawing.tracks import cta_label, sm_label
from kprof_inject.timeline.axis import PlacedLaunch, place_launches
from kprof_inject.timeline.records import recorded_warps
from kprof_inject.timeline.timeline import Timeline

# About as many as fit on a screen.
_WARPS = 16


@dataclass(frozen=True, slots=True)
class Opening:
    """The slice of a launch, and the names of the tracks to expand.

    With these, the launch's first warps are visible where tracks nest by SM, CTA and warp.
    """

    start_ns: int
    duration_ns: int
    tracks: tuple[str, ...]


def last_launch(timelines: Sequence[Timeline]) -> Opening | None:
    """Return the opening for the launch that began last; None if no CTA of any launch ran.

    A launch may be so far from the host's call that made it that it is invisible in the trace as a whole.
    """
    placed = place_launches(timelines)
    spans = [(span, number) for number, launch in enumerate(placed) if (span := launch.span_ns())]
    if not spans:
        return None
    (begin_ns, end_ns), number = max(spans)
    launch = placed[number]
    program = program_names(placed).get(process_of(launch))
    around = (program, launch.title) if program else (launch.title,)
    return Opening(begin_ns, end_ns - begin_ns, (*around, *_first_groups(launch)))


def _first_groups(launch: PlacedLaunch) -> Iterator[str]:
    """SMs and CTAs of the first warps, one CTA at least."""
    ctas = np.sort(launch.timeline.ctas[["sm", "cta"]], order=["sm", "cta"])
    first = ctas[: max(_WARPS // len(recorded_warps(launch.timeline.launch)), 1)]
    yield from map(sm_label, np.unique(first["sm"]).tolist())
    yield from map(cta_label, first["cta"].tolist())
