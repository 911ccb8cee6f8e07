"""Compares what ended the waits of a capture with what its program stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.axis import place_launches
from kprof_inject.timeline.foreign import timelines_of
from kprof_inject.timeline.wait_ends import Ending, WaitEnds, wait_ends

Judge = Callable[[WaitEnds, Any, Any], bool | None]
"""Returns whether a change (the second visit) ended a wait (the first); None to leave the wait out."""


def judged(capture: Path, is_right: Judge, kernel: str = "") -> Counter[str]:
    """Return the numbers of waits that are ``right``, ``wrong``, and by how each ``unknown`` one ended."""
    launches = [launch for launch in read_capture(capture).launches if kernel in launch.kernel.name]
    found: Counter[str] = Counter()
    for ends in wait_ends(place_launches(list(timelines_of(launches)))):
        visits = ends.visits
        for wait, ending, change in zip(visits.waits, ends.endings.tolist(), ends.changes.tolist(), strict=True):
            if change < 0:
                found[f"unknown: {Ending(ending).name}"] += 1
                continue
            verdict = is_right(ends, wait, visits.changes[change])
            if verdict is not None:
                found["right" if verdict else "wrong"] += 1
                found[Ending(ending).name] += 1
    return found
