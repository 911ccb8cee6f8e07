"""With this folder on ``PYTHONPATH``, processes of ours that use a GPU have the fake one."""

import sys

_OURS = ("kprof_inject.calibration_process", "kprof_inject.runtime.experiments.own_process")

if any(module in sys.orig_argv for module in _OURS):
    import fake_gpu.program  # noqa: F401
