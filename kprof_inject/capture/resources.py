"""Resources that a build of a kernel uses on an SM, and the number of its CTAs that fit there."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from kprof_inject.capture.schema import Count, DurationNs, Grid, RingBytes, Text, require_measured

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
THREADS_PER_WARP = 32  # on NVIDIA's GPUs


class SmLimits(Struct, frozen=True):
    """Capacity of an SM (or CU); it reserves ``reserved_bytes`` for each CTA, and 0 ``registers`` are no limit."""

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
    """Return the number of CTAs that an SM runs at once; ``registers`` are a thread's, and unknown ones no limit."""
    return min(_ctas_by_resource(limits, shared_bytes, warps, registers).values())


def _ctas_by_resource(limits: SmLimits, shared_bytes: int, warps: int, registers: int | None) -> dict[str, int]:
    fitting = {}
    taken_bytes = _up_to(shared_bytes, _SHARED_UNIT_BYTES) + limits.reserved_bytes
    if shared_bytes > limits.cta_shared_bytes:
        fitting["shared memory"] = 0
    elif taken_bytes:
        fitting["shared memory"] = limits.shared_bytes // taken_bytes
    if registers and limits.registers:
        warps_with_registers = limits.registers // _up_to(registers * THREADS_PER_WARP, _REGISTER_UNIT)
        fitting["registers"] = warps_with_registers // _WARP_UNIT * _WARP_UNIT // warps
    return fitting | {"warps": limits.warps // warps, "CTAs": limits.ctas}


def registers_for(limits: SmLimits, shared_bytes: int, warps: int, ctas: int) -> int | None:
    """Return how many registers a thread may have so that this many CTAs fit on an SM; None if they never do."""
    of_warp = _REGISTER_UNIT // THREADS_PER_WARP
    for registers in range(_MAX_REGISTERS // of_warp * of_warp, 0, -of_warp):
        if ctas_per_sm(limits, shared_bytes, warps, registers) >= ctas:
            return registers
    return None


def _up_to(value: int, unit: int) -> int:
    return -(-value // unit) * unit


class Resources(Struct, frozen=True):
    """Resources that one build of a kernel uses; None is unknown."""

    registers: Annotated[int, Meta(ge=0, lt=1 << 16)] | None = None
    spills: Count | None = None
    local_words: Count | None = None
    shared_bytes: RingBytes | None = None
    ctas_per_sm: Annotated[int, Meta(ge=0, lt=1 << 16)] | None = None


class KernelResources(Resources, frozen=True, kw_only=True):
    """Resources of a build, with the times of its launches; None is unknown.

    ``spills`` are counted as the driver does, ``local_words`` are all 32-bit words of a thread's local memory.

    ``times_ns`` are times of single launches, in their order; without them, ``not_timed`` is the reason, in words that
    follow *because*. ``replayed_ns`` are times of launches by replay, interleaved with the other build.
    ``empty_launch_ns`` and ``empty_replay_ns`` are the times of an empty kernel, measured in the same way. With
    ``in_turn``, ``times_ns`` are of launches in turn with the other build's. ``launches`` is the number of launches
    that were counted.
    """

    times_ns: tuple[DurationNs, ...] | None = None
    not_timed: Text | None = None
    empty_launch_ns: DurationNs | None = None
    launches: Count | None = None
    replayed_ns: tuple[DurationNs, ...] | None = None
    empty_replay_ns: DurationNs | None = None
    in_turn: bool = False

    def __post_init__(self) -> None:
        require_measured(self.times_ns or (), "times_ns")

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


_MIN_TIME_NS = 32.0  # shortest time that a timer with this step can measure: 32 ns on an H100 and an H200


def without_empty(times_ns: tuple[float, ...] | None, empty_ns: float | None) -> tuple[float, ...] | None:
    """Subtract the time of an empty kernel from launch times; None and unknown stay as they are."""
    if times_ns is None or empty_ns is None:
        return times_ns
    return tuple(max(time_ns - empty_ns, _MIN_TIME_NS) for time_ns in times_ns)


class PairedTimesRecord(Struct, frozen=True, kw_only=True):
    """Times of launches of a kernel without records and with them, in turn: the n-th of both are a pair.

    Each is the time of ``launches`` launches back to back, divided by their number. ``restored`` is true if the
    kernel's memory was restored before each launch. ``*_empty_ns`` are the times of an empty kernel.
    """

    clean_ns: tuple[DurationNs, ...]
    with_records_ns: tuple[DurationNs, ...]
    launches: Annotated[int, Meta(ge=1, lt=1 << 16)] = 1
    restored: bool = False
    clean_empty_ns: DurationNs | None = None
    with_records_empty_ns: DurationNs | None = None

    def __post_init__(self) -> None:
        if len(self.clean_ns) != len(self.with_records_ns):
            raise ValueError("expected as many times with records as without")
        require_measured(self.clean_ns, "clean_ns")
        require_measured(self.with_records_ns, "with_records_ns")


MAX_GRIDS = 256  # grids of a kernel whose launches a capture counts one by one


class GridTimesRecord(Struct, frozen=True, kw_only=True):
    """Launches of a kernel with one grid: their number in the process, and times of some, launching included."""

    grid: Grid
    launches: Count
    clean_ns: tuple[DurationNs, ...] = ()

    def __post_init__(self) -> None:
        require_measured(self.clean_ns, "clean_ns")


class TimingRecord(Struct, frozen=True):
    """Content of ``timing.json``: device times of single launches, in their order, and those of replays.

    Reasons are in words that follow *because*. ``empty_launch_ns`` is the time of an empty kernel. ``in_turn`` has
    launches of the program itself, if it ran only once; ``grids`` counts all launches of its variant, if by several.
    """

    times_ns: tuple[DurationNs, ...]
    not_timed: Text | None = None
    replay: PairedTimesRecord | None = None
    not_replayed: Text | None = None
    empty_launch_ns: DurationNs | None = None
    in_turn: PairedTimesRecord | None = None
    grids: Annotated[tuple[GridTimesRecord, ...], Meta(max_length=MAX_GRIDS)] = ()

    def __post_init__(self) -> None:
        require_measured(self.times_ns, "times_ns")

    def added_to(
        self, clean: KernelResources, with_records: KernelResources
    ) -> tuple[KernelResources, KernelResources]:
        """Return the resources of the builds without and with records, with these times."""
        times_ns, empty_ns = self.times_ns, self.empty_launch_ns
        if pairs := self.in_turn:
            times_ns, empty_ns = pairs.with_records_ns, pairs.with_records_empty_ns
            clean = replace(clean, times_ns=pairs.clean_ns, empty_launch_ns=pairs.clean_empty_ns, in_turn=True)
            clean = replace(clean, not_timed=self.not_timed)
            with_records = replace(with_records, in_turn=True)
        with_records = replace(with_records, times_ns=times_ns, empty_launch_ns=empty_ns, not_timed=self.not_timed)
        if pairs := self.replay:
            clean = replace(clean, replayed_ns=pairs.clean_ns, empty_replay_ns=pairs.clean_empty_ns)
            with_records = replace(
                with_records, replayed_ns=pairs.with_records_ns, empty_replay_ns=pairs.with_records_empty_ns
            )
        return clean, with_records


def limited_by(target: str, num_warps: int, cost: KernelResources) -> str:
    """Return the resources that limit occupancy, such as ``shared memory``; empty unless the tables agree with CUDA."""
    if not target or cost.ctas_per_sm is None or num_warps < 1:
        return ""
    fitting = _ctas_by_resource(limits_of(target), cost.shared_bytes or 0, num_warps, cost.registers)
    ctas = min(fitting.values())
    return " and ".join(what for what, count in fitting.items() if count == ctas) if ctas == cost.ctas_per_sm else ""
