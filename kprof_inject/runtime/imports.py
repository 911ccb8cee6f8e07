"""Calls back when a module is imported. Imports the standard library alone: it runs before the program's own code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_import(callbacks: Mapping[str, Callable[[ModuleType], None]]) -> None:
    """Call each module's callback once, right after the module was executed; at once if it has been imported."""
    waiting = {name: callback for name, callback in callbacks.items() if name not in sys.modules}
    sys.meta_path.insert(0, _AfterImport(waiting))
    for name in callbacks.keys() - waiting.keys():
        callbacks[name](sys.modules[name])


class _AfterImport(MetaPathFinder):
    """Calls back once for each of some modules, after it was executed."""

    def __init__(self, callbacks: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._callbacks = dict(callbacks)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._callbacks:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                # Who looks for a module may never import it: the callback stays until it was executed.
                spec.loader = _CallingLoader(spec.loader, self._executed)
                return spec
        return None

    def _executed(self, module: ModuleType) -> None:
        callback = self._callbacks.pop(module.__name__, None)
        if callback is not None:
            callback(module)


class _CallingLoader(Loader):
    """Another loader, and a call after it is done."""

    def __init__(self, loader: Loader, callback: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Put back what the module would see without us (resources, ``inspect``).
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._callback(module)
