"""Resources that a build of a kernel uses on an SM, and the number of its CTAs that fit there."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.capture.schema import KernelRecord, TimingRecord

# The number of CTAs that fit on an SM is computed from the vendors' tables, without querying a device. Sources: CUDA
# C++ Programming Guide, "Technical Specifications per Compute Capability" and "Shared Memory" of each capability (what
# is reserved for a CTA); AMD Instinct ISA guides (LDS, waves per CU).

_KIB = 1024
# Allocation units: bytes of shared memory, registers of a warp, and warps: each of the SM's four schedulers has a
# quarter of the registers, for whole warps (CUDA's cuda_occupancy.h, cudaOccMaxBlocksPerSMRegsLimit).
_SHARED_UNIT_BYTES = 128
_REGISTER_UNIT = 256
_WARP_UNIT = 4
_MAX_REGISTERS = 255
THREADS_PER_WARP = 32
"""On NVIDIA's GPUs."""
BLACKWELL = 100
"""First architecture of NVIDIA with tensor memory, and on which Triton specializes the warps of a loop (tl.range)."""


class SmLimits(Struct, frozen=True):
    """Capacity of an SM (or CU).

    ``reserved_bytes`` of its shared memory are reserved for each CTA; ``registers`` 0 means that they are not a limit.
    """

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
# Minimum of all devices, for devices that the tables lack.
_UNKNOWN_DEVICE = SmLimits(64 * _KIB, _KIB, 48 * _KIB, 16, 32)


def limits_of(target: str) -> SmLimits:
    """Return the limits of a target such as ``cuda:90``; for an unknown target, what every device has."""
    return _LIMITS.get(target, _UNKNOWN_DEVICE)


