"""A trace, and what of it is seen first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from kprof_inject.timeline.clocks.axis import place_launches
from kprof_inject.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of a trace, as the Perfetto UI finds one: by when it starts and how long it takes."""

    start_ns: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class TraceToShow:
    """``file`` is a regular file, open since it was looked at: whatever its name stands for by now, this is what is
    shown. ``name`` is what the UI calls it, without a folder. ``opens_on`` is the slice that the UI selects at first;
    None leaves it at the trace as a whole."""

    name: str
    file: BinaryIO
    opens_on: Slice | None = None


def last_launch(timelines: Sequence[Timeline]) -> Slice | None:
    """The slice of the launch that began last, in a trace of all of these; None if no CTA of any ran.

    A launch may stand so far behind the host's call that made it that nobody sees it in the whole trace."""
    spans = [span for placed in place_launches(timelines) if (span := placed.span_ns())]
    if not spans:
        return None
    begin_ns, end_ns = max(spans)
    return Slice(begin_ns, end_ns - begin_ns)
