"""Has functions compile anew for a while, whatever they had compiled before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime.jit import JITFunction


@contextmanager
def fresh_jit_caches() -> Iterator[None]:
    """Each function that is launched in this context starts without compiled kernels, and has its own back after it."""
    run: Any = JITFunction.run
    set_aside: dict[int, tuple[Any, Any]] = {}

    def run_with_fresh_cache(function: Any, *args: Any, **kwargs: Any) -> Any:
        if id(function) not in set_aside:
            set_aside[id(function)] = (function, function.device_caches)
            function.device_caches = defaultdict(function.create_binder)
        return run(function, *args, **kwargs)

    JITFunction.run = run_with_fresh_cache
    try:
        yield
    finally:
        JITFunction.run = run
        for function, caches in set_aside.values():
            function.device_caches = caches
