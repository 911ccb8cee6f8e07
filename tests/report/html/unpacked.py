"""What a page carries, read by the page's own modules in Node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from node import node

_UNPACK = Path(__file__).with_name("javascript") / "unpack.mjs"


def unpacked(page: Path) -> list[dict[str, Any]]:
    """The page's launches: ``meta``, ``sections``, and the columns of ``scopes``, ``ctas``, ``incomplete`` and
    ``flights``."""
    launches: list[dict[str, Any]] = _read(page)["launches"]
    return launches


def unpacked_report(page: Path) -> dict[str, Any]:
    """The page's ``PageData``."""
    report: dict[str, Any] = _read(page)["report"]
    return report


def _read(page: Path) -> dict[str, Any]:
    ended = subprocess.run([node(), str(_UNPACK), str(page)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found
