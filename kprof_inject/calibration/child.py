"""Has a process of its own measure what a record costs: what goes wrong there is not the user's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kprof_inject.calibration.request import Request, read_result
from kprof_inject.capture.record_cost import MeasuredCost
from kprof_inject.errors import KprofError
from kprof_inject.runtime.session import SESSION_VARIABLE

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
    request: Request, folder: Path, cache: Path, executable: str, limit_s: float = LIMIT_S
) -> MeasuredCost:
    """What a process of the Python ``executable`` measures. It works in ``folder``, which is emptied before, and its
    Triton caches in ``cache``. Raises ``KprofError`` that says what went wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    request.write(folder)
    try:
        process = subprocess.Popen(
            [executable, "-m", "kprof_inject.calibration", str(folder)],
            env=_environment(os.environ, cache),
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
