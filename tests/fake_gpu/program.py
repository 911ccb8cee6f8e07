"""For programs: import this before Triton."""

from __future__ import annotations

import sys

from fake_gpu.device import FakeDevice
from fake_gpu.gpu import FakeGpu
from kprof_inject.runtime.devices import device as devices
from kprof_inject.runtime.devices import worker_device

if "triton" in sys.modules:
    raise ImportError("Triton is imported already: the capture has a real device by now")

gpu = FakeGpu()
"""The GPU of this process."""

device = FakeDevice(gpu)

devices.devices_of_process = lambda: device  # type: ignore[assignment]

from fake_gpu.driver import install  # noqa: E402 (imports Triton)
from fake_gpu.kernels import HOST_KERNELS  # noqa: E402

worker_device.worker_device = lambda name, uuid: FakeDevice(gpu)  # type: ignore[assignment,misc,return-value]

gpu.host_kernels = HOST_KERNELS
install(gpu)
