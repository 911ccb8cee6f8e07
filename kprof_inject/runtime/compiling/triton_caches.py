"""Triton's caches: our own for one compilation, without its own, and what the program's has.

What the program's own cache has is taken, so that the program does not compile it again for us. It is copied to our
cache: nothing is written to the program's. Triton's key of a kernel has the text of its functions, but not their files.
So a kernel is taken only if its TTGIR names files that this process has its code from.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import triton
import triton.compiler.compiler
from triton import knobs
from triton.runtime.cache import FileCacheManager
from triton.runtime.jit import JITFunction

from kprof_inject.ttgir.strings import source_files


@contextmanager
def own_cache() -> Iterator[Path]:
    """Have Triton compile to a new folder, which is removed at the end of the context.

    For its keys, Triton hashes its library of 400 MB in each process. These do without, because no other build of
    Triton sees the folder.
    """
    cache: Any = triton.runtime.cache
    triton_key = cache.triton_key
    with tempfile.TemporaryDirectory(prefix="kprof-cache-") as folder, knobs.cache.scope():
        knobs.cache.dir = folder
        cache.triton_key = lambda: triton.__version__
        try:
            yield Path(folder)
        finally:
            cache.triton_key = triton_key


@contextmanager
def overriding(override_folder: Path, cache_folder: Path) -> Iterator[None]:
    """Have Triton replace the TTGIR of the next compilation with the one in ``override_folder``.

    The cache's key ignores the override, so the binary goes to ``cache_folder``, which no other compilation may use.
    """
    compiler: Any = triton.compiler.compiler
    with knobs_of_this_process(), knobs.compilation.scope(), knobs.cache.scope():
        knobs.compilation.override = True
        knobs.compilation.always_compile = True
        knobs.compilation.store_binary_only = False
        knobs.cache.override_dir = str(override_folder)
        knobs.cache.dir = str(cache_folder)
        # Triton prints on stdout that it overrides. We must not add to the program's output, and our report says it.
        compiler.print = lambda *_, **__: None
        try:
            yield
        finally:
            del compiler.print


@contextmanager
def knobs_of_this_process() -> Iterator[None]:
    """Keep changes of Triton's knobs out of the environment, which children of other threads inherit."""
    propagates, knobs.propagate_env = knobs.propagate_env, False
    try:
        yield
    finally:
        knobs.propagate_env = propagates


@contextmanager
def fresh_jit_caches() -> Iterator[None]:
    """Launch functions in this context without their compiled kernels, which they get back at its end."""
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


def take_from(folder: Path) -> None:
    """Have Triton look in ``folder`` for what our cache lacks, unless the program has a cache manager of its own."""
    if knobs.cache.manager_class is None:
        manager: Any = functools.partial(_TakingCache, folder, knobs.cache.dir)
        with knobs_of_this_process():
            knobs.cache.manager_class = manager


class _TakingCache(FileCacheManager):  # type: ignore[misc]
    """Cache for one key: the folder of that name in our cache, to which it copies files from the program's."""

    def __init__(self, theirs: Path, ours: str, key: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(key, *args, **kwargs)
        # The program may choose another folder, and finds there what it would find without us.
        self._theirs = theirs / key if Path(self.cache_dir) == Path(ours, key) else None

    def get_file(self, filename: str) -> str | None:
        found: str | None = super().get_file(filename)
        return self._taken(self._theirs / filename) if found is None and self._theirs is not None else found

    def get_group(self, filename: str) -> dict[str, str] | None:
        found: dict[str, str] | None = super().get_group(filename)
        if found is not None or self._theirs is None:
            return found
        try:
            group = json.loads((self._theirs / f"__grp__{filename}").read_bytes())
            paths = [self._theirs / name for name in group["child_paths"]]
        except (OSError, ValueError, TypeError, LookupError):  # there is none, or it is damaged
            return None
        if any(path.parent != self._theirs for path in paths):
            return None
        if not any(path.suffix == ".ttgir" and _is_of_this_process(path) for path in paths):
            return None
        copies = {path.name: copy for path in paths if (copy := self._taken(path)) is not None}
        if len(copies) < len(paths):
            return None
        self.put_group(filename, copies)
        return copies

    def _taken(self, path: Path) -> str | None:
        try:
            return str(self.put(path.read_bytes(), path.name))
        except OSError:  # it is not there, or cannot be read or copied: then it is compiled
            return None


def _is_of_this_process(ttgir: Path) -> bool:
    try:
        named = source_files(ttgir.read_text())
    except (OSError, ValueError):
        return False
    files = (vars(module).get("__file__") for module in list(sys.modules.values()) if hasattr(module, "__dict__"))
    loaded = {os.path.abspath(file) for file in files if file and isinstance(file, str)}
    return bool(named) and all(os.path.abspath(name) in loaded for name in named)
