"""With this folder on ``PYTHONPATH``, processes of ours that use a GPU have the fake one."""

import sys

if "kprof_inject.runtime.worker.worker" in sys.orig_argv:
    import fake_gpu.program  # noqa: F401
