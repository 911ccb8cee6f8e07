"""Puts a function of ours around Triton's compiler, wherever the name stands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import triton
import triton.compiler
import triton.compiler.compiler

Compile = Callable[..., Any]


def wrap_compiler(around: Callable[[Compile, Any, Any], Any]) -> None:
    """Have ``around(original, args, kwargs)`` called for every compilation of this process.

    The just-in-time decorator takes the name from ``triton.compiler`` at each first launch, Inductor from
    ``triton``: all of them lead to ours.
    """
    original: Compile = triton.compiler.compiler.compile

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        return around(original, args, kwargs)

    for module in (triton.compiler.compiler, triton.compiler, triton):
        module.compile = compile
