"""``python -m kprof_inject.calibration FOLDER``: measure what is asked for in a folder, and answer there."""

from __future__ import annotations

import sys
from pathlib import Path

from kprof_inject.calibration.calibrate import CostRequest, write_result
from kprof_inject.calibration.measure import measure
from kprof_inject.errors import KprofError


def main(folder: Path) -> None:
    """Whatever is no ``KprofError`` ends the process with a traceback, as faults of ours do."""
    try:
        request = CostRequest.read(folder)
        write_result(folder, measure(folder / "workspace", request.key.device_name, request.device_uuid, request.mode))
    except KprofError as error:
        write_result(folder, error)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
