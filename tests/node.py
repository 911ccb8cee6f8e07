"""Node, for what is written in JavaScript."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest


def node() -> str:
    """The node executable: that of PATH, else the one that Playwright brings. Without one the test fails."""
    if found := shutil.which("node"):
        return found
    playwright = importlib.util.find_spec("playwright")
    for folder in (playwright.submodule_search_locations or ()) if playwright else ():
        path = Path(folder) / "driver" / "node"
        if path.is_file():
            return str(path)
    pytest.fail("neither node nor playwright is installed")
