"""Runs one step of a benchmark in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from memory_in_use import memory_in_use


def run(*command: str | Path, **environment: str) -> str:
    """Run Python with these words and these variables; returns what it wrote to stdout. Any failure ends the
    benchmark."""
    return run_and_watch(*command, **environment)[0]


def run_and_watch(*command: str | Path, every_seconds: float | None = None, **environment: str) -> tuple[str, int]:
    """As ``run``; also returns the most bytes of memory that it and its children had in use, looked at so often."""
    words = [sys.executable, *map(str, command)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    most_bytes = 0
    with subprocess.Popen(words, env={**os.environ, **environment}, text=True, **pipes) as child:
        while True:
            try:
                stdout, stderr = child.communicate(timeout=every_seconds)
                break
            except subprocess.TimeoutExpired:
                most_bytes = max(most_bytes, memory_in_use(child.pid))
    if child.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {child.returncode}\n{stdout}\n{stderr}")
    return stdout, most_bytes
