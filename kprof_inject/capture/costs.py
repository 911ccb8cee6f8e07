"""What a capture says a kernel costs: by itself, and with records in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kprof_inject.capture.format import KERNEL_FILE, TIMING_FILE
from kprof_inject.errors import KprofError
from kprof_inject.files import object_with, read_object


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


def cost_with_records(folder: Path, kernel: dict[str, Any]) -> KernelCost:
    """Of the kernel as it was captured. ``kernel`` is what its ``kernel.json`` in ``folder`` holds."""
    path = folder / TIMING_FILE
    # A program that was killed saved no times.
    timing = read_object(path, "times_ns") if path.exists() else {}
    return _cost(path, {**kernel, "shared_bytes": kernel["metadata"].get("shared"), **timing})


def clean_cost(folder: Path, kernel: dict[str, Any]) -> KernelCost:
    """Of the same kernel without records. Captures made before its times were taken know its shared memory alone."""
    path = folder / KERNEL_FILE
    metadata, clean = (object_with((), kernel.get(key) or {}, path) for key in ("clean_metadata", "clean"))
    return _cost(path, {"shared_bytes": metadata.get("shared"), **clean})


def _cost(path: Path, values: dict[str, Any]) -> KernelCost:
    times = values.get("times_ns")
    try:
        times_ns = None if times is None else tuple(map(float, times))
    except (TypeError, ValueError):
        raise KprofError(f"{path} is damaged: its times are no numbers", hint="capture again") from None
    return KernelCost(
        values.get("registers"),
        values.get("spills"),
        values.get("shared_bytes"),
        values.get("ctas_per_sm"),
        times_ns,
        values.get("not_timed") or "",
    )