def ctas_per_sm(limits: SmLimits, shared_bytes: int, warps: int, registers: int | None) -> int:
    """Return how many CTAs run on an SM at once; 0 if not even one does.

    A CTA has ``warps`` warps, ``shared_bytes`` of shared memory, and ``registers`` for each thread (None: unknown, and
    then no limit).
    """
    if shared_bytes > limits.cta_shared_bytes:
        return 0
    fitting = [limits.ctas, limits.warps // warps]
    taken_bytes = _up_to(shared_bytes, _SHARED_UNIT_BYTES) + limits.reserved_bytes
    if taken_bytes:
        fitting.append(limits.shared_bytes // taken_bytes)
    if registers and limits.registers:
        warps_with_registers = limits.registers // _up_to(registers * THREADS_PER_WARP, _REGISTER_UNIT)
        fitting.append(warps_with_registers // _WARP_UNIT * _WARP_UNIT // warps)
    return min(fitting)


def registers_for(limits: SmLimits, shared_bytes: int, warps: int, ctas: int) -> int | None:
    """Return how many registers a thread may have so that this many CTAs fit on an SM; None if they never do."""
    of_warp = _REGISTER_UNIT // THREADS_PER_WARP
    for registers in range(_MAX_REGISTERS // of_warp * of_warp, 0, -of_warp):
        if ctas_per_sm(limits, shared_bytes, warps, registers) >= ctas:
            return registers
    return None


def _up_to(value: int, unit: int) -> int:
    return -(-value // unit) * unit


class KernelResources(Struct, frozen=True):
    """Resources that one build of a kernel uses; None is unknown."""

    registers: int | None = None
    spills: int | None = None
    """Spills as the driver counts them."""
    shared_bytes: int | None = None
    ctas_per_sm: int | None = None
    """Number of its CTAs that fit on an SM at once."""
    times_ns: tuple[float, ...] | None = None
    """Times of single launches, in their order."""
    not_timed: str = ""
    """Reason why there are no times, in words that follow *for*; empty if unknown."""
    replayed_ns: tuple[float, ...] | None = None
    """Times of launches by replay, interleaved with the other build; None if it was not replayed."""
    empty_launch_ns: float | None = None
    """Part of ``times_ns`` that is not the kernel's: the time of an empty kernel. None if it was not measured."""
    empty_replay_ns: float | None = None
    """Part of ``replayed_ns`` that is not the kernel's."""
    in_turn: bool = False
    """True if ``times_ns`` are of launches in turn with those of the other build, each next to its own."""

    @property
    def has_empty_times(self) -> bool:
        """True if the time of an empty kernel was measured for all times that there are."""
        pairs = ((self.times_ns, self.empty_launch_ns), (self.replayed_ns, self.empty_replay_ns))
        return all(empty_ns is not None for times_ns, empty_ns in pairs if times_ns)

    def without_launching(self) -> KernelResources:
        """Return the resources with times of the kernel alone, as far as the time of an empty one is known."""
        return replace(
            self,
            times_ns=without_empty(self.times_ns, self.empty_launch_ns),
            replayed_ns=without_empty(self.replayed_ns, self.empty_replay_ns),
        )


# Shortest time that a timer with this step can measure: 32 ns on an H100 and an H200.
_MIN_TIME_NS = 32.0


def without_empty(times_ns: tuple[float, ...] | None, empty_ns: float | None) -> tuple[float, ...] | None:
    """Subtract the time of an empty kernel from launch times; None and unknown stay as they are."""
    if times_ns is None or empty_ns is None:
        return times_ns
    return tuple(max(time_ns - empty_ns, _MIN_TIME_NS) for time_ns in times_ns)


UNKNOWN_RESOURCES = KernelResources()


def resources_with_records(kernel: KernelRecord, timing: TimingRecord | None) -> KernelResources:
    """Return the resources of the kernel as it was captured; a program that was killed saved no times."""
    built = KernelResources(
        registers=kernel.registers,
        spills=kernel.spills,
        shared_bytes=kernel.known_metadata.shared,
        ctas_per_sm=kernel.ctas_per_sm,
    )
    if timing is None:
        return built
    replay, in_turn = timing.replay, timing.in_turn
    return replace(
        built,
        times_ns=in_turn.with_records_ns if in_turn else timing.times_ns,
        not_timed=timing.not_timed or "",
        replayed_ns=replay.with_records_ns if replay else None,
        empty_launch_ns=in_turn.with_records_empty_ns if in_turn else timing.empty_launch_ns,
        empty_replay_ns=replay.with_records_empty_ns if replay else None,
        in_turn=in_turn is not None,
    )


def clean_resources(kernel: KernelRecord, timing: TimingRecord | None) -> KernelResources:
    """Return the resources of the kernel without records.

    Captures made before its times were measured only have its shared memory.
    """
    clean = kernel.clean
    shared_bytes = kernel.known_clean_metadata.shared if clean.shared_bytes is None else clean.shared_bytes
    replay = timing.replay if timing else None
    in_turn = timing.in_turn if timing else None
    return KernelResources(
        registers=clean.registers,
        spills=clean.spills,
        shared_bytes=shared_bytes,
        ctas_per_sm=clean.ctas_per_sm,
        times_ns=in_turn.clean_ns if in_turn else clean.times_ns,
        not_timed=(timing.not_timed if timing and in_turn else clean.not_timed) or "",
        replayed_ns=replay.clean_ns if replay else None,
        empty_launch_ns=in_turn.clean_empty_ns if in_turn else clean.empty_launch_ns,
        empty_replay_ns=replay.clean_empty_ns if replay else None,
        in_turn=in_turn is not None,
    )


# Stands for no limit, and does not overflow when it is multiplied.
_UNLIMITED = 1 << 20


def limited_by(target: str, num_warps: int, cost: KernelResources) -> str:
    """Return the resources that limit occupancy, such as ``shared memory``.

    Empty if that is unknown, or if the driver's number of CTAs differs from the vendors' tables.
    """
    if not target or cost.ctas_per_sm is None or num_warps < 1:
        return ""
    limits = limits_of(target)
    rooms = _rooms(limits, num_warps, cost)
    ctas = min(rooms.values())
    return " and ".join(what for what, room in rooms.items() if room == ctas) if ctas == cost.ctas_per_sm else ""


def _rooms(limits: SmLimits, warps: int, cost: KernelResources) -> dict[str, int]:
    """Return, for each resource, how many CTAs would fit if it were the only limit."""
    unlimited = replace(
        limits, shared_bytes=_UNLIMITED * limits.cta_shared_bytes, ctas=_UNLIMITED, warps=_UNLIMITED * warps
    )
    only_registers = ctas_per_sm(unlimited, 0, warps, cost.registers)
    unlimited = replace(unlimited, registers=0)
    return {
        "shared memory": ctas_per_sm(
            replace(unlimited, shared_bytes=limits.shared_bytes), cost.shared_bytes or 0, warps, None
        ),
        "registers": only_registers,
        "warps": ctas_per_sm(replace(unlimited, warps=limits.warps), 0, warps, None),
        "CTAs": ctas_per_sm(replace(unlimited, ctas=limits.ctas), 0, warps, None),
    }
