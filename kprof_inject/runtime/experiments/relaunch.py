"""Repeat a launch, with any build of its kernel and the same arguments, in a process of ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.devices.device import Device, MemoryRange
from kprof_inject.runtime.launch.recorded_launch import HOOK_ARGUMENTS


class NotReplayable(Exception):
    """Error that a kernel cannot be launched again; its text is the reason, in words that follow *because*."""


class LaunchMemory(Protocol):
    """Memory that repeated launches work on."""

    def refresh(self, stream: int) -> None:
        """Restore what the launch begins with, in the order of ``stream``."""

    def digest(self, stream: int) -> tuple[int, ...] | None:
        """Return a digest of each range of the memory after all present work of ``stream``; None if unknown."""


def digests_of(device: Device, ranges: Iterable[MemoryRange], stream: int) -> tuple[int, ...] | None:
    """Return a digest of each range's contents; None if the device cannot compute it."""
    digests: list[int] = []
    for memory in ranges:
        value = device.digest(memory.address, memory.size_bytes, stream)
        if value is None:
            return None
        digests.append(value)
    return tuple(digests)


@dataclass(frozen=True, slots=True)
class Address:
    """Replacement for a tensor in a launcher's arguments, since a launcher reads only the address of a tensor."""

    value: int

    def data_ptr(self) -> int:
        """Return the address, as a tensor does."""
        return self.value


# Triton's launchers take a profiler's hooks and their argument. No profiler must see these launches.
NO_HOOKS = (None,) * HOOK_ARGUMENTS


@dataclass(frozen=True, slots=True)
class Relaunch:
    """A launch that can be repeated.

    ``arguments`` are the kernel's own, with addresses instead of tensors, so that they do not keep any memory.
    """

    grid: Grid
    stream: int
    arguments: tuple[Any, ...]

    def launch(self, kernel: Any) -> None:
        """Launch a loaded Triton kernel. Call this within ``own_scratch``."""
        kernel.run(*self.grid, self.stream, kernel.function, kernel.packed_metadata, *NO_HOOKS, *self.arguments)
