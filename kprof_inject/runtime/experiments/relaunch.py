"""Repeat a launch, with any build of its kernel and the same arguments, in a process of ours; compare the results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.devices.device import Device, MemoryRange
from kprof_inject.runtime.launch.recorded_launch import HOOK_ARGUMENTS


class NotReplayable(Exception):
    """Error that a kernel cannot be launched again; its text is the reason, in words that follow *because*."""


Digests = tuple[int, ...] | None
"""Digest of each range of a launch's memory; None if the device cannot compute it."""


class LaunchMemory(Protocol):
    """Memory that repeated launches work on."""

    def refresh(self, stream: int) -> None:
        """Restore what the launch begins with, in the order of ``stream``."""

    def digest(self, stream: int) -> Digests:
        """Return the digests of the memory after all present work of ``stream``."""


def digests_of(device: Device, ranges: Iterable[MemoryRange], stream: int) -> Digests:
    """Return the digests of the ranges' contents."""
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
        no_hooks = (None,) * HOOK_ARGUMENTS  # no profiler must see these launches
        kernel.run(*self.grid, self.stream, kernel.function, kernel.packed_metadata, *no_hooks, *self.arguments)


OTHER_RESULTS = "its results differ from those of the unchanged kernel"


class Results(Protocol):
    """Judge of the results of variants, which are in memory when it is called."""

    def note(self, digest: Digests) -> None:
        """Note what the unchanged kernel has left in memory. It is called after each of its first launches."""

    def refusal_of(self, place: int, digest: Digests) -> str:
        """Return why the results of a variant are refused; empty if they are accepted."""


@dataclass(slots=True)
class SameResults:
    """Accept the same bytes alone; everything if the unchanged kernel's results differ from launch to launch."""

    _noted: list[Digests] = field(default_factory=list)

    def note(self, digest: Digests) -> None:
        """Note a digest."""
        self._noted.append(digest)

    def refusal_of(self, place: int, digest: Digests) -> str:
        """Compare the digests."""
        first = self._noted[0]
        is_repeatable = first is not None and len(set(self._noted)) == 1
        return OTHER_RESULTS if is_repeatable and digest != first else ""
