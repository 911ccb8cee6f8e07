"""Settings that the command line passes to the program's processes for one step."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from kprof_inject.capture.edits import Constant
from kprof_inject.capture.recording import Recording
from kprof_inject.capture.saved_launch import MAX_LAUNCH_BYTES
from kprof_inject.files import write_json

SESSION_VARIABLE = "KPROF_INJECT_SESSION"

TORCH_TRACE = "torch_trace.{process}.json.gz"
"""File name of a process's ``torch.profiler`` trace, in the reports' folder; ``process`` is the process ID."""


@dataclass(frozen=True, slots=True)
class SavedLaunches:
    """The kernels of which one launch is saved, and where.

    ``variants`` are those of the kernels; None means all. ``folder`` gets the launches; ``kernels_folder`` is the
    workspace's. Memory is limited per launch and for a process, and so is the time that a launch waits. With
    ``is_asked_for``, launches are saved even if the program would see in its own times that they are.
    """

    variants: tuple[str, ...] | None = ()
    folder: str = ""
    kernels_folder: str = ""
    max_launch_bytes: int = MAX_LAUNCH_BYTES
    max_bytes: int = 8 << 30
    max_seconds: float = 1.0
    is_asked_for: bool = False

    def has(self, variant: str) -> bool:
        """Return True if a launch of this variant is to be saved."""
        return self.variants is None or variant in self.variants


NO_SAVED_LAUNCHES = SavedLaunches()


@dataclass(frozen=True, slots=True)
class Session:
    """Settings for the program's processes, in a JSON file that the environment names.

    Paths are absolute. ``made_by`` is that of ``ProcessRecord``.
    ``programs_cache`` is where the program's Triton caches without us; empty not to read it. ``values`` are those of
    constants to make TTIR for. ``selectors`` and the words of a ``style`` say which records ``profile`` inserts.
    """

    step: Literal["dump", "run", "profile"]
    workspace: str
    reports: str
    recording: Recording = Recording()  # noqa: RUF009 (frozen)
    capture: str = ""
    made_by: str = ""
    saved: SavedLaunches = NO_SAVED_LAUNCHES
    programs_cache: str = ""
    values: dict[str, tuple[Constant, ...]] = field(default_factory=dict)
    selectors: tuple[str, ...] = ()
    style: tuple[str, str] = ("", "")

    @property
    def runs_once(self) -> bool:
        """True if the program runs only once, so that it also shows how long kernels take without records."""
        return self.step == "profile"

    @property
    def path(self) -> Path:
        """File of the session. The start-up hook leaves its marks next to it, before it can read the file."""
        return Path(self.reports, "session")

    def write(self) -> None:
        """Write the file."""
        write_json(self.path, msgspec.to_builtins(self))

    @classmethod
    def read(cls, path: Path) -> Session:
        """Read the session in a file."""
        # Not msgspec's JSON reader, which rejects paths that are not UTF-8.
        return msgspec.convert(json.loads(path.read_bytes()), cls)
