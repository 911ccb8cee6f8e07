"""Launches of an empty kernel, whose time is the overhead in every time that events measure.

Between two events the device also reads the launch from its queue, sets up its SMs, and waits for all CTAs to end: 2 to
4 µs, depending on the kernel's threads and shared memory. So the empty kernel has as many of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kprof_inject.runtime.devices.device import Device

_WARP_SIZE = 32
SAMPLES = 10
"""Empty launches timed; their median ignores the first one, which loads the kernel."""


@dataclass(frozen=True, slots=True)
class EmptyKernel:
    """An empty kernel of one CTA, with the threads and shared memory of another kernel's CTAs."""

    threads: int
    shared_bytes: int

    @classmethod
    def like(cls, metadata: Any) -> EmptyKernel:
        """Return the empty kernel for a compiled kernel's metadata, Triton's own or a capture's copy."""
        warp_size = metadata.target.warp_size if metadata.target else _WARP_SIZE
        return cls((metadata.num_warps or 1) * warp_size, metadata.shared or 0)

    def launch(self, device: Device, stream: int) -> None:
        """Launch the empty kernel on ``stream``."""
        device.launch_empty(stream, self.threads, self.shared_bytes)
