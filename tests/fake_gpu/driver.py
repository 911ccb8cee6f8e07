"""The fake GPU as Triton sees it: a driver, and the launcher of the installed version over a fake launch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import programs.known_key  # noqa: F401
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia.driver import CudaLauncher
from triton.compiler.compiler import CompiledKernel
from triton.runtime.driver import driver

from fake_gpu.gpu import FakeGpu, Launch, LoadedKernel
from fake_gpu.profile_buffer import delays_in, is_reordered, records_in, timed_words, untimed_words
from kprof_inject.runtime.devices import cuda_driver

_VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])

CLEAN_REGISTERS, REGISTERS_WITH_RECORDS = 32, 40
SPILLS_WITH_RECORDS = 16


@dataclass(frozen=True)
class FakeModule:
    """What a compiled kernel holds as long as it is loaded."""

    gpu: FakeGpu
    handle: int

    def unload(self) -> None:
        self.gpu.loaded.pop(self.handle)


class FakeDriver(DriverBase):
    """Triton's driver for the fake GPU."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.utils = SimpleNamespace(
            load_binary=self._load_binary,
            unload_module=lambda module: module.unload(),
            get_device_properties=lambda device: {
                "max_shared_mem": 232_448,
                "multiprocessor_count": 132,
                "sm_clock_rate": 1_980_000,
                "mem_clock_rate": 3_201_000,
                "mem_bus_width": 6144,
            },
        )
        self._loading = threading.local()

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> Any:
        raise NotImplementedError

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return self.gpu.stream()

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return self._benchmark

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: int) -> Any:
        raise AssertionError("a kernel with records was launched without a profile allocator")

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        return FakeLauncher(self.gpu, metadata)

    def note_load(self, module: Any, function: Any, name: str, metadata_group: Mapping[str, str], key: str) -> None:
        """Triton's hook before it loads a kernel: the module that it was made of tells of its records."""
        self._loading.ttgir = next(Path(path) for path in metadata_group.values() if path.endswith(".ttgir"))

    def _load_binary(
        self, name: str, binary: bytes, shared_bytes: int, device: int
    ) -> tuple[FakeModule, int, int, int, int]:
        assert binary[:4] == b"\x7fELF"
        ttgir = self._loading.ttgir
        kernel = LoadedKernel(name, records_in(ttgir), delays_in(ttgir), is_reordered(ttgir))
        handle = self.gpu.load(kernel)
        module = FakeModule(self.gpu, handle)
        if kernel.records:
            return module, handle, REGISTERS_WITH_RECORDS, SPILLS_WITH_RECORDS, 1024
        return module, handle, CLEAN_REGISTERS, 0, 1024

    def _benchmark(self, call: Callable[[], Any], quantiles: Any = None, **_: Any) -> list[float]:
        self.gpu.assert_outside_graph("waiting")
        begun_ns = self.gpu.now_ns
        for _repetition in range(3):
            call()
        self.gpu.wait()
        return [(self.gpu.now_ns - begun_ns) / 3e6] * len(quantiles or [1])


class FakeLauncher(CudaLauncher):
    """The installed Triton's own launcher, allocation and all, down to where it would enter the driver."""

    def __init__(self, gpu: FakeGpu, metadata: Any) -> None:
        self._gpu = gpu
        self._metadata = metadata
        self.num_ctas = metadata.num_ctas
        self.global_scratch_size = metadata.global_scratch_size
        self.global_scratch_align = metadata.global_scratch_align
        self.profile_scratch_size = metadata.profile_scratch_size
        self.profile_scratch_align = metadata.profile_scratch_align
        self.launch_cooperative_grid = metadata.launch_cooperative_grid
        self.launch_pdl = metadata.launch_pdl
        self.gsan_enabled = False
        self.arg_annotations = self.kernel_signature = None
        self.launch = self._launch_3_5 if _VERSION < (3, 7) else self._launch_3_7

    def _launch_3_5(
        self, x: int, y: int, z: int, stream: int, function: int, cooperative: bool, pdl: bool,
        global_scratch: Any, profile_scratch: Any, packed: Any, launch_metadata: Any, enter: Any, leave: Any,
        *args: Any,
    ) -> None:  # fmt: skip
        self._enter_gpu((x, y, z), stream, function, profile_scratch, packed, launch_metadata, enter, leave, args)

    def _launch_3_7(
        self, x: int, y: int, z: int, stream: int, function: int, cooperative: bool, pdl: bool,
        packed: Any, launch_metadata: Any, enter: Any, leave: Any, global_scratch: Any, profile_scratch: Any,
        annotations: Any, signature: Any, args: Any,
    ) -> None:  # fmt: skip
        self._enter_gpu((x, y, z), stream, function, profile_scratch, packed, launch_metadata, enter, leave, args)

    def _enter_gpu(
        self, grid: tuple[int, int, int], stream: int, function: int, profile_scratch: Any, packed: Any,
        launch_metadata: Any, enter: Any, leave: Any, args: Any,
    ) -> None:  # fmt: skip
        kernel = self._gpu.loaded[function]
        assert packed[0] == self._metadata.num_warps
        if enter is not None:
            enter(launch_metadata)
        if grid[0] * grid[1] * grid[2]:
            # On a device, records without a buffer are written anywhere.
            assert bool(kernel.records) == bool(profile_scratch), kernel
            address = profile_scratch.data_ptr() if profile_scratch else 0
            size = self.profile_scratch_size * self.num_ctas
            num_stages = self._metadata.num_stages
            self._gpu.launch(stream, Launch(kernel, grid, packed[0], num_stages, size, address, tuple(args)))
        if leave is not None:
            leave(launch_metadata)


def _unload_with_its_gpu() -> None:
    """Triton, from 3.8 on, unloads a kernel that is deleted by the driver that is active then: here, perhaps none."""
    delete = getattr(CompiledKernel, "__del__", None)
    if delete is None:
        return

    def delete_kernel(kernel: Any) -> None:
        if isinstance(kernel.module, FakeModule):
            kernel.module.unload()
            kernel.module = None
        delete(kernel)

    CompiledKernel.__del__ = delete_kernel


_unload_with_its_gpu()


def install(gpu: FakeGpu) -> Callable[[], None]:
    """Make this GPU the only one that Triton sees; returns what ends that."""
    gpu.profile_words = untimed_words if _VERSION < (3, 6) else timed_words
    fake = FakeDriver(gpu)
    active, loaded_driver = driver._active, cuda_driver.loaded_driver
    driver.set_active(fake)
    knobs.runtime.kernel_load_start_hook.add(fake.note_load)
    cuda_driver.loaded_driver = lambda: None  # type: ignore[assignment]

    def uninstall() -> None:
        driver._active = active
        knobs.runtime.kernel_load_start_hook.remove(fake.note_load)
        cuda_driver.loaded_driver = loaded_driver

    return uninstall
