"""Take what the program's own cache has, so that the program does not compile it again for us.

It is copied to our cache: nothing is written to the program's. Triton's key of a kernel has the text of its functions,
but not their files. So a kernel is taken only if its TTGIR names files that this process has its code from.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from triton import knobs
from triton.runtime.cache import FileCacheManager

from kprof_inject.runtime.compiling.compiler import knobs_of_this_process
from kprof_inject.ttgir.strings import source_files

_GROUP = "__grp__"


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
        if found is None and self._theirs is not None:
            return self._taken(self._theirs / filename)
        return found

    def get_group(self, filename: str) -> dict[str, str] | None:
        found: dict[str, str] | None = super().get_group(filename)
        if found is None and self._theirs is not None:
            return self._taken_group(self._theirs, filename)
        return found

    def _taken(self, path: Path) -> str | None:
        try:
            return str(self.put(path.read_bytes(), path.name))
        except OSError:  # it is not there, or cannot be read or copied: then it is compiled
            return None

    def _taken_group(self, folder: Path, filename: str) -> dict[str, str] | None:
        paths = _group_in(folder, filename)
        if not any(path.suffix == ".ttgir" and _is_of_this_process(path) for path in paths):
            return None
        group = {path.name: copy for path in paths if (copy := self._taken(path)) is not None}
        if len(group) < len(paths):
            return None
        self.put_group(filename, group)
        return group


def _group_in(folder: Path, filename: str) -> list[Path]:
    """Return the files of a group; empty if there is none, or if it is damaged or elsewhere."""
    try:
        group = json.loads((folder / f"{_GROUP}{filename}").read_bytes())
        paths = [folder / name for name in group["child_paths"]]
    except (OSError, ValueError, TypeError, LookupError):
        return []
    return paths if all(path.parent == folder for path in paths) else []


def _is_of_this_process(ttgir: Path) -> bool:
    try:
        named = source_files(ttgir.read_text())
    except (OSError, ValueError):
        return False
    files = (vars(module).get("__file__") for module in list(sys.modules.values()) if hasattr(module, "__dict__"))
    loaded = {os.path.abspath(file) for file in files if file and isinstance(file, str)}
    return bool(named) and all(os.path.abspath(name) in loaded for name in named)
