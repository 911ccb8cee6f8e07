"""A launch that the program makes, as it can be made again: with the same arguments, of any build of its kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kprof_inject.runtime.launching.arguments import NOT_THE_KERNELS
from kprof_inject.runtime.launching.launch_buffers import Grid
from kprof_inject.runtime.launching.saved_memory import MemoryRange, memory_of, without_tensors

# Triton's launchers take what a profiler's hooks are called with, and the hooks: no profiler is to see these launches.
_HOOKS = (None,) * NOT_THE_KERNELS

_Kind = TypeVar("_Kind", bound="Again")


@dataclass(frozen=True, slots=True)
class Launchable:
    """What of a kernel of Triton's a launch takes, with another launcher than the one that the kernel holds."""

    run: Callable[..., Any]
    function: Any
    packed_metadata: Any


@dataclass(frozen=True, slots=True)
class Again:
    """``arguments`` are the kernel's own, ``memory`` is what they lead to."""

    grid: Grid
    stream: int
    arguments: tuple[Any, ...]
    memory: tuple[MemoryRange, ...]

    @classmethod
    def of(cls, signature: Mapping[str, str], grid: Grid, stream: int, arguments: tuple[Any, ...]) -> Again:
        """``signature`` has the types of the kernel's arguments; ``arguments`` are all that a launcher takes behind the
        metadata. Raises ``NotReplayable``."""
        own = arguments[NOT_THE_KERNELS:]
        return Again(grid, stream, own, memory_of(own, signature))

    def without_tensors(self: _Kind) -> _Kind:
        """For later: it keeps no memory of the program's. The memory must still be there when it is launched."""
        return replace(self, arguments=tuple(map(without_tensors, self.arguments)))

    def launch(self, kernel: Any) -> None:
        """Launch what Triton compiled, and loaded; or a ``Launchable``."""
        kernel.run(*self.grid, self.stream, kernel.function, kernel.packed_metadata, *_HOOKS, *self.arguments)
