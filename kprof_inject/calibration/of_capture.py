"""Gives a capture the cost of its records: measured once for each machine and mode, and kept in the workspace."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kprof_inject.calibration.child import measure_in_child
from kprof_inject.calibration.request import Request
from kprof_inject.capture.reader import Capture, Process, read_capture
from kprof_inject.capture.record_cost import CostKey, MeasuredCost, read_costs, write_costs
from kprof_inject.capture.schema import RECORD_COSTS_FILE
from kprof_inject.errors import KprofError
from kprof_inject.workspace import Workspace


def add_record_costs(workspace: Workspace, capture_folder: Path) -> Iterator[str]:
    """Save what a record of the capture's launches costs beside them, and measure it first where the workspace does not
    know it. Yields what is to be said, before what takes time. Never raises: the capture is good without."""
    try:
        capture = read_capture(capture_folder)
        needed = _needed(capture)
        if not needed:
            return
        known = _known(workspace)
        for request, executable in needed.values():
            if request.key not in known:
                yield from _measure(workspace, request, executable, known)
        if found := [known[key] for key in needed if key in known]:
            write_costs(capture_folder / RECORD_COSTS_FILE, found, capture.processes[0].info.run)
    except KprofError as error:
        yield f"what a record costs is not known: {error.what}"
    except OSError as error:
        yield f"what a record costs could not be saved: {error.strerror}"


def _measure(
    workspace: Workspace, request: Request, executable: str, known: dict[CostKey, MeasuredCost]
) -> Iterator[str]:
    """Measure one cost, and add it to what is known."""
    yield f"measuring what a record costs on {request.key.device_name}, once for this workspace and mode"
    folder = workspace.calibration_folder / "run"
    try:
        cost = measure_in_child(request, folder, workspace.cache_folder("calibration"), executable)
    except KprofError as error:
        yield f"what a record costs could not be measured: {error.what}"
        return
    known[request.key] = cost
    write_costs(_costs_file(workspace), known.values())


def _needed(capture: Capture) -> dict[CostKey, tuple[Request, str]]:
    """What is to be measured for a capture's launches, and the Python that made them."""
    needed: dict[CostKey, tuple[Request, str]] = {}
    for process in capture.processes:
        for launch in process.launches:
            if launch.device_name:
                key = CostKey.of(launch.device_name, process.info.triton, launch.kernel.mode)
                needed.setdefault(key, (Request(key, launch.origin.device_uuid(launch.device)), _executable(process)))
    return needed


def _executable(process: Process) -> str:
    return process.info.executable or sys.executable


def _known(workspace: Workspace) -> dict[CostKey, MeasuredCost]:
    """What was measured in this workspace before; a damaged file is as good as none."""
    try:
        return read_costs(_costs_file(workspace))
    except KprofError:
        return {}


def _costs_file(workspace: Workspace) -> Path:
    return workspace.calibration_folder / RECORD_COSTS_FILE
