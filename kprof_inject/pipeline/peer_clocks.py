"""The step that compares the timers of a host's GPUs, before a run and after it, and saves what it found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from kprof_inject.capture.encoding import decode
from kprof_inject.capture.peer_clocks import PeerClocksRecord, PeerReading, write_peer_clocks
from kprof_inject.capture.reader import ProcessFiles, read_capture
from kprof_inject.errors import KprofError
from kprof_inject.runtime.program import finding_this_package
from kprof_inject.workspace import Workspace

_MODULE = "kprof_inject.runtime.devices.peer_clocks"
_MAX_SECONDS = 20.0
_LAUNCHERS = re.compile(r"torchrun|torch\.distributed|mpirun|mpiexec|srun|deepspeed|accelerate")


def clocks_before(workspace: Workspace, program: Sequence[str]) -> tuple[PeerReading, ...]:
    """Compare the timers before a run if it may use several GPUs; empty if not, or if that is not possible.

    It may if a launcher of several processes is in the command, or if the workspace's last capture is of several GPUs.
    """
    if any(map(_LAUNCHERS.search, program)):
        return _readings()
    folders = workspace.capture_folders()
    used = _gpus_of(folders[-1]) if folders else frozenset()
    return _readings(used) if len(used) > 1 else ()


def save_peer_clocks(capture_folder: Path, before: Sequence[PeerReading]) -> None:
    """Compare the timers after a run that used several GPUs, and save all readings in its capture."""
    used = _gpus_of(capture_folder)
    readings = (*before, *_readings(used)) if len(used) > 1 else ()
    if readings:
        write_peer_clocks(capture_folder, readings, ProcessFiles.first_of(capture_folder).process.run)


def _gpus_of(capture_folder: Path) -> frozenset[str]:
    """Return the UUIDs of a capture's GPUs; empty if it cannot be read, which the next step says."""
    try:
        launches = read_capture(capture_folder).launches
    except KprofError:
        return frozenset()
    return frozenset(launch.origin.device_uuid(launch.device) for launch in launches) - {""}


def _readings(uuids: Collection[str] = ()) -> tuple[PeerReading, ...]:
    """Have a process of ours compare the timers of these GPUs, or of all that the program sees, too."""
    try:
        ended = subprocess.run(
            [sys.executable, "-m", _MODULE, *sorted(uuids)],
            env=finding_this_package(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_MAX_SECONDS,
            check=True,
        )
        return decode(ended.stdout, PeerClocksRecord, _MODULE).readings
    except (OSError, subprocess.SubprocessError, KprofError):
        return ()
