"""The steps of ``compare``: profile a program in turn under two or more settings, each in its own workspace.

A side runs in processes of its own, so that its interpreter, Triton and environment can differ. Its captures are read
like any other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.ring_sizes import MAX_LAUNCH_BYTES
from kprof_inject.errors import KprofError
from kprof_inject.pipeline import STEP_VARIABLE, Say
from kprof_inject.pipeline.captures import decode_capture
from kprof_inject.quantities import listed, size_text
from kprof_inject.timeline.fitted_buffer import fitted_buffer
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_paths import is_workspace

_MAX_KERNELS = 3

# The folder of the package, for interpreters that do not have it installed.
_PACKAGE_ROOT = Path(__file__).parents[2]


class SideFailed(Exception):
    """A step of a side failed; its own messages on stderr have the reason."""

    def __init__(self, side: str, exit_code: int) -> None:
        """Keep the step's exit code, or 1 if a signal ended it."""
        super().__init__(f"{side} ended with exit code {exit_code}")
        self.exit_code = max(exit_code, 1)


class ComparedSide(Struct, frozen=True):
    """A setting under which the program runs.

    Messages call it ``name``. ``triton`` is a folder with the package, as ``pip install --target`` makes it;
    ``environment`` and ``arguments`` are added to those of the program.
    """

    name: str
    workspace: Path
    python: str = sys.executable
    triton: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    def variables(self) -> dict[str, str]:
        """Return the environment of the side's processes."""
        variables = {**os.environ, **self.environment}
        paths = [self.triton, _PACKAGE_ROOT, *variables.get("PYTHONPATH", "").split(os.pathsep)]
        return {**variables, "PYTHONPATH": os.pathsep.join(str(path) for path in paths if path)}

    def captures(self) -> list[Path]:
        """Return the folders of the side's captures so far, oldest first."""
        return Workspace.open(self.workspace).capture_folders() if is_workspace(self.workspace) else []


def require_usable(sides: Sequence[ComparedSide]) -> None:
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


class ComparedRounds(Struct, frozen=True):
    """Choice of how often to capture each side, and what to capture.

    ``selectors`` are as in ``insert``, ``kernel`` is a glob, ``launches`` is as in ``run``, and ``buffer`` are options
    of ``run`` for the size of the buffer.
    """

    count: int
    selectors: Sequence[str]
    kernel: str
    launches: str
    program: Sequence[str]
    buffer: Sequence[str] = ()

    def steps(self, side: ComparedSide) -> list[list[str]]:
        """Return the commands of one round; each round also times the program without records."""
        at = [word for selector in self.selectors for word in ("--at", selector)]
        return [
            ["dump", "-o", str(side.workspace), "--kernel", self.kernel, *self._program(side)],
            ["insert", str(side.workspace), *at],
            self.recording(side),
        ]

    def recording(self, side: ComparedSide) -> list[str]:
        """Return the command of a round that captures; the others prepare for it."""
        options = ["--kernel", self.kernel, "--launches", self.launches, *self.buffer]
        return ["run", str(side.workspace), *options, *self._program(side)]

    def _program(self, side: ComparedSide) -> list[str]:
        return ["--", *self.program, *side.arguments]


def profile_in_turn(sides: Sequence[ComparedSide], rounds: ComparedRounds, say: Say) -> list[list[Timeline]]:
    """Capture all sides in each round, so that clock changes affect all of them; return the launches of each side.

    If the first round loses records, it is recorded again, and from then on all sides have buffers that keep all
    records. Raises ``SideFailed`` if a side's program fails.
    """
    captures: list[list[Path]] = [[] for _ in sides]
    for number in range(rounds.count):
        for side, captured in zip(sides, captures, strict=True):
            say(f"{side.name}: round {number + 1} of {rounds.count}")
            for step in rounds.steps(side):
                _run(side, step)
            captured.append(side.captures()[-1])
        if number == 0 and (buffer := _larger_buffer([captured[0] for captured in captures], say)):
            rounds = replace(rounds, buffer=buffer)
            for side, captured in zip(sides, captures, strict=True):
                _run(side, rounds.recording(side))
                captured[0] = side.captures()[-1]
    return [
        [timeline for folder in captured for timeline in decode_capture(read_capture(folder), say)]
        for captured in captures
    ]


def _larger_buffer(captures: Sequence[Path], say: Say) -> tuple[str, ...]:
    """Return the options of ``run`` with which none of these captures would have lost a record.

    Empty if none was lost, or if a launch would need more than ``MAX_LAUNCH_BYTES``.
    """
    fit = fitted_buffer([launch for folder in captures for launch in read_capture(folder).launches], Mode())
    if fit is None:
        return ()
    kernels = listed(list(dict.fromkeys(need.kernel.name for need in fit.losses)), _MAX_KERNELS)
    if fit.launch_bytes > MAX_LAUNCH_BYTES:
        say(f"{kernels} lost records; keeping all would take {size_text(fit.launch_bytes)} for one launch")
        return ()
    options = ("--buffer", fit.mode.buffer, "--buffer-bytes", str(fit.mode.buffer_bytes))
    say(f"{kernels} lost records; recording all sides again with {' '.join(options)}")
    return options


def _run(side: ComparedSide, words: Sequence[str]) -> None:
    # stdout is for the comparison alone; the program's own output goes to stderr, like progress.
    command = [side.python, "-m", "kprof_inject", *words]
    variables = {**side.variables(), STEP_VARIABLE: "1"}
    code = subprocess.run(command, env=variables, stdout=sys.stderr, check=False).returncode
    if code:
        raise SideFailed(side.name, code)


def first_slower(count: int, is_slower: Callable[[int], bool]) -> int | None:
    """Return the first of ``count`` sides that is slower than side 0, by bisection; None if the last is not slower.

    Assumes that every side after the first slower one is slower, too.
    """
    if count < 2 or not is_slower(count - 1):
        return None
    low, high = 0, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_slower(middle) else (middle, high)
    return high
