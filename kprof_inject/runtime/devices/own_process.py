"""The device of a process of ours, which needs neither torch nor a framework's choice of device and stream."""

from __future__ import annotations

import ctypes
from typing import Any

from triton.runtime.driver import driver

from kprof_inject.errors import KprofError
from kprof_inject.runtime.devices.cuda_device import CudaDevice
from kprof_inject.runtime.devices.cuda_driver import CudaBuffer, Driver, loaded_driver
from kprof_inject.runtime.devices.device import MemoryRange
from kprof_inject.runtime.devices.fixed_memory import FixedMemory

# CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_MAJOR, _MINOR = 75, 76
_WORD_BYTES = 8


class OwnDevice(CudaDevice):
    """The only device of this process, with memory at fixed addresses."""

    def __init__(self, functions: Driver, index: int) -> None:
        """Work on the device with this index from now on, in this thread."""
        super().__init__(functions)
        self._index = index
        self._sum: CudaBuffer | None = None
        self._context = functions.context(index)
        self._context.__enter__()

    def mapped(self, ranges: list[MemoryRange]) -> FixedMemory:
        """Map memory at ranges. Raises ``AddressTaken`` and ``NoDeviceMemory``."""
        memory = FixedMemory(self._driver, self._index)
        try:
            memory.map(ranges)
        except BaseException:
            memory.close()
            raise
        return memory

    def read(self, memory: MemoryRange, stream: int) -> None:
        """Queue a kernel that reads all of a range."""
        if self._sum is None:
            self._sum = self._memory.zeros_now(_WORD_BYTES, self._index)
        self._kernels.queue_digest(self._index, memory.address, memory.size_bytes, self._sum.data_ptr(), stream)

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to device memory, now."""
        self._driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))


def has_nvidia_gpu() -> bool:
    """Return whether NVIDIA's driver is here, and sees a GPU."""
    functions, count = loaded_driver(), ctypes.c_int()
    if functions is None or functions.cuInit(0) or functions.cuDeviceGetCount(ctypes.byref(count)):
        return False
    return count.value > 0


def device_of_own_process(name: str, uuid: str) -> OwnDevice:
    """Begin to use the device with this UUID, or another one with this name, or else the first one.

    Triton then launches on it, without torch. Raises ``KprofError`` if this machine has no NVIDIA GPU.
    """
    functions = loaded_driver()
    if functions is None or not has_nvidia_gpu():
        raise KprofError("this machine has no NVIDIA GPU", hint="run it where there is one")
    cuda = Driver(functions)
    devices = CudaDevice(cuda)
    names, uuids = devices.names(), devices.uuids()
    same = [index for index, found in enumerate(uuids) if found == uuid]
    alike = [index for index, found in enumerate(names) if found == name]
    index = (*same, *alike, 0)[0]
    device = OwnDevice(cuda, index)
    driver.set_active(_triton_driver(cuda, index))
    return device


def _triton_driver(cuda: Driver, index: int) -> Any:
    """Return Triton's driver for a device. Triton up to 3.8 makes its own only with torch."""
    from triton.backends.nvidia.driver import CudaDriver, CudaLauncher, CudaUtils

    handle, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    cuda.call("cuDeviceGet", ctypes.byref(handle), index)
    cuda.call("cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, handle)
    cuda.call("cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, handle)

    class OwnDriver(CudaDriver):  # type: ignore[misc]
        def __init__(self) -> None:
            self.utils = CudaUtils()
            self.launcher_cls = CudaLauncher
            self.get_device_capability = lambda device: (major.value, minor.value)
            self.get_current_stream = lambda device: 0
            self.get_current_device = lambda: index
            self.set_current_device = lambda device: None

    return OwnDriver()
