"""Puts a function of ours around Triton's compiler, wherever the name stands."""

from __future__ import annotations

import errno
import functools
import tempfile
from collections.abc import Callable
from typing import Any

import triton
import triton.compiler
import triton.compiler.compiler
from triton import knobs

Compile = Callable[..., Any]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_MODULES = (triton.compiler.compiler, triton.compiler, triton)


def with_room(compile: Compile) -> Compile:
    """The same compiler, which takes a temporary cache where there is no room in the workspace's: without us, the
    program's cache would lie elsewhere."""

    @functools.wraps(compile)
    def compile_somewhere(*args: Any, **kwargs: Any) -> Any:
        try:
            return compile(*args, **kwargs)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
        with tempfile.TemporaryDirectory(prefix="kprof-inject-") as folder, knobs.cache.scope():
            knobs.cache.dir = folder
            return compile(*args, **kwargs)

    return compile_somewhere


def wrap_compiler(around: Callable[[Compile, Any, Any], Any]) -> Callable[[], None]:
    """Have ``around(original, args, kwargs)`` called for every compilation of this process; returns what ends that.

    The just-in-time decorator takes the name from ``triton.compiler`` at each first launch, Inductor from
    ``triton``: all of them lead to ours.
    """
    original: Compile = triton.compiler.compiler.compile

    state = {"around": around}

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        # A kernel function that was launched meanwhile keeps this one for good.
        around = state.get("around")
        return around(original, args, kwargs) if around else original(*args, **kwargs)

    def unwrap() -> None:
        state.clear()
        for module in _MODULES:
            if module.compile is compile:
                module.compile = original

    for module in _MODULES:
        module.compile = compile
    return unwrap
