"""What one record costs: the time that a warp takes longer for each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.shipped_record_costs import SHIPPED
from kprof_inject.errors import KprofError
from kprof_inject.files import object_with, read_object, write_json


@dataclass(frozen=True, slots=True)
class RecordCost:
    """``cycles`` of the SM's counter from one record to the next where nothing stands between them, on one device and in
    one ``Mode``. ``source`` says where the figure comes from: "measured" on that device when the capture was made, or
    "shipped", measured by us on a device of the same name."""

    cycles: float
    source: str


@dataclass(frozen=True, slots=True)
class CostKey:
    """What decides the cost of a record: the device, Triton's version, and of the ``Mode`` all but sizes and numbers.
    ``some_warps`` says that warps were named, which takes code of its own whichever they are."""

    device_name: str
    triton: str
    buffer: str
    clock_bits: int
    sched_stores: bool
    some_warps: bool

    @classmethod
    def of(cls, device_name: str, triton: str, mode: Mode) -> CostKey:
        return cls(device_name, triton, mode.buffer, mode.clock_bits, mode.sched_stores, bool(mode.warps))


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """What was measured: all in cycles from a record's clock reading to that of the next record of the same warp.

    ``after_start_cycles`` and ``after_end_cycles`` are what follows the start and what follows the end of a scope, in a
    loop, and ``cycles`` is their mean. ``straight_cycles`` is the same outside of loops. Half of what was measured of a
    place in the code lies within ``spread_cycles``; ``samples`` is how many there were in all."""

    key: CostKey
    cycles: float
    after_start_cycles: float
    after_end_cycles: float
    straight_cycles: float
    spread_cycles: float
    samples: int

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        return {**values.pop("key"), **values}

    @classmethod
    def from_json(cls, values: Any, path: Path) -> MeasuredCost:
        """``path`` is where the values come from, for the ``KprofError`` that those of another form raise."""
        found = object_with((*_KEY_TYPES, *_CYCLES, "samples"), values, path)
        of_type = all(type(found[name]) is kind for name, kind in _KEY_TYPES.items())
        numbers = [found[name] for name in (*_CYCLES, "samples")]
        if not of_type or not all(type(number) in (int, float) and 0 <= number < math.inf for number in numbers):
            raise KprofError(f"{path} is damaged: the cost of a record is none")
        key = CostKey(**{name: found[name] for name in _KEY_TYPES})
        return cls(key, *(float(number) for number in numbers[:-1]), int(numbers[-1]))


_KEY_TYPES = {
    "device_name": str,
    "triton": str,
    "buffer": str,
    "clock_bits": int,
    "sched_stores": bool,
    "some_warps": bool,
}
_CYCLES = ("cycles", "after_start_cycles", "after_end_cycles", "straight_cycles", "spread_cycles")


def read_costs(path: Path) -> dict[CostKey, MeasuredCost]:
    """The costs that were saved in a file; none if there is no such file. Raises ``KprofError`` if it is damaged."""
    if not path.exists():
        return {}
    costs = read_object(path, "costs")["costs"]
    if not isinstance(costs, list):
        raise KprofError(f"{path} is damaged: the costs are no list")
    return {cost.key: cost for cost in (MeasuredCost.from_json(values, path) for values in costs)}


def write_costs(path: Path, costs: Iterable[MeasuredCost]) -> None:
    """Replace the file by one with these costs."""
    write_json(path, {"costs": [cost.to_json() for cost in costs]})


def cost_of(key: CostKey, measured: Mapping[CostKey, MeasuredCost]) -> RecordCost | None:
    """What is known of a record's cost: what was measured, else what is shipped for the device's name."""
    if key in measured:
        return RecordCost(measured[key].cycles, "measured")
    minor = ".".join(key.triton.split(".")[:2])
    mode = (key.buffer, key.clock_bits, key.sched_stores, key.some_warps)
    cycles = SHIPPED.get((key.device_name, minor), {}).get(mode)
    return None if cycles is None else RecordCost(cycles, "shipped")
