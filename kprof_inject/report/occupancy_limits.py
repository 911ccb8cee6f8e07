"""What limits how many CTAs of a kernel an SM has room for."""

from __future__ import annotations

from dataclasses import replace

from kprof_inject.capture.costs import KernelCost
from kprof_inject.capture.occupancy import SmLimits, ctas_per_sm, limits_of
from kprof_inject.capture.reader import Kernel

_ENDLESS = 1 << 20


def limited_by(kernel: Kernel, cost: KernelCost) -> str:
    """The resources that are used up first, such as ``shared memory``; empty if it cannot be told: the driver told
    another number of CTAs than the vendors' tables give."""
    target = kernel.metadata.get("target")
    if not isinstance(target, dict) or cost.ctas_per_sm is None or kernel.num_warps < 1:
        return ""
    limits = limits_of(f"{target.get('backend')}:{target.get('arch')}")
    rooms = _rooms(limits, kernel.num_warps, cost)
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
