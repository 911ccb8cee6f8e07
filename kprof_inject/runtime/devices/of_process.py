"""Which devices this process has."""

from __future__ import annotations

import functools

import torch

from kprof_inject.runtime.devices.cuda_device import CudaDevice
from kprof_inject.runtime.devices.cuda_driver import loaded_driver
from kprof_inject.runtime.devices.cuda_memory import Driver
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.devices.torch_device import TorchDevice


@functools.cache
def devices_of_process() -> Device:
    """NVIDIA's by their driver, others by torch. One for all: what memory it once took, it uses again."""
    driver = loaded_driver() if torch.version.cuda is not None else None
    return CudaDevice(Driver(driver)) if driver is not None else TorchDevice()
