"""Call a function after the import of a module.

The start-up hook executes this file in every Python process of the program, before the program's own code. So it
imports nothing but ``sys``, not even ``__future__``: only the program decides what it imports.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Callback = Callable[[ModuleType], None]

INDUCTOR_AUTOTUNER = "torch._inductor.runtime.triton_heuristics"  # module of Inductor's own autotuner


def after_import(callbacks: "Mapping[str, Callback]") -> None:
    """Call each module's callback once, right after the module is executed, or at once if it is imported already.

    A callback must not raise.
    """
    finder = _AfterImport({name: callback for name, callback in callbacks.items() if name not in sys.modules})
    sys.meta_path.insert(0, finder)
    for name, callback in callbacks.items():
        if name not in finder.waiting:
            callback(sys.modules[name])


class _AfterImport:
    """Finder that returns what the other finders find, but has the loader of an awaited module call back."""

    def __init__(self, waiting: "dict[str, Callback]") -> None:
        self.waiting = waiting

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None", target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if fullname not in self.waiting:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:  # the finders before this one found nothing
            # Up to Python 3.11 there may be finders without ``find_spec``, whose loaders cannot call back.
            spec = finder.find_spec(fullname, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: "ModuleSpec") -> None:
        """Have the module's loader call back once it has executed the module.

        Code that looks for a module may never import it, and must see the same spec and loader as without us. So the
        loader stays the same object, with an ``exec_module`` attribute of its own until the module is executed.
        """
        loader: Any = spec.loader
        if isinstance(loader, type) or not hasattr(loader, "__dict__") or not hasattr(loader, "exec_module"):
            return  # the loader of a built-in module or a namespace; no awaited module is one
        present = vars(loader).get("exec_module")
        # All modules of an archive may share a loader.
        if not isinstance(present, _CallBack) or present.waiting is not self.waiting:
            loader.exec_module = _CallBack(loader, self.waiting)


class _CallBack:
    """Replacement of a loader's ``exec_module``, which removes itself when it executes an awaited module."""

    def __init__(self, loader: "Any", waiting: "dict[str, Callback]") -> None:
        self._loader = loader
        self._exec_module = loader.exec_module
        self.waiting = waiting

    def __call__(self, module: "ModuleType") -> None:
        if module.__name__ not in self.waiting:
            self._exec_module(module)
            return
        # Before the execution, because the module may look at its loader.
        vars(self._loader).pop("exec_module", None)
        self._exec_module(module)
        callback = self.waiting.pop(module.__name__, None)
        if callback is not None:
            callback(module)

    # Loaders compare equal by their attributes, and specs by their loaders, so this attribute must compare equal too.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CallBack)

    def __hash__(self) -> int:
        return hash(_CallBack)
