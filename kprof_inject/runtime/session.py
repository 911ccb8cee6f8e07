"""What the command line tells the processes of the program: one JSON file, named in the environment."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from kprof_inject.capture.mode import DEFAULT_MODE, Mode
from kprof_inject.files import read_object, write_json

SESSION_VARIABLE = "KPROF_INJECT_SESSION"


@dataclass(frozen=True, slots=True)
class Session:
    """One step over one program. ``step`` is ``dump`` or ``run``; ``kernel`` a glob; ``launches`` a launch
    specification; paths are absolute."""

    step: str
    workspace: str
    reports: str
    kernel: str = "*"
    capture: str = ""
    launches: str = "last"
    max_bytes: int = 1 << 30
    max_launches: int = 0
    mode: Mode = DEFAULT_MODE
    run: str = field(default_factory=lambda: os.urandom(8).hex())
    """By which what the processes of one run save belongs together."""

    @property
    def path(self) -> Path:
        """Where it is written. The start-up hook leaves its marks beside it, before it can read what it says."""
        return Path(self.reports, "session")

    def write(self) -> None:
        write_json(self.path, asdict(self))

    @classmethod
    def from_environment(cls) -> Session | None:
        """The session that this process belongs to, or None outside of any."""
        path = os.environ.get(SESSION_VARIABLE)
        if not path:
            return None
        values = read_object(Path(path), *(one.name for one in fields(cls)))
        given = {one.name: values[one.name] for one in fields(cls)}
        return cls(**given | {"mode": Mode.from_json(given["mode"])})
