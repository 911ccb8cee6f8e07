"""One step over one program: the settings that the command line passes to the program's processes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from kprof_inject.capture.mode import Mode
from kprof_inject.files import write_json
from kprof_inject.runtime.launch.launch_choice import NO_REPLAYS, ReplayChoice

SESSION_VARIABLE = "KPROF_INJECT_SESSION"
STEP_VARIABLE = "KPROF_INJECT_STEP"
"""Set for a command that another one of ours runs as one of its steps: it suggests no next step to the user."""

TORCH_TRACE = "torch_trace.{process}.json.gz"
"""Next to the reports: the trace of ``torch.profiler`` of a process, by its number."""


@dataclass(frozen=True, slots=True)
class Session:
    """Settings that the command line passes to the processes of the program: one JSON file, named in the environment.

    ``step`` is ``dump``, ``run`` or ``causal``; ``kernel`` a glob; ``launches`` a launch specification; paths are
    absolute. ``made_by`` is as ``ProcessRecord`` has it. ``torch_trace`` has each process trace itself with
    ``torch.profiler``. ``experiment`` is the folder for the results of ``causal``, and ``seconds`` its time limit for
    each kernel.
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
    replays: ReplayChoice = NO_REPLAYS
    mode: Mode = field(default_factory=Mode)
    torch_trace: bool = False
    experiment: str = ""
    seconds: float = 0.0
    run: str = field(default_factory=lambda: os.urandom(8).hex())
    """Identifies the run: what its processes save belongs together."""

    @property
    def path(self) -> Path:
        """File that it is written to. The start-up hook leaves its marks next to it, before it can read it."""
        return Path(self.reports, "session")

    def write(self) -> None:
        """Write the file."""
        write_json(self.path, asdict(self))

    @classmethod
    def from_environment(cls) -> Session | None:
        """Return the session that this process belongs to, or None outside of any."""
        path = os.environ.get(SESSION_VARIABLE)
        if not path:
            return None
        # Not msgspec's reader, which knows no path that is not UTF-8.
        return msgspec.convert(json.loads(Path(path).read_bytes()), cls)
