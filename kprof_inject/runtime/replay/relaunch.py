"""A launch that the program makes, as it can be made again: with the same arguments, of any build of its kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from kprof_inject.runtime.launch.arguments import NOT_THE_KERNELS
from kprof_inject.runtime.launch.recorded_launch import Grid
from kprof_inject.runtime.replay.memory_copies import MemoryCopies, MemoryRange, memory_of, relocated

# Triton's launchers take what a profiler's hooks are called with, and the hooks: no profiler is to see these launches.
_HOOKS = (None,) * NOT_THE_KERNELS


@dataclass(frozen=True, slots=True)
class Launchable:
    """What of a kernel of Triton's a launch takes, with another launcher than the one that the kernel holds."""

    run: Callable[..., Any]
    function: Any
    packed_metadata: Any


@dataclass(frozen=True, slots=True)
class Relaunch:
    """``arguments`` are the kernel's own, with addresses in the place of tensors: nothing here keeps memory of the
    program's. ``memory`` is what they lead to."""

    grid: Grid
    stream: int
    arguments: tuple[Any, ...]
    memory: tuple[MemoryRange, ...]

    @classmethod
    def of(cls, signature: Mapping[str, str], grid: Grid, stream: int, arguments: tuple[Any, ...]) -> Relaunch:
        """``signature`` has the types of the kernel's arguments; ``arguments`` are all that a launcher takes behind the
        metadata. Raises ``NotReplayable``."""
        own = arguments[NOT_THE_KERNELS:]
        return Relaunch(grid, stream, relocated(own, lambda address: address), memory_of(own, signature))

    def on(self, copies: MemoryCopies) -> Self:
        """The same launch, whose arguments lead to copies of its memory."""
        return replace(self, arguments=relocated(self.arguments, copies.moved))

    def launch(self, kernel: Any) -> None:
        """Launch what Triton compiled, and loaded; or a ``Launchable``. This thread must lend it scratch memory."""
        kernel.run(*self.grid, self.stream, kernel.function, kernel.packed_metadata, *_HOOKS, *self.arguments)
