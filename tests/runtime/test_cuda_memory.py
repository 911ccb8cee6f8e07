"""Our memory on a device, by a driver that only notes what it is told."""

from __future__ import annotations

import ctypes
import math
from itertools import count
from pathlib import Path
from typing import Any

from kprof_inject.runtime.devices.cuda_driver import Driver, MemoryRange
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.launch.saved_memory import MemorySnapshot

PROGRAMS_STREAM = 77


class _Functions:
    """All functions of the driver, each of which succeeds and gives out a new number. ``called`` has their names,
    ``zeroed`` the stream and the size of each memset."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.zeroed: list[tuple[int, int]] = []
        self._numbers = count(1 << 20, 1 << 20)
        self._host: list[Any] = []

    def cuCtxGetDevice(self, handle: Any) -> int:
        return 0

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:
        free._obj.value = 1 << 33
        return 0

    def cuMemHostAlloc(self, address: Any, size: Any, _: int) -> int:
        self._host.append(ctypes.create_string_buffer(size.value))
        address._obj.value = ctypes.addressof(self._host[-1])
        return 0

    def cuMemsetD8Async(self, address: Any, value: int, size: Any, stream: Any) -> int:
        self.zeroed.append((stream.value, size.value))
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.called.append(name)
            if arguments and hasattr(arguments[0], "_obj"):
                arguments[0]._obj.value = next(self._numbers)
            return 0

        return call


def zeroed_by_program(functions: _Functions) -> list[int]:
    return [size for stream, size in functions.zeroed if stream == PROGRAMS_STREAM]


def test_what_was_fetched_goes_to_the_next_launch_without_a_word_on_its_stream() -> None:
    functions = _Functions()
    device = Device(Driver(functions))
    addresses = set()
    for _ in range(5):
        buffer = device.zeros(1000, PROGRAMS_STREAM)
        addresses.add(buffer.data_ptr())
        assert len(device.fetch(buffer, 1000, 0, device.mark(PROGRAMS_STREAM))) == 1000
        del buffer
    assert len(addresses) == 1
    assert len(zeroed_by_program(functions)) == 1  # of memory that nobody had had before


def test_what_was_not_fetched_or_in_part_alone_is_zeroed_before_it_is_used_again() -> None:
    functions = _Functions()
    device = Device(Driver(functions))
    buffer = device.zeros(1000, PROGRAMS_STREAM)
    del buffer
    buffer = device.zeros(600, PROGRAMS_STREAM)
    device.fetch(buffer, 500, 0, device.mark(PROGRAMS_STREAM))
    del buffer
    device.zeros(900, PROGRAMS_STREAM)
    assert zeroed_by_program(functions) == [1 << 16, 1000, 600]


WAITING = ("cuModuleLoadData", "cuModuleUnload", "cuMemFree_v2", "cuMemFreeHost", "cuMemcpyDtoH_v2", "cuCtxSynchronize")
"""Functions that were seen to wait for a running kernel, or are said to, and hold up the launches of all threads."""


def test_nothing_waits_for_a_running_kernel_once_the_device_is_prepared(tmp_path: Path) -> None:
    functions = _Functions()
    device = Device(Driver(functions))
    device.prepare()
    assert functions.called[0] == "cuModuleLoadData"
    functions.called.clear()
    device.hold(PROGRAMS_STREAM, 1000)
    device.launch_empty(PROGRAMS_STREAM, 128, 1 << 17)
    assert device.read_clock(0) is not None
    for size_bytes in (1000, 1 << 20):
        buffer, done = device.zeros(size_bytes, PROGRAMS_STREAM), device.mark(PROGRAMS_STREAM)
        assert len(device.fetch(buffer, size_bytes, 0, done)) == size_bytes
        del buffer, done
    snapshot = MemorySnapshot(device, [MemoryRange(1 << 30, 100), MemoryRange(1 << 31, 1 << 20)])
    snapshot.take(PROGRAMS_STREAM)
    assert snapshot.is_copied
    snapshot.note_later(PROGRAMS_STREAM)
    for _ in range(2):
        snapshot.write(tmp_path / "memory", math.inf)
        assert [len(crc32) for crc32 in snapshot.chunk_crc32] == [1, 1]
    assert snapshot.digests() == ([0, 0], [0, 0])
    snapshot.close()
    assert len(device.contents(1 << 30, 100, PROGRAMS_STREAM)) == 100
    assert {"cuLaunchKernel", "cuMemcpyDtoHAsync_v2", "cuMemFreeAsync"} <= set(functions.called)
    assert not set(WAITING).intersection(functions.called)


def test_torchs_devices_call_no_driver() -> None:
    """They override all but what saves launches, which these devices do not."""
    from kprof_inject.runtime.devices.torch_device import _TorchDevice

    public = {name for name in vars(Device) if not name.startswith("_")}
    inherited = {name for name in public if getattr(_TorchDevice, name) is vars(Device)[name]}
    to_save = {"allocations", "contents", "copy", "free_bytes", "is_local", "queue_digest", "staging", "taken"}
    assert not _TorchDevice.can_save_launches
    assert inherited == {"unaffected_by_graphs", *to_save}
