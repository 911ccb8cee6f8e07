"""An empty kernel, timed as other launches are: its time is the part of a time by events that is not the kernel's.

Between two events the device also reads the launch from its queue, sets its SMs up for it, and waits for all of it to
have ended: 2 to 4 µs, by the kernel's threads and shared memory. So the empty kernel has as many of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kprof_inject.runtime.devices.device import Device

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
        """Return the empty kernel for Triton's metadata of a compiled kernel, or for what a capture keeps of that."""
        warp_size = metadata.target.warp_size if metadata.target else _WARP_SIZE
        return cls((metadata.num_warps or 1) * warp_size, metadata.shared or 0)

    def launch(self, device: Device, stream: int) -> None:
        """Launch it on a stream."""
        device.launch_empty(stream, self.threads, self.shared_bytes)
