"""Runs at the start of every Python process of the program, because this folder is first on PYTHONPATH.

It runs the ``sitecustomize`` that it shadows, leaves a mark that the process joined, and waits for Triton: all else of
ours is imported with it. Nothing is imported here but what each Python process has imported by now. So a process
starts as fast as without us, and a ``token.py`` of the program's own is what ``import token`` gives. It must never stop
the program.
"""

import _frozen_importlib
import _frozen_importlib_external
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
# The names that stand in ``runtime.session`` and ``runtime.hook``: to ask these would be to import them.
_SESSION_VARIABLE = "KPROF_INJECT_SESSION"
_AWAITED = (
    "triton",
    "triton.profiler.profile",
    "triton.profiler.data",
    "torch._inductor.runtime.triton_heuristics",
)


def _run_shadowed() -> None:
    elsewhere = [path for path in sys.path if os.path.abspath(path or os.curdir) != _HERE]
    spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = _frozen_importlib.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _unlisted(spec: "Any") -> "Any":
    """A module that gets no place in ``sys.modules``."""
    module = _frozen_importlib.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _ours(name: str) -> "Any":
    """A module of the runtime's that imports nothing of ours."""
    path = os.path.join(os.path.dirname(_HERE), name + ".py")
    return _unlisted(_frozen_importlib_external.spec_from_file_location("kprof_inject.runtime." + name, path))


def _call_at_exit(function: "Callable[[], None]") -> None:
    """Register ``function`` before the program registers any: it is called after them."""
    _unlisted(_frozen_importlib.BuiltinImporter.find_spec("atexit")).register(function)


class _Process:
    """This process, in the session that the file at ``session_path`` tells of."""

    def __init__(self, session_path: str) -> None:
        self._folder = os.path.dirname(session_path)
        self._faults = _ours("faults")
        self._refused = False

    def join(self) -> None:
        try:
            self._leave_mark()
        except OSError as error:
            self._faults.say(f"cannot report: {error}")
        starts = _ours("children").Starts(_HERE, _SESSION_VARIABLE, self._folder)
        starts.watch_os()
        callbacks = dict.fromkeys(_AWAITED, self._imported)
        callbacks["subprocess"] = starts.watch_subprocess
        _ours("imports").after_import(callbacks)
        if sys.version_info >= (3, 11):  # noqa: UP036 (the program may start an older one, whose atexit needs its place)
            _call_at_exit(self._end)

    def _leave_mark(self) -> None:
        """``session.read_reports`` looks for it."""
        path = os.path.join(self._folder, f"{os.getpid()}.joined")
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))

    def _imported(self, module: "ModuleType") -> None:
        if self._refused:
            return
        try:
            from kprof_inject.runtime import hook
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            self._refused = True
            self._faults.say(f"not active in this process: {error}; install it for {sys.executable}")
            return
        hook.imported(module, self._faults.STDERR)

    def _end(self) -> None:
        endings = sys.modules.get("kprof_inject.runtime.process_events")
        if endings is not None:
            endings.end()


try:
    _run_shadowed()
finally:  # a fault of the shadowed one is Python's to report, as it is without us
    if os.environ.get(_SESSION_VARIABLE):
        _Process(os.environ[_SESSION_VARIABLE]).join()
