"""A program under two settings, or more: each is profiled in a workspace of its own, all of them in turn.

A side is another process with another interpreter, another Triton or another environment, so that it can differ in
anything; what it captured is read like any other capture.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kprof_inject.capture.reader import read_capture
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.captures import decode_capture
from kprof_inject.runtime.session import STEP_VARIABLE
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.workspace import Workspace, is_workspace

Say = Callable[[str], None]

# Where the package lies: another interpreter need not have it installed.
_PACKAGE_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Side:
    """One setting. ``name`` is how it is called in what is said, and the name of its workspace; ``triton`` a folder
    that has the package, as ``pip install --target`` makes it; ``environment`` and ``arguments`` go on top of the
    program's own."""

    name: str
    workspace: Path
    python: str = sys.executable
    triton: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    def variables(self) -> dict[str, str]:
        """The environment that its processes get."""
        paths = [self.triton, _PACKAGE_ROOT, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        found = os.pathsep.join(str(path) for path in paths if path)
        return {**os.environ, "PYTHONPATH": found, **self.environment}

    def captures(self) -> list[Path]:
        """What was captured so far."""
        return Workspace.open(self.workspace).capture_folders() if is_workspace(self.workspace) else []


def require_usable(sides: Sequence[Side]) -> None:
    """Raise ``KprofError`` if a side cannot run this package, before any of them runs the program."""
    for side in sides:
        if side.triton is not None and not (side.triton / "triton").is_dir():
            raise KprofError(
                f"{side.triton} contains no triton package",
                hint=f"install one: pip install --no-deps --target {side.triton} triton==VERSION",
            )
        command = [side.python, "-m", "kprof_inject", "--version"]
        try:
            ended = subprocess.run(command, env=side.variables(), capture_output=True, text=True, check=False)
        except OSError as error:
            raise KprofError(
                f"cannot start {side.python}: {error.strerror}", hint="name a Python interpreter"
            ) from None
        if ended.returncode:
            lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
            raise KprofError(
                f"{side.python} cannot run kprof-inject: {lines[-1]}",
                hint=f"install its requirements there: {side.python} -m pip install click lark msgspec numpy rich",
            )


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often to capture each side, and what: ``selectors`` as ``insert`` takes them, ``kernel`` a glob, ``launches``
    as ``run`` takes them."""

    count: int
    selectors: Sequence[str]
    kernel: str
    launches: str
    program: Sequence[str]

    def steps(self, side: Side) -> list[list[str]]:
        """The commands of one round. The program is timed without records in each, too."""
        workspace, program = str(side.workspace), ["--", *self.program, *side.arguments]
        at = [word for selector in self.selectors for word in ("--at", selector)]
        return [
            ["dump", "-o", workspace, "--kernel", self.kernel, *program],
            ["insert", workspace, *at],
            ["run", workspace, "--kernel", self.kernel, "--launches", self.launches, *program],
        ]


def profile_in_turn(sides: Sequence[Side], rounds: Rounds, say: Say) -> list[list[Timeline]]:
    """Capture each side so often, one after the other, so that what the clock does falls on all of them. Returns the
    launches of each. Raises ``KprofError`` if a side's program fails."""
    before = [side.captures() for side in sides]
    for number in range(rounds.count):
        for side in sides:
            say(f"{side.name}: round {number + 1} of {rounds.count}")
            for step in rounds.steps(side):
                _run(side, step)
    return [
        [
            timeline
            for folder in side.captures()
            if folder not in old
            for timeline in decode_capture(read_capture(folder), say)
        ]
        for side, old in zip(sides, before, strict=True)
    ]


def _run(side: Side, words: Sequence[str]) -> None:
    # The answer alone is for stdout: the program's own output goes where progress goes.
    command = [side.python, "-m", "kprof_inject", *words]
    variables = {**side.variables(), STEP_VARIABLE: "1"}
    code = subprocess.run(command, env=variables, stdout=sys.stderr, check=False).returncode
    if code:
        raise KprofError(
            f"{side.name} ended with exit code {code}", hint="its own messages are above", exit_code=max(code, 1)
        )


def first_slower(count: int, is_slower: Callable[[int], bool]) -> int | None:
    """Of sides 0 to ``count`` - 1 the first that is slower than side 0, by halving: as if all behind it were, too. None
    if the last one is not."""
    if count < 2 or not is_slower(count - 1):
        return None
    low, high = 0, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_slower(middle) else (middle, high)
    return high
