"""Triton's compiler: a function of ours around it, the variants that it makes of a kernel, and its caches."""

from __future__ import annotations

import errno
import functools
import hashlib
import inspect
import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import triton
import triton.compiler
import triton.compiler.compiler
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.compiler.compiler import make_backend
from triton.runtime.cache import get_override_manager
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from kprof_inject.capture.schema import DumpedKernelRecord, Target
from kprof_inject.runtime.stack_room import COMPILING
from kprof_inject.workspace import DumpedKernel, Workspace

Compile = Callable[..., Any]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_MODULES = (triton.compiler.compiler, triton.compiler, triton)


def with_room(compile: Compile) -> Compile:
    """Return a compiler that takes a temporary cache where there is no room in the workspace's.

    The program's own cache may be on another disk, which has room.
    """

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
    """Have ``around(original, args, kwargs)`` called for every compilation of this process; returns how to end that.

    The just-in-time decorator takes the name from ``triton.compiler`` at each first launch, Inductor from
    ``triton``: all of them call ours.
    """
    original: Compile = triton.compiler.compiler.compile

    state = {"around": around}

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        # A kernel function that was launched meanwhile keeps this one for good.
        around = state.get("around")
        with COMPILING:
            return around(original, args, kwargs) if around else original(*args, **kwargs)

    def unwrap() -> None:
        state.clear()
        for module in _MODULES:
            if module.compile is compile:
                module.compile = original

    for module in _MODULES:
        module.compile = compile
    return unwrap


_UNSAFE = re.compile(r"[^\w.-]")
# Triton cuts the names of its files here (compiler.py, "255 character limit").
_FILE_NAME_LENGTH = 150


def variant_of(
    workspace: Workspace, compile_function: Callable[..., Any], args: Any, kwargs: Any
) -> DumpedKernel | None:
    """Return the variant that this call compiles, with what is known before; None for a call that compiles an IR file.

    Triton keys its dump and override folders by the source hash, which leaves out ``num_warps``, ``num_stages`` and
    every other compile option: two configurations of an autotuner share one key. A variant's name has them all.
    """
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
    info = DumpedKernelRecord(
        name=name,
        override_key=Path(get_override_manager(source_hash).cache_dir).name,
        file_name=name[:_FILE_NAME_LENGTH],
        target=Target(**vars(target)),
        options=as_json(options.__dict__),
        signature={str(name): str(kind) for name, kind in (getattr(source, "signature", None) or {}).items()},
        constants=_constants(source),
        triton_version=triton.__version__,
        environment=environment(),
    )
    return workspace.kernel_of(f"{_UNSAFE.sub('_', name)[:80]}-{digest}", info)


# Torch's Inductor sets the first to an assembler of its own (compile_tasks.py, "_set_triton_ptxas_path"), whose version
# the assembly names. Triton leaves them out of the key of a kernel.
_ASSEMBLERS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


def environment() -> dict[str, str]:
    """Return the environment variables, as they are now, that a compiled kernel depends on."""
    names = (*get_cache_invalidating_env_vars(), *_ASSEMBLERS)
    return {name: os.environ[name] for name in names if name in os.environ}


def _constants(source: Any) -> dict[str, str]:
    """Return the arguments that are constants as a whole; parts of a tuple are left out."""
    names = source.fn.arg_names if hasattr(source, "fn") else []
    constants = getattr(source, "constants", None) or {}
    return {
        names[path[0]]: str(value) for path, value in constants.items() if isinstance(path, tuple) and len(path) == 1
    }


def as_json(values: dict[str, Any]) -> dict[str, Any]:
    """Return values of Triton's as JSON has them: targets as their fields, and what JSON cannot express as text."""
    return dict(json.loads(json.dumps(values, default=_plain)))


def _plain(value: Any) -> Any:
    return vars(value) if hasattr(value, "__dict__") else str(value)


@contextmanager
def overriding(override_folder: Path, cache_folder: Path) -> Iterator[None]:
    """Have Triton replace the TTGIR of the next compilation by what is in ``override_folder``.

    The cache's key ignores the override, so the binary goes to ``cache_folder``, where no other compilation may look.
    """
    compiler: Any = triton.compiler.compiler
    with _knobs_of_this_process(), knobs.compilation.scope(), knobs.cache.scope():
        knobs.compilation.override = True
        knobs.compilation.always_compile = True
        knobs.compilation.store_binary_only = False
        knobs.cache.override_dir = str(override_folder)
        knobs.cache.dir = str(cache_folder)
        # Triton says on stdout that it overrides; the program's output is not ours to add to, and our report has it.
        compiler.print = _say_nothing
        try:
            yield
        finally:
            del compiler.print


@contextmanager
def _knobs_of_this_process() -> Iterator[None]:
    """Keep what is set of Triton's knobs out of the environment, which children of other threads inherit."""
    propagates, knobs.propagate_env = knobs.propagate_env, False
    try:
        yield
    finally:
        knobs.propagate_env = propagates


def _say_nothing(*_: object, **__: object) -> None:
    pass


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
