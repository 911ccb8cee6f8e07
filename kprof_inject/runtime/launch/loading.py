"""Takes part when Triton loads a kernel, and replaces the launcher that it makes."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from triton.compiler.compiler import CompiledKernel

from kprof_inject.runtime.stack_room import COMPILING

Load = Callable[[], None]

_lock = threading.RLock()  # a forked child has one of its own
_around: weakref.WeakKeyDictionary[Any, Callable[[Any, Load], None]] = weakref.WeakKeyDictionary()


def wrap_loading() -> None:
    """Wrap the method by which Triton loads a compiled kernel onto the device, which it does at its first launch.

    Called once, right after Triton was imported. It is wrapped in the class, not in the object: Inductor pickles
    kernels with all that they hold.
    """
    original = CompiledKernel._init_handles

    @functools.wraps(original)
    def load(kernel: Any) -> None:
        if kernel not in _around:
            original(kernel)
            return
        # Another thread may launch the kernel meanwhile: it comes here too, and waits until all is in place.
        with _lock:
            around = _around.get(kernel)
            if around is None:
                return
            with COMPILING:
                around(kernel, functools.partial(original, kernel))
            _around.pop(kernel, None)

    CompiledKernel._init_handles = load


def _begin_in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_begin_in_child)


def around_load(kernel: Any, call: Callable[[Any, Load], None]) -> None:
    """Have ``call(kernel, load)`` called instead of ``load()`` when this kernel is loaded.

    ``call`` must not hold the kernel: one that is never launched is freed when the program drops it.
    """
    _around[kernel] = call


class StandInLauncher:
    """Takes the place of the launcher that Triton made for a kernel, until it steps aside.

    All other attributes are the launcher's.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = weakref.ref(kernel)
        self._launch = kernel._run

    def _step_aside(self) -> None:
        kernel = self._kernel()
        if kernel is not None and kernel._run is self:
            kernel._run = self._launch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launch, name)


def has_exit_hook(launch_metadata: Any, enter_hook: Any, exit_hook: Any, *arguments: Any) -> bool:
    """Return whether a profiler's hook follows a launch with these arguments, all that come after the metadata."""
    return bool(getattr(exit_hook, "calls", exit_hook))  # Triton's chain of hooks may be empty
