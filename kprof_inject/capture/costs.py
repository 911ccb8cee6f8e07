"""What a kernel costs: by itself, and with records in it."""

from __future__ import annotations

from dataclasses import dataclass

from kprof_inject.capture.schema import KernelRecord, TimingRecord


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
