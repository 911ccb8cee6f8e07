"""Starts child processes in a folder of their own, with an empty home, no settings of Triton's, and no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent
REPO = PROGRAMS.parent.parent

CROSS_COMPILE = PROGRAMS / "cross_compile.py"
ENDING = PROGRAMS / "ending.py"
SMALL_TORCH = PROGRAMS / "small_torch"

GUARD_S = 600
"""How long a test waits for what has to come: no busy machine takes so long."""

_SETTINGS = ("TRITON_", "TORCHINDUCTOR_", "KPROF_", "PYTEST_")


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended. The output is as it was written, line ends too."""

    exit_code: int
    stdout: str
    stderr: str

    def json_lines(self) -> list[Any]:
        """What a program of ours printed: one JSON value a line."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    def errors(self) -> list[str]:
        """The diagnostics of kprof-inject on stderr."""
        return [line for line in self.stderr.splitlines() if line.startswith("error: ")]


def run_child(
    command: Sequence[str | Path], folder: Path, *, stdin: bytes = b"", env: dict[str, str] | None = None
) -> Ended:
    """Run a command to its end in ``folder``; ``env`` goes on top of the clean environment, and ``stdin`` by a pipe."""
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**clean_environment(folder), **(env or {})},
        **({"input": stdin} if stdin else {"stdin": subprocess.DEVNULL}),
        capture_output=True,
        timeout=GUARD_S,
        # Of its own, so that a program may send a signal to its whole group as a terminal does.
        start_new_session=True,
    )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def run_python(*arguments: str | Path, folder: Path, env: dict[str, str] | None = None) -> Ended:
    return run_child([sys.executable, *arguments], folder, env=env)


def clean_environment(folder: Path) -> dict[str, str]:
    """The environment of a child: ours, less what would make its run depend on this machine."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {
        **inherited,
        "HOME": str(home),
        "PYTHONPATH": python_path(),
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "",
        # Triton 3.9 warns on stderr until it is told.
        "TRITON_DEFAULT_FP_FUSION": "1",
    }


def python_path(*first: Path) -> str:
    """``first``, then what this process was given (a Triton of another version, maybe), then this repository."""
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.pathsep.join([*map(str, first), *inherited, str(REPO)])


def fake_gpu_path(*first: Path) -> str:
    """``python_path`` for programs on the fake GPU, which do with a small torch."""
    return python_path(*first, SMALL_TORCH, PROGRAMS.parent)
