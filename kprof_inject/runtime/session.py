"""Settings that the command line passes to the program's processes for one step."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from kprof_inject.capture.cta_samples import EVERY_CTA, CtaChoice
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.other_values import Constant
from kprof_inject.files import write_json
from kprof_inject.runtime.launch.launch_choice import NO_SAVED_LAUNCHES, SavedLaunches

SESSION_VARIABLE = "KPROF_INJECT_SESSION"

TORCH_TRACE = "torch_trace.{process}.json.gz"
"""File name of a process's ``torch.profiler`` trace, in the reports' folder; ``process`` is the process ID."""


@dataclass(frozen=True, slots=True)
class Session:
    """Settings for the program's processes, in a JSON file that the environment names.

    ``step`` is ``dump``, ``run`` or ``profile``; ``kernel`` a glob; ``launches`` a launch specification; paths are
    absolute. ``made_by`` is that of ``ProcessRecord``. With ``torch_trace``, each process traces itself with
    ``torch.profiler``.
    ``programs_cache`` is where the program's Triton caches without us; empty not to read it. ``values`` are those of
    constants to make TTIR for. ``selectors`` and the words of a ``style`` say which records ``profile`` inserts.
    """

    step: str
    workspace: str
    reports: str
    kernel: str = "*"
    capture: str = ""
    made_by: str = ""
    launches: str = "last"
    max_bytes: int = 1 << 30
    max_launches: int = 0
    ctas: CtaChoice = EVERY_CTA
    saved: SavedLaunches = NO_SAVED_LAUNCHES
    mode: Mode = field(default_factory=Mode)
    torch_trace: bool = False
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
        write_json(self.path, asdict(self))

    @classmethod
    def from_environment(cls) -> Session | None:
        """Return the session that this process belongs to, or None if there is none."""
        path = os.environ.get(SESSION_VARIABLE)
        if not path:
            return None
        return cls.read(Path(path))

    @classmethod
    def read(cls, path: Path) -> Session:
        """Read the session in a file."""
        # Not msgspec's JSON reader, which rejects paths that are not UTF-8.
        return msgspec.convert(json.loads(path.read_bytes()), cls)
