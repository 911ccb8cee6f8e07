"""Launches that take hardly longer than launching itself."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import percent, short_time

# Of a longer launch, the kernel itself leaves more to win.
_MIN_SHARE = 0.25


def short_launch(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield a launch of which an empty one takes a notable part, whatever the kernel does."""
    if evidence.launch_times is None:
        return
    launch_ns, empty_ns = evidence.launch_times
    share = empty_ns / launch_ns
    if not _MIN_SHARE <= share < 1:
        return
    yield Finding(
        rule="short-launch",
        scope=None,
        share=share,
        text=f"the launch is short: an empty one takes {short_time(empty_ns)} of its {short_time(launch_ns)} "
        f"({percent(share)})",
        advice="do its work in the kernel before or after it, or let one launch do the work of several",
        figures={"launch_ns": launch_ns, "empty_ns": empty_ns},
        likely=share / 2,  # the kernel that does the work takes longer
    )
