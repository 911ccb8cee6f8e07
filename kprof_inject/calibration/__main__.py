"""``python -m kprof_inject.calibration FOLDER``: measure the cost that a folder requests, and write it there."""

from __future__ import annotations

import sys
from pathlib import Path

from kprof_inject.calibration.calibrate import CostRequest, write_result
from kprof_inject.calibration.measure import measure
from kprof_inject.errors import KprofError


def main(folder: Path) -> None:
    """Measure the request of ``folder``; exceptions other than ``KprofError`` are bugs, and end the process."""
    try:
        request = CostRequest.read(folder)
        write_result(folder, measure(folder / "workspace", request.key.device_name, request.device_uuid, request.mode))
    except KprofError as error:
        write_result(folder, error)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
