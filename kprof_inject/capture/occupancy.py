"""How many CTAs of a kernel an SM has room for, by the vendors' tables; no device is asked.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" and "Shared Memory" of each
capability (what is reserved for a CTA); AMD Instinct ISA guides (LDS, waves per CU).
"""

from __future__ import annotations

from dataclasses import dataclass

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
