"""What a kernel costs, by itself and with records in it; what one record costs; how many CTAs an SM has room for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.schema import (
    BufferKind,
    ClockBits,
    Count,
    Cycles,
    KernelRecord,
    Name,
    TimingRecord,
    decode,
    encode,
    read_json,
    require_seal,
    sealed,
)
from kprof_inject.files import write_bytes

# How many CTAs of a kernel an SM has room for, by the vendors' tables; no device is asked.
#
# Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" and "Shared Memory" of each
# capability (what is reserved for a CTA); AMD Instinct ISA guides (LDS, waves per CU).

_KIB = 1024
# What an SM's memories are given out in: bytes of shared memory, registers of a warp, and warps that come by fours, one
# for each of the SM's four schedulers.
_SHARED_UNIT_BYTES = 128
_REGISTER_UNIT = 256
_WARP_UNIT = 4
_THREADS_PER_WARP = 32


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What an SM (or CU) has. ``reserved_bytes`` of its shared memory are gone for each CTA; ``registers`` 0 means
    that they are not reckoned with."""

    shared_bytes: int
    reserved_bytes: int
    cta_shared_bytes: int
    ctas: int
    warps: int
    registers: int = 64 * _KIB


_LIMITS = {
    "cuda:75": SmLimits(64 * _KIB, 0, 64 * _KIB, 16, 32),
    "cuda:80": SmLimits(164 * _KIB, _KIB, 163 * _KIB, 32, 64),
    "cuda:86": SmLimits(100 * _KIB, _KIB, 99 * _KIB, 16, 48),
    "cuda:87": SmLimits(164 * _KIB, _KIB, 163 * _KIB, 16, 48),
    "cuda:89": SmLimits(100 * _KIB, _KIB, 99 * _KIB, 24, 48),
    "cuda:90": SmLimits(228 * _KIB, _KIB, 227 * _KIB, 32, 64),
    "cuda:100": SmLimits(228 * _KIB, _KIB, 227 * _KIB, 32, 64),
    "cuda:103": SmLimits(228 * _KIB, _KIB, 227 * _KIB, 32, 64),
    "cuda:120": SmLimits(100 * _KIB, _KIB, 99 * _KIB, 24, 48),
    "hip:gfx942": SmLimits(64 * _KIB, 0, 64 * _KIB, 32, 32, 0),
    "hip:gfx950": SmLimits(160 * _KIB, 0, 160 * _KIB, 32, 32, 0),
}
# Of a device that the tables do not know: what any has.
_LEAST = SmLimits(64 * _KIB, _KIB, 48 * _KIB, 16, 32)


def limits_of(target: str) -> SmLimits:
    """Of a target such as ``cuda:90``; of one that is not known, what any device has."""
    return _LIMITS.get(target, _LEAST)


