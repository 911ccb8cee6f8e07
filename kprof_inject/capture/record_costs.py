"""Cost of one record: the time by which it delays a warp, measured or shipped; and the limit of what all may cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from kprof_inject.capture.encoding import encode, read_of_run, sealed
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.schema import BufferKind, ClockBits, Count, Cycles, Name
from kprof_inject.files import write_bytes

TRUSTED_PERCENT = 5.0
"""Limit of the level *trustworthy*: the parts of a kernel's time that a reader looks for are larger, so their order
holds. An interval wider than ± this exceeds the limits wherever its middle is.
"""

Settings = tuple[str, int, bool, bool]
"""Settings of the mode: ``buffer``, ``clock_bits``, ``sched_stores``, and whether ``warps`` names some."""

SHIPPED: Mapping[tuple[str, str], Mapping[Settings, tuple[float, float, float]]] = {
    ("NVIDIA H100 80GB HBM3", "3.6"): {
        ("shared", 64, False, False): (17.5, 17.5, 11.5),
        ("shared", 64, False, True): (16.2, 16.2, 14.2),
        ("shared", 64, True, False): (12.0, 20.0, 20.0),
        ("shared", 64, True, True): (13.5, 21.0, 18.0),
        ("shared", 32, False, False): (11.5, 11.5, 10.5),
        ("shared", 32, False, True): (14.8, 14.8, 11.8),
        ("shared", 32, True, False): (9.0, 8.0, 8.0),
        ("shared", 32, True, True): (10.5, 17.5, 15.5),
        ("global", 64, False, False): (19.5, 19.5, 17.5),
        ("global", 64, False, True): (20.0, 20.0, 20.0),
        ("global", 64, True, False): (14.2, 25.5, 13.5),
        ("global", 64, True, True): (10.9, 26.5, 24.5),
        ("global", 32, False, False): (18.2, 18.2, 16.2),
        ("global", 32, False, True): (20.0, 20.0, 18.0),
        ("global", 32, True, False): (5.0, 10.0, 10.0),
        ("global", 32, True, True): (11.5, 23.5, 21.5),
    },
    ("NVIDIA H200", "3.6"): {
        ("shared", 64, False, False): (15.2, 15.2, 15.2),
        ("shared", 64, False, True): (16.2, 16.2, 14.2),
        ("shared", 64, True, False): (12.0, 20.0, 20.0),
        ("shared", 64, True, True): (13.0, 20.5, 18.5),
        ("shared", 32, False, False): (13.5, 13.5, 13.5),
        ("shared", 32, False, True): (14.8, 14.8, 11.8),
        ("shared", 32, True, False): (9.0, 8.5, 7.5),
        ("shared", 32, True, True): (10.5, 17.5, 15.5),
        ("global", 64, False, False): (18.2, 18.2, 18.2),
        ("global", 64, False, True): (20.0, 20.0, 20.0),
        ("global", 64, True, False): (13.8, 20.0, 20.0),
        ("global", 64, True, True): (10.0, 29.5, 21.5),
        ("global", 32, False, False): (18.2, 18.2, 16.2),
        ("global", 32, False, True): (20.0, 20.0, 18.0),
        ("global", 32, True, False): (8.0, 10.0, 10.0),
        ("global", 32, True, True): (11.5, 23.5, 21.5),
    },
}
"""Cycles of a start, cycles of an end, and their error (see ``RecordCost``): by the device's name and Triton's minor
version, as in ``("NVIDIA H200", "3.6")``, then by the mode. ``scripts/record-costs`` measured them, and prints these
rows.
"""


class RecordCost(Struct, frozen=True):
    """Cycles of the SM's counter that a record adds to the distance to the next one, on one device and in one ``Mode``.

    The costs of the start and of the end of a scope differ where stores are moved, from after the start to after the
    end.

    The cost depends on the neighbouring instructions, because work may overlap with the making of the record. So each
    value is the middle between the smallest and the largest that was measured, next to other records and next to work,
    and a record's true cost may be ``error_cycles`` more or less. ``source`` is "measured" if the cost was measured on
    that device when the capture was made, or "shipped" if we measured it on a device of the same name.
    """

    after_start_cycles: float
    after_end_cycles: float
    error_cycles: float
    source: str

    @property
    def cycles(self) -> float:
        """Mean of the costs of a start and an end."""
        return (self.after_start_cycles + self.after_end_cycles) / 2

    def resolution_ns(self, clock_hz: float) -> float:
        """Return the smallest duration that exceeds the cost of a record, rounded up to one digit.

        A shorter duration may be nothing but an error of the subtracted cost.
        """
        max_cost_ns = 1e9 * (self.cycles + self.error_cycles) / clock_hz
        if max_cost_ns <= 0:
            return 0.0
        unit = 10.0 ** math.floor(math.log10(max_cost_ns))
        return math.ceil(max_cost_ns / unit - 1e-9) * unit


@dataclass(frozen=True, slots=True)
class CostKey:
    """Properties that decide the cost of a record: device, version of Triton, and some of the ``Mode``.

    Sizes and numbers of the mode have no effect. ``some_warps`` is true if warps were named, which adds code whichever
    they are.
    """

    device_name: str
    triton: str
    buffer: str
    clock_bits: int
    sched_stores: bool
    some_warps: bool

    @classmethod
    def of(cls, device_name: str, triton: str, mode: Mode) -> CostKey:
        """Return the key of a device, a version of Triton, and a mode."""
        return cls(device_name, triton, mode.buffer, mode.clock_bits, mode.sched_stores, bool(mode.warps))


class MeasuredCost(Struct, frozen=True):
    """Measured cost for one ``CostKey``, whose fields come first; all costs are in cycles.

    A cost is the distance from a record's clock reading to that of the next record of the same warp.
    ``after_start_cycles`` and ``after_end_cycles`` follow the start and the end of a scope, in a loop, where the next
    record is adjacent; ``cycles`` is their mean. The two ``beside_work`` costs are the rest of the distance where work
    is in between, less that work. ``straight_cycles`` is ``cycles`` outside of loops. ``spread_cycles`` is the
    interquartile range at one place in the code without work; ``samples`` is the total number of distances.
    """

    device_name: Name
    triton: Name
    buffer: BufferKind
    clock_bits: ClockBits
    sched_stores: bool
    some_warps: bool
    cycles: Cycles
    after_start_cycles: Cycles
    after_end_cycles: Cycles
    after_start_beside_work_cycles: Cycles
    after_end_beside_work_cycles: Cycles
    straight_cycles: Cycles
    spread_cycles: Cycles
    samples: Count

    @property
    def key(self) -> CostKey:
        """Key for which the cost was measured."""
        return CostKey(self.device_name, self.triton, self.buffer, self.clock_bits, self.sched_stores, self.some_warps)

    @property
    def record_cost(self) -> RecordCost:
        """Cost that is subtracted for a record of this key."""
        start = [self.after_start_cycles, self.after_start_beside_work_cycles]
        end = [self.after_end_cycles, self.after_end_beside_work_cycles]
        if not self.sched_stores:
            # Start and end have the same instructions; only the compiler's scheduling of the work around them differed.
            start = end = start + end
        error_cycles = max((max(costs) - min(costs)) / 2 for costs in (start, end))
        return RecordCost(_middle(start), _middle(end), error_cycles, "measured")


def _middle(costs: Sequence[float]) -> float:
    return (min(costs) + max(costs)) / 2


class _CostsFile(Struct, frozen=True):
    costs: tuple[MeasuredCost, ...]


def read_costs(path: Path, run: str = "") -> dict[CostKey, MeasuredCost]:
    """Return the costs that were saved in a file; empty if there is no such file.

    Raises ``KprofError`` if it is damaged, or if ``run`` (see ``ProcessRecord``) is not empty and the file is of
    another run.
    """
    file = read_of_run(path, _CostsFile, run)
    return {cost.key: cost for cost in file.costs} if file is not None else {}


def write_costs(path: Path, costs: Iterable[MeasuredCost], run: str = "") -> None:
    """Replace the file by one with these costs; a non-empty ``run`` is the run of the capture that they belong to."""
    write_bytes(path, sealed(msgspec.json.format(encode(_CostsFile(tuple(costs))), indent=1), run) + b"\n")


def cost_of(key: CostKey, measured: Mapping[CostKey, MeasuredCost]) -> RecordCost | None:
    """Return a record's cost: the measured one, otherwise the one shipped for the device's name, or None."""
    if key in measured:
        return measured[key].record_cost
    minor = ".".join(key.triton.split(".")[:2])
    mode = (key.buffer, key.clock_bits, key.sched_stores, key.some_warps)
    shipped = SHIPPED.get((key.device_name, minor), {}).get(mode)
    return RecordCost(*shipped, "shipped") if shipped else None
