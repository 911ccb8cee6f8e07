"""Add the cost of its records to a capture.

If no cost is shipped for the device, a separate process measures it, once for each mode, and it is kept in the user's
cache.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import Struct

from kprof_inject.capture.encoding import decode, encode, read_json
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import Capture
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.record_costs import CostKey, MeasuredCost, cost_of, read_costs, write_costs
from kprof_inject.capture.schema import RECORD_COSTS_FILE, Text
from kprof_inject.errors import KprofError
from kprof_inject.files import write_bytes, write_json
from kprof_inject.runtime.program import process_environment
from kprof_inject.workspace import Workspace

_REQUEST_FILE = "request.json"
_RESULT_FILE = "result.json"


@dataclass(frozen=True, slots=True)
class CostRequest:
    """Request to measure a cost, on the device with this UUID, or if it is empty on any with the name in ``key``."""

    key: CostKey
    device_uuid: str

    @property
    def mode(self) -> Mode:
        """Mode with this key; sizes and numbers of warps do not matter."""
        warps = (0,) if self.key.some_warps else ()
        return Mode(self.key.buffer, 0, self.key.clock_bits, warps, self.key.sched_stores)

    def write(self, folder: Path) -> None:
        """Write the request to ``folder``, and remove an old result."""
        (folder / _RESULT_FILE).unlink(missing_ok=True)
        write_json(folder / _REQUEST_FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> CostRequest:
        """Read the request in ``folder``; raises ``KprofError``."""
        path = folder / _REQUEST_FILE
        return decode(read_json(path, folder), cls, str(path))


class _Failure(Struct, frozen=True):
    error: Text = ""


def write_result(folder: Path, result: MeasuredCost | KprofError) -> None:
    """Write the result of the request in ``folder``."""
    answer = _Failure(result.what) if isinstance(result, KprofError) else result
    write_bytes(folder / _RESULT_FILE, encode(answer) + b"\n")


def read_result(folder: Path) -> MeasuredCost | None:
    """Return the result in ``folder``; None if there is none.

    Raises ``KprofError`` if the result is an error.
    """
    path = folder / _RESULT_FILE
    if not path.exists():
        return None
    answer = read_json(path, folder)
    failure = decode(answer, _Failure, str(path))
    if failure.error:
        raise KprofError(failure.error)
    return decode(answer, MeasuredCost, str(path))


# Time limit of the measuring process.
LIMIT_S = 60.0


def measure_in_child(
    request: CostRequest, folder: Path, cache: Path, executable: str, limit_s: float = LIMIT_S
) -> MeasuredCost:
    """Measure in a process of the Python ``executable``.

    It works in ``folder``, which is emptied before, and its Triton caches in ``cache``. Raises ``KprofError`` that says
    what went wrong.
    """
    shutil.rmtree(folder, ignore_errors=True)
    request.write(folder)
    try:
        process = subprocess.Popen(
            [executable, "-m", "kprof_inject.calibration_process", str(folder.resolve())],
            env=process_environment(os.environ, cache),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # leads a group, so that an assembler that it waits for ends with it
        )
    except OSError as error:
        raise KprofError(f"cannot start {executable}: {error.strerror}") from None
    try:
        _, stderr = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise KprofError(f"the calibration took longer than {limit_s:g} s") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    cost = read_result(folder)
    if cost is None:
        raise KprofError(_exit_message(process.returncode, stderr))
    if cost.key != request.key:
        raise KprofError(f"{executable} has Triton {cost.key.triton}, and the program had {request.key.triton}")
    return cost


def _exit_message(status: int, stderr: bytes) -> str:
    last = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()][-1:]
    how = f"exit code {status}" if status >= 0 else f"signal {-status}"
    return ": ".join([f"the calibration ended with {how}", *last])


def add_record_costs(workspace: Workspace, capture_folder: Path) -> Iterator[str]:
    """Save the record cost of the capture's launches in its folder; measure it first if it is not known.

    Yields progress messages before what takes time. Never raises, because the capture is useful without costs.
    """
    try:
        capture = read_capture(capture_folder)
        needed = _needed(capture)
        if not needed:
            return
        known = _known_costs(workspace)
        for request, executable in needed.values():
            if cost_of(request.key, known) is None:
                yield f"measuring the record cost on {request.key.device_name}, once for this mode and this user"
                folder, cache = workspace.calibration_folder / "run", workspace.cache_folder_of_rerun("calibration")
                try:
                    known[request.key] = measure_in_child(request, folder, cache, executable)
                except KprofError as error:
                    yield f"cannot measure the record cost: {error.what}"
                else:
                    _keep(known, workspace)
        if found := [known[key] for key in needed if key in known]:
            write_costs(capture_folder / RECORD_COSTS_FILE, found, capture.processes[0].info.run)
    except KprofError as error:
        yield f"the record cost is unknown: {error.what}"
    except OSError as error:
        yield f"cannot save the record cost: {error.strerror}"


def _costs_files(workspace: Workspace) -> tuple[Path, Path]:
    """Return the files with measured costs: in the user's cache, and for who has none, in the workspace.

    A cost depends on the machine code, which Triton's assembler makes, and on the device; not on the driver.
    """
    import platformdirs  # most commands measure nothing

    in_cache = platformdirs.user_cache_path("kprof-inject")
    return in_cache / RECORD_COSTS_FILE, workspace.calibration_folder / RECORD_COSTS_FILE


def _known_costs(workspace: Workspace) -> dict[CostKey, MeasuredCost]:
    known: dict[CostKey, MeasuredCost] = {}
    for file in _costs_files(workspace):
        with suppress(KprofError):  # the file is damaged
            known |= read_costs(file)
    return known


def _keep(costs: dict[CostKey, MeasuredCost], workspace: Workspace) -> None:
    """Keep measured costs for later runs. Raises ``OSError`` if there is no room anywhere."""
    in_cache, in_workspace = _costs_files(workspace)
    try:
        write_costs(in_cache, costs.values())
    except OSError:
        write_costs(in_workspace, costs.values())


def _needed(capture: Capture) -> dict[CostKey, tuple[CostRequest, str]]:
    """Return the costs that a capture's launches need, each with the request and the Python that made the launches."""
    needed: dict[CostKey, tuple[CostRequest, str]] = {}
    for process in capture.processes:
        for launch in process.launches:
            if launch.device_name:
                key = CostKey.of(launch.device_name, process.info.triton, launch.kernel.mode)
                request = CostRequest(key, launch.origin.device_uuid(launch.device))
                needed.setdefault(key, (request, process.info.executable or sys.executable))
    return needed
