"""Utilization of each unit by each kind of evidence, and where these contradict each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from kprof_inject.analysis.roofs.limits import DRAM, UNIT_NAMES
from kprof_inject.analysis.roofs.rates import ALU, FP32, FP64, ISSUE, L2, L2_TO_SM, SHARED, SPECIAL, TENSOR
from kprof_inject.quantities import percent

_SHOWN_UNITS = (TENSOR, ISSUE, ALU, FP32, FP64, SPECIAL, SHARED, L2_TO_SM, L2, DRAM)
"""The units in the order of tables."""
# Counts of the hardware vary by less from pass to pass, and small shares do not matter.
_MAX_RATIO, _MAX_EXCESS = 1.05, 0.02


class UnitEvidence(Struct, frozen=True):
    """Utilization of a unit, as part of the launch's time; None where it is unknown.

    ``computed`` (from TTGIR) and ``code`` (from the machine code) are lower bounds; ``measured`` was counted by the
    hardware.
    """

    unit: str
    computed: float | None
    code: float | None
    measured: float | None

    @property
    def best(self) -> float:
        """The figure of the strongest evidence."""
        return self.lower_bound if self.measured is None else self.measured

    @property
    def lower_bound(self) -> float:
        """The larger lower bound; 0 if there is none."""
        return max(self.computed or 0.0, self.code or 0.0)


def unit_evidence(
    computed: Mapping[str, float], code: Mapping[str, float], measured: Mapping[str, float], scale: float
) -> tuple[UnitEvidence, ...]:
    """Return the evidence on each unit of which anything is known.

    ``computed`` and ``code`` are parts of the cycles in which an SM runs the recorded kernel. They are multiplied by
    ``scale``, the ratio of these cycles to those of ``measured``.
    """
    computed, code = ({unit: scale * part for unit, part in parts.items() if part} for parts in (computed, code))
    found = (UnitEvidence(unit, computed.get(unit), code.get(unit), measured.get(unit)) for unit in _SHOWN_UNITS)
    return tuple(one for one in found if (one.computed, one.code, one.measured) != (None, None, None))


def disagreements(units: Sequence[UnitEvidence]) -> list[str]:
    """Return a sentence for each lower bound that exceeds what was measured by more than its error.

    Then our count of the work, or of its executions, is wrong.
    """
    return [
        f"kprof-inject contradicts itself: {UNIT_NAMES[one.unit]} would be busy for at least "
        f"{percent(one.lower_bound)} of the time, but {percent(one.measured)} were measured; please report it"
        for one in units
        if one.measured is not None and one.lower_bound > _MAX_RATIO * one.measured + _MAX_EXCESS
    ]
