"""Headroom of a launch: the time above its necessary work at the practical ceilings of the device.

Only two kinds of work are known to be necessary: the bytes that a launch reads and writes, each once, and the products
of its dots. Whatever else keeps units busy may be computed in another way.
"""

from __future__ import annotations

from msgspec import Struct

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.limit import MIN_NOTABLE, UNIT_NAMES
from kprof_inject.analysis.limits.rates import DRAM, TENSOR, ceiling
from kprof_inject.quantities import percent, size_text

_MIN_NECESSARY = 0.8
"""Part of the launch's time from which the necessary work leaves little to win."""


class Headroom(Struct, frozen=True):
    """The necessary work of a launch."""

    unit: str
    """The unit that needs most time for it; empty if nothing notable is known to be necessary."""
    necessary: float
    """The part of the launch's time that this unit needs at its practical ceiling."""
    work: str
    """The work in words."""

    is_certain: bool = True
    """False if some addresses are unknown, so that not all bytes may be needed."""

    @property
    def share(self) -> float:
        """Upper bound of what any rewrite wins that computes the same, as part of the launch's time."""
        return max(1 - self.necessary, 0.0)

    @property
    def is_small(self) -> bool:
        """True if the launch is at its roof."""
        return self.is_certain and self.necessary >= _MIN_NECESSARY

    @property
    def rest(self) -> str:
        """The possible gain, in words."""
        needed = "" if self.is_certain else ", if all of it is needed"
        return f"at most {percent(self.share)} to win, as {self.work} takes the rest{needed}"

    @property
    def text(self) -> str:
        """The conclusion that little can be gained, in words."""
        necessary = percent(min(self.necessary, 1.0))
        return f"at its roof: no more than {percent(self.share)} to win, as {self.work} takes {necessary} of the time"


def headroom_of(report: LaunchAnalysis) -> Headroom:
    """Return the headroom of a launch; what findings say is not needed is no necessary work."""
    found = [one for one in (_of_dram(report), _of_dots(report)) if one is not None and one.necessary >= MIN_NOTABLE]
    return max(found, key=lambda one: one.necessary, default=Headroom("", 0.0, ""))


def _of_dram(report: LaunchAnalysis) -> Headroom | None:
    dram = report.speed_of_light.dram
    part, moved = report.limit.parts.get(DRAM, 0.0), report.dram_moved
    if dram is None or not moved:
        return None
    needed = min(report.dram_once, 1 - _not_needed(report, DRAM))
    work = f"moving {size_text(round(needed * moved))} from and to DRAM"
    return Headroom(DRAM, part * needed / ceiling(report.launch.device_name, DRAM), work, not dram.unknown)


def _of_dots(report: LaunchAnalysis) -> Headroom | None:
    part = report.limit.parts.get(TENSOR, 0.0)
    if report.limit.evidence != "measured" or not part:
        return None  # computed parts are of the time in which SMs have work
    needed = part * (1 - _not_needed(report, TENSOR))
    return Headroom(TENSOR, needed / ceiling(report.launch.device_name, TENSOR), f"the work of {UNIT_NAMES[TENSOR]}")


def _not_needed(report: LaunchAnalysis, unit: str) -> float:
    return max((finding.removed.get(unit, 0.0) for finding in report.findings), default=0.0)
