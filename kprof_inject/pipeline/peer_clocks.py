"""The step that compares the timers of a host's GPUs, before a run and after it, and saves what it found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kprof_inject.capture.encoding import decode
from kprof_inject.capture.peer_clocks import PeerClocksRecord, PeerReading, write_peer_clocks
from kprof_inject.capture.reader import ProcessFiles, read_capture
from kprof_inject.errors import KprofError
from kprof_inject.workspace import Workspace

_PACKAGE_ROOT = Path(__file__).parents[2]
_MODULE = "kprof_inject.runtime.devices.peer_clocks"
_MAX_SECONDS = 20.0
_LAUNCHERS = re.compile(r"torchrun|torch\.distributed|mpirun|mpiexec|srun|deepspeed|accelerate")


def clocks_before(workspace: Workspace, program: Sequence[str]) -> tuple[PeerReading, ...]:
    """Compare the timers before a run if it may use several GPUs; empty if not, or if that is not possible.

    It may if a launcher of several processes is in the command, or if the workspace's last capture is of several GPUs.
    """
    folders = workspace.capture_folders()
    if any(map(_LAUNCHERS.search, program)) or (folders and _has_several(folders[-1])):
        return _readings()
    return ()


def save_peer_clocks(capture_folder: Path, before: Sequence[PeerReading]) -> None:
    """Compare the timers after a run that used several GPUs, and save all readings in its capture."""
    if not _has_several(capture_folder):
        return
    readings = (*before, *_readings())
    if readings:
        write_peer_clocks(capture_folder, readings, ProcessFiles.first_of(capture_folder).process.run)


def _has_several(capture_folder: Path) -> bool:
    """Return whether a capture has launches of several GPUs; False if it cannot be read, which the next step says."""
    try:
        launches = read_capture(capture_folder).launches
    except KprofError:
        return False
    return len({uuid for launch in launches if (uuid := launch.origin.device_uuid(launch.device))}) > 1


def _readings() -> tuple[PeerReading, ...]:
    """Have a process of ours compare the timers of the GPUs that the program sees, too."""
    path = os.pathsep.join(filter(None, (str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", ""))))
    try:
        ended = subprocess.run(
            [sys.executable, "-m", _MODULE],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_MAX_SECONDS,
            check=True,
        )
        return decode(ended.stdout, PeerClocksRecord, _MODULE).readings
    except (OSError, subprocess.SubprocessError, KprofError):
        return ()
