"""Runs at the start of every Python process of the program, because this folder is first on PYTHONPATH.

It runs the ``sitecustomize`` that it shadows, then waits for Triton. It must never stop the program.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_shadowed() -> None:
    elsewhere = [path for path in sys.path if os.path.abspath(path or os.curdir) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _install() -> None:
    try:
        from kprof_inject.runtime import hook
    except ImportError as error:
        sys.stderr.write(f"kprof-inject: not active in this process: {error}; install it for {sys.executable}\n")
        return
    hook.install()


try:
    _run_shadowed()
finally:  # a fault of the shadowed one is Python's to report, as it is without us
    _install()
