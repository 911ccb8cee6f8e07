"""Libraries that some formats need and that not every installation has."""

from __future__ import annotations

import importlib
from typing import Any

from kprof_inject.errors import KprofError


def optional_module(name: str, package: str) -> Any:
    """The module. Raises ``KprofError`` if the ``package`` that it comes with is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise KprofError(f"this needs {package}, which is not installed", hint=f"pip install {package}") from None
