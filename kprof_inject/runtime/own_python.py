"""Command and environment of Python processes that do our own work, in whatever folder the user is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PACKAGE_ROOT = Path(__file__).parents[2]


def own_python(words: Sequence[str], executable: str = "") -> list[str]:
    """Return the command of a Python, ours by default, that imports nothing from the current folder.

    That may be a stranger's, or have a module with the name of one that we need.
    """
    return [executable or sys.executable, "-P", *words]


def finding_this_package(variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python finds this package first, and no empty path: the current folder."""
    paths = [str(_PACKAGE_ROOT), *variables.get("PYTHONPATH", "").split(os.pathsep)]
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
