"""Names that the tests here share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

Kprof = Callable[..., subprocess.CompletedProcess[str]]