def ctas_per_sm(limits: SmLimits, shared_bytes: int, warps: int, registers: int | None) -> int:
    """How many CTAs run on an SM at once; 0 if not even one does.

    A CTA has ``warps`` warps, ``shared_bytes`` of shared memory, and ``registers`` for each thread (None: unknown, and
    then no limit)."""
    if shared_bytes > limits.cta_shared_bytes:
        return 0
    fitting = [limits.ctas, limits.warps // warps]
    taken_bytes = _up_to(shared_bytes, _SHARED_UNIT_BYTES) + limits.reserved_bytes
    if taken_bytes:
        fitting.append(limits.shared_bytes // taken_bytes)
    if registers and limits.registers:
        warps_with_registers = limits.registers // _up_to(registers * _THREADS_PER_WARP, _REGISTER_UNIT)
        fitting.append(warps_with_registers // _WARP_UNIT * _WARP_UNIT // _up_to(warps, _WARP_UNIT))
    return min(fitting)


def _up_to(value: int, unit: int) -> int:
    return -(-value // unit) * unit


# What a kernel costs: by itself, and with records in it.


@dataclass(frozen=True, slots=True)
class KernelCost:
    """What one build of a kernel takes; None is unknown. ``times_ns`` are of single launches, in their order.

    ``spills`` counts as the driver does; ``ctas_per_sm`` is how many CTAs of it fit on an SM at once. ``not_timed``
    says why there are no times, in words that follow *for*; empty if nobody said."""

    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    ctas_per_sm: int | None = None
    times_ns: tuple[float, ...] | None = None
    not_timed: str = ""


UNKNOWN_COST = KernelCost()


def cost_with_records(kernel: KernelRecord, timing: TimingRecord | None) -> KernelCost:
    """Of the kernel as it was captured. A program that was killed saved no times."""
    shared_bytes = kernel.known_metadata.shared
    times_ns, not_timed = (timing.times_ns, timing.not_timed or "") if timing else (None, "")
    return KernelCost(kernel.registers, kernel.spills, shared_bytes, kernel.ctas_per_sm, times_ns, not_timed)


def clean_cost(kernel: KernelRecord) -> KernelCost:
    """Of the same kernel without records. Captures made before its times were taken know its shared memory alone."""
    clean = kernel.clean
    shared_bytes = kernel.known_clean_metadata.shared if clean.shared_bytes is None else clean.shared_bytes
    return KernelCost(
        clean.registers, clean.spills, shared_bytes, clean.ctas_per_sm, clean.times_ns, clean.not_timed or ""
    )


# What limits how many CTAs of a kernel an SM has room for.

_ENDLESS = 1 << 20


def limited_by(metadata: Mapping[str, Any], num_warps: int, cost: KernelCost) -> str:
    """The resources that are used up first, such as ``shared memory``; empty if it cannot be told: the driver told
    another number of CTAs than the vendors' tables give."""
    target = metadata.get("target")
    if not isinstance(target, dict) or cost.ctas_per_sm is None or num_warps < 1:
        return ""
    limits = limits_of(f"{target.get('backend')}:{target.get('arch')}")
    rooms = _rooms(limits, num_warps, cost)
    least = min(rooms.values())
    return " and ".join(what for what, room in rooms.items() if room == least) if least == cost.ctas_per_sm else ""


def _rooms(limits: SmLimits, warps: int, cost: KernelCost) -> dict[str, int]:
    """How many CTAs there would be room for if only that one thing were limited."""
    endless = replace(limits, shared_bytes=_ENDLESS * limits.cta_shared_bytes, ctas=_ENDLESS, warps=_ENDLESS * warps)
    only_registers = ctas_per_sm(endless, 0, warps, cost.registers)
    endless = replace(endless, registers=0)
    return {
        "shared memory": ctas_per_sm(
            replace(endless, shared_bytes=limits.shared_bytes), cost.shared_bytes or 0, warps, None
        ),
        "registers": only_registers,
        "warps": ctas_per_sm(replace(endless, warps=limits.warps), 0, warps, None),
        "CTAs": ctas_per_sm(replace(endless, ctas=limits.ctas), 0, warps, None),
    }


# What a record costs where a capture does not say: figures of ``scripts/record-costs``, which prints these rows.

Settings = tuple[str, int, bool, bool]
"""Of the mode: ``buffer``, ``clock_bits``, ``sched_stores``, and whether ``warps`` names some."""

SHIPPED: Mapping[tuple[str, str], Mapping[Settings, tuple[float, float, float]]] = {
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
"""Cycles of a start, cycles of an end, and by how many either may be off (see ``RecordCost``): by the device's name and
Triton's minor version, as in ``("NVIDIA H200", "3.6")``, then by the mode."""


# What one record costs: the time that a warp takes longer for each.


@dataclass(frozen=True, slots=True)
class RecordCost:
    """Cycles of the SM's counter that a record adds to the distance to the next one, on one device and in one ``Mode``:
    the start and the end of a scope. They differ where stores are moved, from behind the start to behind the end.

    How much it is hangs on what stands beside the record: work may be done while the record is being made. So each is
    the middle between the least and the most that was measured, next to other records and next to work, and what a
    record really adds may be ``error_cycles`` more or less. ``source`` says where the figures come from: "measured" on
    that device when the capture was made, or "shipped", measured by us on a device of the same name."""

    after_start_cycles: float
    after_end_cycles: float
    error_cycles: float
    source: str

    @property
    def cycles(self) -> float:
        """Of a record in the mean."""
        return (self.after_start_cycles + self.after_end_cycles) / 2


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


class MeasuredCost(Struct, frozen=True):
    """What was measured for one ``CostKey``, whose fields come first: all in cycles from a record's clock reading to
    that of the next record of the same warp.

    ``after_start_cycles`` and ``after_end_cycles`` are what follows the start and what follows the end of a scope, in a
    loop, where the next record stands right behind; ``cycles`` is their mean. The two ``beside_work`` are what is left
    of the distance where work stands between, less that work. ``straight_cycles`` is ``cycles`` outside of loops. Of
    what was measured of a place in the code without work, half lies within ``spread_cycles``; ``samples`` is how many
    there were in all."""

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
        return CostKey(self.device_name, self.triton, self.buffer, self.clock_bits, self.sched_stores, self.some_warps)

    @property
    def record_cost(self) -> RecordCost:
        """What is to be subtracted for a record of this key."""
        start = [self.after_start_cycles, self.after_start_beside_work_cycles]
        end = [self.after_end_cycles, self.after_end_beside_work_cycles]
        if not self.sched_stores:
            # The same instructions: how the compiler mixes them with the work was not the kind of record's doing.
            start = end = start + end
        error_cycles = max((max(costs) - min(costs)) / 2 for costs in (start, end))
        return RecordCost(_middle(start), _middle(end), error_cycles, "measured")


def _middle(costs: Sequence[float]) -> float:
    return (min(costs) + max(costs)) / 2


class _CostsFile(Struct, frozen=True):
    costs: tuple[MeasuredCost, ...]


def read_costs(path: Path, run: str = "") -> dict[CostKey, MeasuredCost]:
    """The costs that were saved in a file; none if there is no such file. Raises ``KprofError`` if it is damaged, or if
    ``run`` (see ``ProcessRecord``) is not empty and the file is of another."""
    if not os.path.lexists(path):
        return {}
    text = read_json(path, path.parent)
    if run:
        require_seal(text, run, str(path))
    return {cost.key: cost for cost in decode(text, _CostsFile, str(path)).costs}


def write_costs(path: Path, costs: Iterable[MeasuredCost], run: str = "") -> None:
    """Replace the file by one with these costs, which are for a capture of ``run`` if that is not empty."""
    write_bytes(path, sealed(msgspec.json.format(encode(_CostsFile(tuple(costs))), indent=1), run) + b"\n")


def cost_of(key: CostKey, measured: Mapping[CostKey, MeasuredCost]) -> RecordCost | None:
    """What is known of a record's cost: what was measured, else what is shipped for the device's name."""
    if key in measured:
        return measured[key].record_cost
    minor = ".".join(key.triton.split(".")[:2])
    mode = (key.buffer, key.clock_bits, key.sched_stores, key.some_warps)
    shipped = SHIPPED.get((key.device_name, minor), {}).get(mode)
    return RecordCost(*shipped, "shipped") if shipped else None
