"""With this folder on ``PYTHONPATH``, the process that measures what a record costs has the fake GPU."""

import sys

if "kprof_inject.calibration_process" in sys.orig_argv:
    import fake_gpu.program  # noqa: F401
