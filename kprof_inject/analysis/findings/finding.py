"""A finding, which is one cause that limits a launch, and the evidence that rules use."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from msgspec import Struct

from kprof_inject.analysis.causal.slopes import KernelSlopes
from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel
from kprof_inject.analysis.roofs.limits import DRAM
from kprof_inject.analysis.roofs.speed_of_light import Roof, SpeedOfLight
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.encoding import json_values
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.nodes import Operation

MIN_SHARE = 0.10
"""Part of a launch's time from which most rules report a loss. Other causes, and noise, cost up to as much: with ten
waves, one CTA more than fits adds an eleventh; a grid of 128 CTAs leaves 3 % of 132 SMs idle; the SMs of a healthy
matmul of one wave finish up to 6 % apart (H200)."""

Figures = dict[str, float | int | str]


class Finding(Struct, frozen=True):
    """A cause that limits a launch."""

    rule: str
    """Name of the rule that found it."""
    scope: str | None
    """Name of the scope concerned, if any."""
    share: float
    """The part of the launch's time that it explains, 0 to 1: an upper bound of the gain from removing it."""
    text: str
    """One sentence with its figures."""
    advice: str
    """What to look at next."""
    figures: Figures
    """The numbers in ``text``."""
    index: int | None = None
    """Index of ``scope`` in the launch's table, as names need not be unique."""
    doubt: str = ""
    """Which records are missing, so that the figures may be off; empty if none are."""

    @property
    def sentence(self) -> str:
        """``text``, with the reason for doubt if there is one."""
        return f"{self.text} (doubtful: {self.doubt})" if self.doubt else self.text

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return json_values(self)


class Evidence(Struct, frozen=True):
    """The evidence by which rules judge a launch.

    ``ran`` is None if the module cannot be read, or nothing is known about its work. ``slopes`` is None without a
    causal experiment.
    """

    timeline: Timeline
    summary: LaunchSummary
    light: SpeedOfLight
    ran: ExecutedKernel | None
    slopes: KernelSlopes | None = None

    def roof_around(self, operation: Operation) -> Roof | None:
        """Return the roof of the innermost scope around an operation that has one."""
        if self.ran is None:
            return None
        roofs = {roof.index: roof for roof in self.light.roofs}
        index = self.ran.scope_map.innermost_around(operation, roofs)
        return None if index is None else roofs[index]

    def name_of(self, roof: Roof) -> str:
        """Return the name of a roof's scope, with its site if other scopes have that name."""
        return self.summary.scopes[roof.index].distinct_name

    def place_of(self, one: CountedOperation) -> str:
        """Return an operation's source line, such as ``matmul.py:58``, or its TTGIR line if the source is unknown."""
        chains = LocationTable(self.ran.module).chains_of(one.operation) if self.ran else ()
        if not chains:
            return f"TTGIR line {one.line}"
        return f"{PurePath(chains[0][0].file).name}:{chains[0][0].line}"

    @property
    def dram_part(self) -> float:
        """Lower bound of the part of DRAM's peak that the launch uses."""
        return self.light.dram.min_part(self.summary.duration_ns) if self.light.dram else 0.0

    @property
    def sm_cycles(self) -> int:
        """SM cycles of the scope with the most: the kernel's function, if that was recorded."""
        return self._whole.sm_cycles if self._whole else 0

    @property
    def _whole(self) -> Roof | None:
        return max(self.light.roofs, key=lambda roof: roof.sm_cycles, default=None)

    @property
    def busiest(self) -> tuple[str, float]:
        """The busiest unit, with a lower bound of the part of the launch's time that it is busy."""
        whole = self._whole
        sm_unit = [(whole.unit, whole.part)] if whole else []
        return max(*sm_unit, (DRAM, min(self.dram_part, 1.0)), ("", 0.0), key=lambda one: one[1])

    def share_of(self, roof: Roof) -> float:
        """Return the part of the SMs' time that a scope takes."""
        return roof.sm_cycles / self.sm_cycles if self.sm_cycles else 0.0
