"""A finding of a rule, which is one thing that limits a launch, and the evidence that rules judge a launch by."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Any

from kprof_inject.analysis.causal.slopes import KernelSlopes
from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel
from kprof_inject.analysis.roofs.limits import DRAM
from kprof_inject.analysis.roofs.speed_of_light import Roof, SpeedOfLight
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.nodes import Operation

MIN_SHARE = 0.10
"""Part of a launch's time from which most rules report a loss. Other causes, and noise, cost up to as much: with ten
waves, one CTA more than fits makes an eleventh; of 132 SMs, a grid of 128 CTAs leaves 3 % idle; the SMs of a healthy
matmul of one wave end as far apart as 6 % of it (H200)."""

Figures = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    """The name of the rule that found it."""
    scope: str | None
    """The name of the scope that it is about, if it is about one."""
    share: float
    """The part of the launch's time that it explains, 0 to 1: what could at most be won by its removal."""
    text: str
    """One sentence with its figures."""
    advice: str
    """What to look at next."""
    figures: Figures
    """Those of the text, as numbers."""
    index: int | None = field(default=None, kw_only=True)
    """That scope's in the launch's table: others may have its name."""
    doubt: str = field(default="", kw_only=True)
    """What is missing of the records that it rests on, so that it may be off; empty if nothing is."""

    @property
    def sentence(self) -> str:
        """The text, and what makes it doubtful."""
        return f"{self.text} (doubtful: {self.doubt})" if self.doubt else self.text

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Evidence:
    """What rules judge a launch by.

    ``ran`` is None if its module cannot be read, or nothing is known about its work; ``slopes``, if its kernel was not
    delayed.
    """

    timeline: Timeline
    summary: LaunchSummary
    light: SpeedOfLight
    ran: ExecutedKernel | None
    slopes: KernelSlopes | None = None

    @cached_property
    def scope_map(self) -> ScopeMap | None:
        return None if self.ran is None else ScopeMap(self.ran.module, self.timeline.table)

    def roof_around(self, operation: Operation) -> Roof | None:
        """Return the roof of the innermost scope around an operation that has one."""
        if self.scope_map is None:
            return None
        roofs = {roof.index: roof for roof in self.light.roofs}
        index = self.scope_map.innermost_around(operation, roofs)
        return None if index is None else roofs[index]

    def name_of(self, roof: Roof) -> str:
        """Return the name of a roof's scope, with its site if other scopes have that name."""
        return self.summary.scopes[roof.index].distinct_name

    def place_of(self, one: CountedOperation) -> str:
        """``matmul.py:58``; the line of the TTGIR where its source is unknown."""
        chains = LocationTable(self.ran.module).chains_of(one.operation) if self.ran else ()
        if not chains:
            return f"TTGIR line {one.line}"
        return f"{PurePath(chains[0][0].file).name}:{chains[0][0].line}"

    @property
    def dram_part(self) -> float:
        """Which part of its peak the launch needs of DRAM at least."""
        return self.light.dram.least_part(self.summary.duration_ns) if self.light.dram else 0.0

    @property
    def sm_cycles(self) -> int:
        """Of the scope that takes most of the SMs' time: the kernel's function, where that was recorded."""
        return self._whole.sm_cycles if self._whole else 0

    @property
    def _whole(self) -> Roof | None:
        return max(self.light.roofs, key=lambda roof: roof.sm_cycles, default=None)

    @property
    def busiest(self) -> tuple[str, float]:
        """The unit that the launch needs for the largest part of its time at least, and that part."""
        whole = self._whole
        of_units = [(whole.unit, whole.part)] if whole else []
        return max(*of_units, (DRAM, min(self.dram_part, 1.0)), ("", 0.0), key=lambda one: one[1])

    def share_of(self, roof: Roof) -> float:
        """Which part of the SMs' time a scope takes."""
        return roof.sm_cycles / self.sm_cycles if self.sm_cycles else 0.0
