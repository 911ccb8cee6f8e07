"""Reasons why a rule or metric cannot be computed for a launch, with remedies: most of them need all records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from kprof_inject.errors import KprofError
from kprof_inject.quantities import counted, numbered, percent
from kprof_inject.timeline.timeline import Timeline


class Unjudged(Struct, frozen=True):
    """The reason why a launch could not be judged, with its remedy."""

    reason: str  # what is missing
    remedy: str  # how to get it; empty if nothing helps
    finding: str = ""  # the name of the findings that may be missing, if a rule yields others, too

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


class Unevaluated(KprofError):
    """Evaluating a kernel's module failed."""


CHECK_MODULE = "kprof-inject check FILE.ttgir shows whether Triton accepts it"


@contextmanager
def evaluating() -> Iterator[None]:
    """Turn any exception into ``Unevaluated``, so a damaged module or a bug costs the analysis of one kernel only."""
    try:
        yield
    except KprofError:
        raise
    except Exception as error:  # a damaged module may cause any exception
        what = f"the kernel's module cannot be evaluated ({type(error).__name__}: {error})"
        raise Unevaluated(what, hint=CHECK_MODULE) from error


_MIN_SHARE_SHOWN = 0.001  # A smaller share would be rounded to 0 %


def missing_records(timeline: Timeline) -> Unjudged | None:
    """Return the reason why counts and sums do not cover all of the warps' records."""
    if lost := timeline.records_lost:
        share = lost / max(timeline.records_written, lost)
        part = f"{percent(share)} of the" if share >= _MIN_SHARE_SHOWN else f"{lost} of {timeline.records_written}"
        return Unjudged(f"{part} records were lost", "use --fit, or a larger --buffer-size")
    if timeline.records_damaged:
        return Unjudged(f"{counted(timeline.records_damaged, 'record')} were damaged", "capture again")
    return None


def unpaired_records(timeline: Timeline) -> Unjudged | None:
    """Return that some records have no partner though none was lost: figures do not include their time."""
    unpaired = int(timeline.open_starts.sum() + timeline.stray_ends.sum())
    if not unpaired:
        return None
    what = "1 record has" if unpaired == 1 else f"{unpaired} records have"
    return Unjudged(f"{what} no matching start or end", "")


def missing_warps(timeline: Timeline) -> Unjudged | None:
    """Return that some warps of each CTA recorded nothing."""
    if len(timeline.warps) >= timeline.launch.kernel.num_warps:
        return None
    were = "was" if len(timeline.warps) == 1 else "were"
    reason = f"only {numbered('warp', timeline.warps)} {were} recorded" if timeline.warps else "no warp was recorded"
    return Unjudged(reason, "leave out --warps")
