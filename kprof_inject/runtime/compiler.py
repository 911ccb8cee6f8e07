"""Triton's compiler: a function of ours around it, the variants that it makes of a kernel, and its caches."""

from __future__ import annotations

import errno
import functools
import hashlib
import inspect
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
import triton.compiler
import triton.compiler.compiler
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.cache import get_override_manager
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

# Puts a function of ours around Triton's compiler, wherever the name stands.

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


# Tells compiled variants of one kernel apart.
#
# Triton keys its dump and override folders by the source hash, which leaves out ``num_warps``, ``num_stages`` and
# every other compile option: two configurations of an autotuner share one key. A variant's key has them all.

_UNSAFE = re.compile(r"[^\w.-]")
# Triton cuts the names of its files here (compiler.py, "255 character limit").
_FILE_NAME_LENGTH = 150


@dataclass(frozen=True, slots=True)
class Variant:
    """One call of Triton's compiler: ``key`` names it in file names, ``options`` are the parsed ones.

    ``override_key`` and ``file_name`` are the folder and the file that Triton looks for in an override folder;
    ``signature`` the types of the arguments and ``constants`` the values that the source is compiled for, by name."""

    key: str
    name: str
    override_key: str
    file_name: str
    target: GPUTarget
    options: dict[str, Any]
    signature: dict[str, str]
    constants: dict[str, str]


def variant_of(compile_function: Callable[..., Any], args: Any, kwargs: Any) -> Variant | None:
    """The variant that this call compiles; None for one that starts from an IR file instead of a function."""
    call = inspect.signature(compile_function).bind(*args, **kwargs).arguments
    source = call["src"]
    if isinstance(source, str):
        return None
    target = call.get("target") or driver.active.get_current_target()
    given = dict(call.get("options") or {}, **source.parse_options())
    options = make_backend(target).parse_options(given)
    source_hash = source.hash()
    digest = hashlib.sha256(f"{source_hash} {target} {options.hash()}".encode()).hexdigest()[:16]
    name = str(source.name)
    return Variant(
        f"{_UNSAFE.sub('_', name)[:80]}-{digest}",
        name,
        Path(get_override_manager(source_hash).cache_dir).name,
        name[:_FILE_NAME_LENGTH],
        target,
        dict(options.__dict__),
        {str(name): str(kind) for name, kind in (getattr(source, "signature", None) or {}).items()},
        _constants(source),
    )


def _constants(source: Any) -> dict[str, str]:
    """Those arguments that are constants as a whole; parts of a tuple are left out."""
    names = source.fn.arg_names if hasattr(source, "fn") else []
    constants = getattr(source, "constants", None) or {}
    return {
        names[path[0]]: str(value) for path, value in constants.items() if isinstance(path, tuple) and len(path) == 1
    }


# Has functions compile anew for a while, whatever they had compiled before.


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
