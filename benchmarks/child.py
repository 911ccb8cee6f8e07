"""Runs one step of a benchmark in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(*command: str | Path, **environment: str) -> str:
    """Run Python with these words and these variables; returns what it wrote to stdout. Any failure ends the
    benchmark."""
    words = [sys.executable, *map(str, command)]
    ended = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {ended.returncode}\n{ended.stdout}\n{ended.stderr}")
    return ended.stdout
