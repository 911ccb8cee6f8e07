"""Gives a capture the cost of its records: measured once for each machine and mode, by a process of its own, and kept
in the workspace.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import Struct

from kprof_inject.capture.encoding import decode, encode, read_json
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import Capture, Process
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.record_costs import CostKey, MeasuredCost, read_costs, write_costs
from kprof_inject.capture.schema import RECORD_COSTS_FILE, Text
from kprof_inject.errors import KprofError
from kprof_inject.files import write_bytes, write_json
from kprof_inject.runtime.session import SESSION_VARIABLE
from kprof_inject.workspace import Workspace

_REQUEST_FILE = "request.json"
_RESULT_FILE = "result.json"


@dataclass(frozen=True, slots=True)
class CostRequest:
    """A cost to be measured, on the device with this UUID, or if it is empty on any with the name in ``key``."""

    key: CostKey
    device_uuid: str

    @property
    def mode(self) -> Mode:
        """One of the modes that the key stands for."""
        warps = (0,) if self.key.some_warps else ()
        return Mode(self.key.buffer, 0, self.key.clock_bits, warps, self.key.sched_stores)

    def write(self, folder: Path) -> None:
        """Ask for it in ``folder``."""
        (folder / _RESULT_FILE).unlink(missing_ok=True)
        write_json(folder / _REQUEST_FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> CostRequest:
        """What is asked for in ``folder``. Raises ``KprofError``."""
        path = folder / _REQUEST_FILE
        return decode(read_json(path, folder), cls, str(path))


class _Failure(Struct, frozen=True):
    error: Text = ""


def write_result(folder: Path, result: MeasuredCost | KprofError) -> None:
    """Answer the request in ``folder``."""
    answer = _Failure(result.what) if isinstance(result, KprofError) else result
    write_bytes(folder / _RESULT_FILE, encode(answer) + b"\n")


def read_result(folder: Path) -> MeasuredCost | None:
    """The answer in ``folder``; None if there is none. Raises ``KprofError`` if the answer is an error."""
    path = folder / _RESULT_FILE
    if not path.exists():
        return None
    answer = read_json(path, folder)
    failure = decode(answer, _Failure, str(path))
    if failure.error:
        raise KprofError(failure.error)
    return decode(answer, MeasuredCost, str(path))


LIMIT_S = 60.0

_NOT_FOR_IT = (
    SESSION_VARIABLE,
    "TRITON_KERNEL_OVERRIDE",
    "TRITON_OVERRIDE_DIR",
    "TRITON_KERNEL_DUMP",
    "TRITON_DUMP_DIR",
)
"""What has Triton replace kernels, or write outside of the workspace; all else decides how it compiles, as before."""


def measure_in_child(
    request: CostRequest, folder: Path, cache: Path, executable: str, limit_s: float = LIMIT_S
) -> MeasuredCost:
    """What a process of the Python ``executable`` measures. It works in ``folder``, which is emptied before, and its
    Triton caches in ``cache``. Raises ``KprofError`` that says what went wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    request.write(folder)
    try:
        process = subprocess.Popen(
            [executable, "-m", "kprof_inject.calibration", str(folder.resolve())],
            env=_environment(os.environ, cache.resolve()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # leads a group, so that an assembler which it waits for ends with it
        )
    except OSError as error:
        raise KprofError(f"cannot start {executable}: {error.strerror}") from None
    try:
        _, said = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise KprofError(f"the calibration took longer than {limit_s:g} s") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    cost = read_result(folder)
    if cost is None:
        raise KprofError(_obituary(process.returncode, said))
    if cost.key != request.key:
        raise KprofError(f"{executable} has Triton {cost.key.triton}, and the program had {request.key.triton}")
    return cost


def _environment(inherited: Mapping[str, str], cache: Path) -> dict[str, str]:
    mine = {name: value for name, value in inherited.items() if name not in _NOT_FOR_IT}
    return {**mine, "TRITON_HOME": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}


def _obituary(status: int, said: bytes) -> str:
    last = [line for line in said.decode(errors="replace").splitlines() if line.strip()][-1:]
    how = f"exit code {status}" if status >= 0 else f"signal {-status}"
    return ": ".join([f"the calibration ended with {how}", *last])


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
        yield f"the record cost is unknown: {error.what}"
    except OSError as error:
        yield f"the record cost could not be saved: {error.strerror}"


def _measure(
    workspace: Workspace, request: CostRequest, executable: str, known: dict[CostKey, MeasuredCost]
) -> Iterator[str]:
    """Measure one cost, and add it to what is known."""
    yield f"measuring the record cost on {request.key.device_name}, once for this workspace and mode"
    folder = workspace.calibration_folder / "run"
    try:
        cost = measure_in_child(request, folder, workspace.cache_folder("calibration"), executable)
    except KprofError as error:
        yield f"the record cost could not be measured: {error.what}"
        return
    known[request.key] = cost
    write_costs(_costs_file(workspace), known.values())


def _needed(capture: Capture) -> dict[CostKey, tuple[CostRequest, str]]:
    """What is to be measured for a capture's launches, and the Python that made them."""
    needed: dict[CostKey, tuple[CostRequest, str]] = {}
    for process in capture.processes:
        for launch in process.launches:
            if launch.device_name:
                key = CostKey.of(launch.device_name, process.info.triton, launch.kernel.mode)
                needed.setdefault(
                    key, (CostRequest(key, launch.origin.device_uuid(launch.device)), _executable(process))
                )
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
