"""Stands where Triton loads a compiled kernel onto the device, which it does at the kernel's first launch.

The place is the class, not the object: Inductor pickles kernels with all that they hold.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from triton.compiler.compiler import CompiledKernel

Load = Callable[[], None]

_around: WeakKeyDictionary[Any, Callable[[Load], None]] = WeakKeyDictionary()


def install() -> None:
    """Called once, right after Triton was imported."""
    original = CompiledKernel._init_handles

    @functools.wraps(original)
    def load(kernel: Any) -> None:
        around = _around.get(kernel) if kernel.module is None else None
        if around is None:
            original(kernel)
        else:
            around(functools.partial(original, kernel))

    CompiledKernel._init_handles = load


def around_load(kernel: Any, call: Callable[[Load], None]) -> None:
    """Have ``call(load)`` called instead of ``load()`` when this kernel is loaded."""
    _around[kernel] = call
