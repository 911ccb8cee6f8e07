"""Repeat a launch of the program, with the same arguments and any build of its kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from kprof_inject.runtime.launch.arguments import HOOK_ARGUMENTS
from kprof_inject.runtime.launch.recorded_launch import Grid
from kprof_inject.runtime.replay.memory_copies import MemoryCopies, MemoryRange, memory_of, relocated

# Triton's launchers take a profiler's hooks and their argument. No profiler must see these launches.
_HOOKS = (None,) * HOOK_ARGUMENTS


@dataclass(frozen=True, slots=True)
class Launchable:
    """A Triton kernel with another launcher than its own."""

    run: Callable[..., Any]
    function: Any
    packed_metadata: Any


@dataclass(frozen=True, slots=True)
class Relaunch:
    """A launch of the program that can be repeated.

    ``arguments`` are the kernel's own, with addresses instead of tensors, so that they do not keep the program's
    memory. ``memory`` is the memory that they point to.
    """

    grid: Grid
    stream: int
    arguments: tuple[Any, ...]
    memory: tuple[MemoryRange, ...]

    @classmethod
    def of(cls, signature: Mapping[str, str], grid: Grid, stream: int, arguments: tuple[Any, ...]) -> Relaunch:
        """Return the relaunch of a launch that is about to be made. Raises ``NotReplayable``.

        ``signature`` has the types of the kernel's arguments; ``arguments`` are all arguments of a launcher after the
        metadata.
        """
        own = arguments[HOOK_ARGUMENTS:]
        return Relaunch(grid, stream, relocated(own, lambda address: address), memory_of(own, signature))

    def on(self, copies: MemoryCopies) -> Self:
        """Return the same launch on copies of its memory."""
        return replace(self, arguments=relocated(self.arguments, copies.moved))

    def launch(self, kernel: Any) -> None:
        """Launch a loaded Triton kernel, or a ``Launchable``. Call this within ``own_scratch``."""
        kernel.run(*self.grid, self.stream, kernel.function, kernel.packed_metadata, *_HOOKS, *self.arguments)
