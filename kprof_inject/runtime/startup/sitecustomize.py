"""Hook at the start of every Python process of the program, because this folder is first on PYTHONPATH.

It runs the ``sitecustomize`` that it shadows, leaves a mark that the process joined, and waits for the import of
Triton, with which the rest of our code is imported. It imports only what each Python process has imported by now. So a
process starts as fast as without us, and ``import token`` still finds the program's own ``token.py``. It must never
stop the program.
"""

import _frozen_importlib
import _frozen_importlib_external
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
# Copies of names in ``runtime.session``, ``runtime.hook`` and ``runtime.imports``, which must not be imported yet.
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


def _load_unlisted(spec: "Any") -> "Any":
    module = _frozen_importlib.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_runtime(name: str) -> "Any":
    """Load a module of ``kprof_inject.runtime`` that imports no other module of ours."""
    path = os.path.join(os.path.dirname(_HERE), name + ".py")
    return _load_unlisted(_frozen_importlib_external.spec_from_file_location("kprof_inject.runtime." + name, path))


class _Process:
    """This process, as part of the session in the file ``session_path``."""

    def __init__(self, session_path: str) -> None:
        self._folder = os.path.dirname(session_path)
        self._faults = _load_runtime("faults")
        self._refused = False

    def join(self) -> None:
        try:
            # An empty file, by which ``read_reports`` knows that the process joined.
            path = os.path.join(self._folder, f"{os.getpid()}.joined")
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
        except OSError as error:
            self._faults.say(f"cannot write this process's report: {error}")
        starts = _load_runtime("children").ProcessStarts(_HERE, _SESSION_VARIABLE, self._folder)
        starts.watch_os()
        callbacks = dict.fromkeys(_AWAITED, self._imported)
        callbacks["subprocess"] = starts.watch_subprocess
        _load_runtime("imports").after_import(callbacks)
        if sys.version_info >= (3, 11):  # noqa: UP036 (the program may start an older one, whose atexit needs its place)
            # Before the program registers any, so that it is called after them.
            _load_unlisted(_frozen_importlib.BuiltinImporter.find_spec("atexit")).register(self._end)

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
finally:  # Python reports an error of the shadowed one, as it does without us
    if os.environ.get(_SESSION_VARIABLE):
        _Process(os.environ[_SESSION_VARIABLE]).join()
