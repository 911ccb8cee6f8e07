"""Times an empty kernel as launches are timed: that much of a time by events is not the kernel's.

Between two events the device also reads the launch from its queue, sets its SMs up for it, and waits for all of it to
have ended: 2 to 4 µs, by the kernel's threads and shared memory. So the empty kernel has as many of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.replay.back_to_back import BackToBack

_WARP_SIZE = 32
SAMPLES = 10
"""The median ignores the launch that loads the empty kernel."""


@dataclass(frozen=True, slots=True)
class EmptyKernel:
    """An empty kernel of one CTA, which has the threads and the shared memory of another kernel's CTAs."""

    threads: int
    shared_bytes: int

    @classmethod
    def like(cls, metadata: Any) -> EmptyKernel:
        """``metadata`` is Triton's of a compiled kernel, or what a capture keeps of that."""
        warp_size = metadata.target.warp_size if metadata.target else _WARP_SIZE
        return cls((metadata.num_warps or 1) * warp_size, metadata.shared or 0)

    def launch(self, device: Device, stream: int) -> None:
        device.launch_empty(stream, self.threads, self.shared_bytes)


def empty_ns(timed: BackToBack, kernel: EmptyKernel) -> float | None:
    """Return what a launch of the empty kernel takes where others are timed in the same way. It waits for them. None
    says that the host was too slow to tell."""
    launches: Sequence[Callable[[], None]] = [lambda: kernel.launch(timed.device, timed.stream)] * SAMPLES
    alike = replace(timed, restores=False)
    times_ns = alike.times_ns(alike.queued(launches))
    return median(times_ns) if alike.was_held else None
