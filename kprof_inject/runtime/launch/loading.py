"""Wrap Triton's loading of kernels, to replace the launchers that it makes."""

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

_lock = threading.RLock()  # a forked child replaces it
_around: weakref.WeakKeyDictionary[Any, Callable[[Any, Load], None]] = weakref.WeakKeyDictionary()


def wrap_loading() -> None:
    """Wrap the method with which Triton loads a compiled kernel onto the device at its first launch.

    Called once, right after the import of Triton. The class's method is wrapped, not the object's, because Inductor
    pickles kernels with all their attributes.
    """
    original = CompiledKernel._init_handles

    @functools.wraps(original)
    def load(kernel: Any) -> None:
        if kernel not in _around:
            original(kernel)
            return
        # Another thread that launches the kernel meanwhile comes here too, and waits until the launcher is replaced.
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
    """Arrange that loading this kernel calls ``call(kernel, load)`` instead of ``load()``.

    ``call`` must not refer to the kernel: one that is never launched would then never be freed.
    """
    _around[kernel] = call


class StandInLauncher:
    """Replacement for the launcher that Triton made for a kernel, until it steps aside.

    All other attributes are the launcher's.
    """

    def __init__(self, kernel: Any) -> None:
        """Stand in for the present launcher of a loaded ``kernel``."""
        self._kernel = weakref.ref(kernel)
        self._launch = kernel._run

    def _step_aside(self) -> None:
        kernel = self._kernel()
        if kernel is not None and kernel._run is self:
            kernel._run = self._launch

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of Triton's launcher."""
        return getattr(self._launch, name)


def has_exit_hook(launch_metadata: Any, enter_hook: Any, exit_hook: Any, *arguments: Any) -> bool:
    """Return whether a profiler's hook runs after a launch, given its arguments after the metadata."""
    return bool(getattr(exit_hook, "calls", exit_hook))  # Triton's chain of hooks may be empty
