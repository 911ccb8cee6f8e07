"""Machine code of a folder of ``builds.py``, loaded and launched by the CUDA driver, without Triton.

Source: CUDA Driver API reference, "Module Management" and "Execution Control"; shared memory above 48 kB is asked for
as Triton's own launcher does it (``driver.c``, ``loadBinary``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from builds import Code

from kprof_inject.runtime.devices.cuda_driver import CudaEvent, Driver, ctas_per_sm

_USUAL_SHARED_BYTES = 48 << 10
_PREFER_SHARED = 2  # CU_FUNC_CACHE_PREFER_SHARED
_MAX_DYNAMIC_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_LOCAL_BYTES, _REGISTERS = 3, 4  # CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CU_FUNC_ATTRIBUTE_NUM_REGS
_THREADS = 32
# Long enough for the host to enqueue a launch behind it.
_SLEEP_CYCLES = 200_000


class LoadedCode:
    """One build on the current device."""

    def __init__(self, driver: Driver, cubin: Path, function: str, code: Code) -> None:
        self._driver = driver
        self._code = code
        self._image = cubin.read_bytes()
        module = ctypes.c_void_p()
        self.function = ctypes.c_void_p()
        driver.call("cuModuleLoadData", ctypes.byref(module), self._image)
        driver.call("cuModuleGetFunction", ctypes.byref(self.function), module, function.encode())
        if code.shared_bytes > _USUAL_SHARED_BYTES:
            driver.call("cuFuncSetCacheConfig", self.function, _PREFER_SHARED)
            driver.call("cuFuncSetAttribute", self.function, _MAX_DYNAMIC_SHARED_BYTES, code.shared_bytes)

    def resources(self) -> dict[str, int | None]:
        """As the captures have them."""
        local = self._attribute(_LOCAL_BYTES) // 4
        return {
            "registers": self._attribute(_REGISTERS),
            "local_words": local,
            "spills": local,
            "shared_bytes": self._code.shared_bytes,
            "ctas_per_sm": ctas_per_sm(self.function.value or 0, _THREADS * self._code.warps, self._code.shared_bytes),
        }

    def _attribute(self, name: int) -> int:
        value = ctypes.c_int()
        self._driver.call("cuFuncGetAttribute", ctypes.byref(value), name, self.function)
        return value.value

    def launch(self, grid: Sequence[int], values: Sequence[Any], profile_address: int = 0) -> None:
        """On torch's current stream. ``values`` are tensors and numbers, in the order of the function's parameters."""
        arguments = [_argument(value) for value in values]
        arguments += [ctypes.c_uint64(0), ctypes.c_uint64(profile_address)]
        if len(arguments) != self._code.parameters:
            raise SystemExit(f"the function has {self._code.parameters} parameters, and there are {len(arguments)}")
        addresses = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
        x, y, z = (*grid, 1, 1)[:3]
        self._driver.call(
            "cuLaunchKernel",
            self.function,
            *(x, y, z, _THREADS * self._code.warps, 1, 1, self._code.shared_bytes),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
            addresses,
            None,
        )

    def time_ns(self, grid: Sequence[int], values: Sequence[Any]) -> float:
        """Of one launch, between two events. The device is kept busy until all three are enqueued, so that the host's
        own time is none of it."""
        stream = torch.cuda.current_stream().cuda_stream
        torch.cuda._sleep(_SLEEP_CYCLES)
        begin = CudaEvent(self._driver, stream, is_timed=True)
        self.launch(grid, values)
        end = CudaEvent(self._driver, stream, is_timed=True)
        end.synchronize()
        return 1e6 * begin.elapsed_time(end)


def _argument(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ctypes.c_uint64(value.data_ptr())
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int32(value)
