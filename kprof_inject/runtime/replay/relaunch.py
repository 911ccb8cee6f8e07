"""Makes a launch of the program's again: with the same arguments, of any build of its kernel."""

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
    """Kernel of Triton's with another launcher than its own."""

    run: Callable[..., Any]
    function: Any
    packed_metadata: Any


@dataclass(frozen=True, slots=True)
class Relaunch:
    """Launch of the program's that can be made again.

    ``arguments`` are the kernel's own, with addresses in place of tensors: nothing here keeps memory of the program's.
    ``memory`` is what they point to.
    """

    grid: Grid
    stream: int
    arguments: tuple[Any, ...]
    memory: tuple[MemoryRange, ...]

    @classmethod
    def of(cls, signature: Mapping[str, str], grid: Grid, stream: int, arguments: tuple[Any, ...]) -> Relaunch:
        """Return the relaunch of a launch that is about to be made. Raises ``NotReplayable``.

        ``signature`` has the types of the kernel's arguments; ``arguments`` are all that a launcher takes after the
        metadata.
        """
        own = arguments[NOT_THE_KERNELS:]
        return Relaunch(grid, stream, relocated(own, lambda address: address), memory_of(own, signature))

    def on(self, copies: MemoryCopies) -> Self:
        """Return the same launch on copies of its memory."""
        return replace(self, arguments=relocated(self.arguments, copies.moved))

    def launch(self, kernel: Any) -> None:
        """Launch a loaded kernel of Triton's, or a ``Launchable``. This thread must lend it scratch memory."""
        kernel.run(*self.grid, self.stream, kernel.function, kernel.packed_metadata, *_HOOKS, *self.arguments)
