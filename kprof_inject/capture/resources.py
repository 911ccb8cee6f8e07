"""What a build of a kernel takes of an SM, and how many of its CTAs fit there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kprof_inject.capture.schema import KernelRecord, TimingRecord

# How many CTAs an SM has room for goes by the vendors' tables; no device is asked. Sources: CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability" and "Shared Memory" of each capability (what is reserved for a CTA);
# AMD Instinct ISA guides (LDS, waves per CU).

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


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What one build of a kernel takes; None is unknown."""

    registers: int | None = None
    spills: int | None = None
    """As the driver counts them."""
    shared_bytes: int | None = None
    ctas_per_sm: int | None = None
    """How many CTAs of it fit on an SM at once."""
    times_ns: tuple[float, ...] | None = None
    """Of single launches, in their order."""
    not_timed: str = ""
    """Why there are no times, in words that follow *for*; empty if nobody said."""
    replayed_ns: tuple[float, ...] | None = None
    """How long a launch took when the kernel was launched again, in turn with the other build; None if it was not."""
    empty_launch_ns: float | None = None
    """What of ``times_ns`` is not the kernel's: an empty kernel takes as long. None if it was not measured."""
    empty_replay_ns: float | None = None
    """The same of ``replayed_ns``."""

    @property
    def has_empty_times(self) -> bool:
        """True if it was measured for all times that there are."""
        pairs = ((self.times_ns, self.empty_launch_ns), (self.replayed_ns, self.empty_replay_ns))
        return all(empty_ns is not None for times_ns, empty_ns in pairs if times_ns)

    def without_launching(self) -> KernelResources:
        """Return the same with times of the kernel alone, as far as the time of an empty one is known."""
        return replace(
            self,
            times_ns=without_empty(self.times_ns, self.empty_launch_ns),
            replayed_ns=without_empty(self.replayed_ns, self.empty_replay_ns),
        )


# What it takes, a timer with this step can tell: 32 ns on an H100 and an H200.
_MIN_TIME_NS = 32.0


def without_empty(times_ns: tuple[float, ...] | None, empty_ns: float | None) -> tuple[float, ...] | None:
    """Return launch times without what an empty kernel takes. None and unknown stay as they are."""
    if times_ns is None or empty_ns is None:
        return times_ns
    return tuple(max(time_ns - empty_ns, _MIN_TIME_NS) for time_ns in times_ns)


UNKNOWN_RESOURCES = KernelResources()


def resources_with_records(kernel: KernelRecord, timing: TimingRecord | None) -> KernelResources:
    """Of the kernel as it was captured. A program that was killed saved no times."""
    built = KernelResources(kernel.registers, kernel.spills, kernel.known_metadata.shared, kernel.ctas_per_sm)
    if timing is None:
        return built
    replay = timing.replay
    return replace(
        built,
        times_ns=timing.times_ns,
        not_timed=timing.not_timed or "",
        replayed_ns=replay.with_records_ns if replay else None,
        empty_launch_ns=timing.empty_launch_ns,
        empty_replay_ns=replay.with_records_empty_ns if replay else None,
    )


def clean_resources(kernel: KernelRecord, timing: TimingRecord | None) -> KernelResources:
    """Of the same kernel without records. Captures made before its times were taken know its shared memory alone."""
    clean = kernel.clean
    shared_bytes = kernel.known_clean_metadata.shared if clean.shared_bytes is None else clean.shared_bytes
    replay = timing.replay if timing else None
    return KernelResources(
        clean.registers,
        clean.spills,
        shared_bytes,
        clean.ctas_per_sm,
        clean.times_ns,
        clean.not_timed or "",
        replay.clean_ns if replay else None,
        clean.empty_launch_ns,
        replay.clean_empty_ns if replay else None,
    )


_ENDLESS = 1 << 20


def limited_by(target: str, num_warps: int, cost: KernelResources) -> str:
    """The resources that are used up first, such as ``shared memory``; empty if it cannot be told: the driver told
    another number of CTAs than the vendors' tables give."""
    if not target or cost.ctas_per_sm is None or num_warps < 1:
        return ""
    limits = limits_of(target)
    rooms = _rooms(limits, num_warps, cost)
    least = min(rooms.values())
    return " and ".join(what for what, room in rooms.items() if room == least) if least == cost.ctas_per_sm else ""


def _rooms(limits: SmLimits, warps: int, cost: KernelResources) -> dict[str, int]:
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
