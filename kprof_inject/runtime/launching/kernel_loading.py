"""Stands where Triton loads a compiled kernel onto the device, which it does at the kernel's first launch.

The place is the class, not the object: Inductor pickles kernels with all that they hold.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from triton.compiler.compiler import CompiledKernel

Load = Callable[[], None]

_lock = threading.RLock()  # a forked child has one of its own
_around: WeakKeyDictionary[Any, Callable[[Load], None]] = WeakKeyDictionary()


def install() -> None:
    """Called once, right after Triton was imported."""
    original = CompiledKernel._init_handles

    @functools.wraps(original)
    def load(kernel: Any) -> None:
        if kernel not in _around:
            original(kernel)
            return
        # Another thread may launch the kernel meanwhile: it asks for this too, and waits until all is in place.
        with _lock:
            around = _around.get(kernel)
            if around is None:
                return
            around(functools.partial(original, kernel))
            _around.pop(kernel, None)

    CompiledKernel._init_handles = load


def _begin_in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_begin_in_child)


def around_load(kernel: Any, call: Callable[[Load], None]) -> None:
    """Have ``call(load)`` called instead of ``load()`` when this kernel is loaded."""
    _around[kernel] = call
