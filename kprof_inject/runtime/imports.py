"""Calls back when a module is imported.

The start-up hook executes this file in every Python process of the program, before the program's own code. So it
imports nothing at all, ``__future__`` included: what the program imports is the program's to decide.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Callback = Callable[[ModuleType], None]


def after_import(callbacks: "Mapping[str, Callback]") -> None:
    """Call each module's callback once, right after the module was executed; at once if it has been imported. A
    callback must not raise."""
    finder = _AfterImport({name: callback for name, callback in callbacks.items() if name not in sys.modules})
    sys.meta_path.insert(0, finder)
    for name, callback in callbacks.items():
        if name not in finder.waiting:
            callback(sys.modules[name])


class _AfterImport:
    """Finds what the other finders find. Of a module that is waited for, it has the loader call back."""

    def __init__(self, waiting: "dict[str, Callback]") -> None:
        self.waiting = waiting

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None", target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if fullname not in self.waiting:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:  # those before it have been asked
            # Up to Python 3.11 there may be finders of the old kind, which cannot be followed.
            spec = finder.find_spec(fullname, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: "ModuleSpec") -> None:
        """Who looks for a module may never import it, and shall see the spec and the loader that there are without us.
        So the loader stays itself, and has an ``exec_module`` of its own until the module was executed."""
        loader: Any = spec.loader
        if isinstance(loader, type) or not hasattr(loader, "__dict__") or not hasattr(loader, "exec_module"):
            return  # of what is built into the interpreter, or a namespace: nothing that is waited for
        present = vars(loader).get("exec_module")
        # One loader may stand for all that is in an archive.
        if not isinstance(present, _CallBack) or present.waiting is not self.waiting:
            loader.exec_module = _CallBack(loader, self.waiting)


class _CallBack:
    """``exec_module`` of one loader, which has it itself again once a module was executed that is waited for."""

    def __init__(self, loader: "Any", waiting: "dict[str, Callback]") -> None:
        self._loader = loader
        self._exec_module = loader.exec_module
        self.waiting = waiting

    def __call__(self, module: "ModuleType") -> None:
        if module.__name__ not in self.waiting:
            self._exec_module(module)
            return
        # The module may look at its loader while it is executed.
        vars(self._loader).pop("exec_module", None)
        self._exec_module(module)
        callback = self.waiting.pop(module.__name__, None)
        if callback is not None:
            callback(module)

    # Loaders are equal if their attributes are, and specs if their loaders are.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CallBack)

    def __hash__(self) -> int:
        return hash(_CallBack)
