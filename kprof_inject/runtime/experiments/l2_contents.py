"""Choose what the L2 holds when a repeated launch begins.

In the program, the kernels before the launch decide that, and without its inputs in the L2 a launch takes longer. A
saved launch does not have these kernels, but it has its times in the program. So we try several contents, and use those
with which it takes as long as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from typing import Any, Protocol

from kprof_inject.capture.measurements import L2Contents
from kprof_inject.capture.resources import KernelResources
from kprof_inject.runtime.devices.cuda_driver import l2_bytes
from kprof_inject.runtime.devices.device import Device, MemoryRange, NoDeviceMemory
from kprof_inject.runtime.experiments.back_to_back import BackToBack, empty_ns
from kprof_inject.runtime.experiments.loaded_launch import LoadedLaunch
from kprof_inject.runtime.launch.timing import EmptyKernel

# Reading twice as much as fits leaves nothing else.
_TIMES_L2 = 2


class ReadingDevice(Device, Protocol):
    """A device that can read memory for its effect on the L2."""

    def read(self, memory: MemoryRange, stream: int) -> None:
        """Queue a kernel that reads all of a range."""


Fills = Mapping[L2Contents, Callable[[], None]]
"""Functions that queue what leaves these contents in the L2."""


@contextmanager
def l2_fills(device: ReadingDevice, launch: LoadedLaunch) -> Iterator[Fills]:
    """Lend what can be done with the L2 before a launch: only ``left`` if its times in the program are unknown."""
    stream, memory = launch.relaunch.stream, launch.saved.record.memory
    fills: dict[L2Contents, Callable[[], None]] = {"left": _nothing}
    with ExitStack() as lent:
        if launch.saved.record.clean.times_ns:
            inputs = [MemoryRange(one.address, one.size_bytes) for one in memory if one.before == one.after]
            if inputs:
                fills["inputs"] = partial(_read, device, inputs, stream)
            size_bytes = _TIMES_L2 * l2_bytes()
            if size_bytes:
                try:
                    buffer = lent.enter_context(device.borrowed(size_bytes, stream))
                    fills["emptied"] = partial(_read, device, [MemoryRange(buffer.data_ptr(), size_bytes)], stream)
                except NoDeviceMemory:
                    pass  # as much as the launch itself left
        yield fills


def _nothing() -> None:
    pass


def _read(device: ReadingDevice, ranges: list[MemoryRange], stream: int) -> None:
    for one in ranges:
        device.read(one, stream)


def as_in_program(
    times_ns: Mapping[L2Contents, list[float]], empty_ns: float | None, program: KernelResources
) -> L2Contents:
    """Return the contents with which a launch takes as long as in the program, or nearly."""
    if not program.times_ns:
        return "left"
    expected_ns = median(program.times_ns)
    if empty_ns is not None and program.empty_launch_ns is not None:
        expected_ns += empty_ns - program.empty_launch_ns
    return min(times_ns, key=lambda contents: abs(median(times_ns[contents]) - expected_ns))


def contents_as_in_program(launch: LoadedLaunch, kernel: Any, device: Device, fills: Fills, times: int) -> L2Contents:
    """Time a launch with each contents, and return those with which it takes as long as in the program."""
    if len(fills) == 1:
        return "left"
    timed = BackToBack(device, launch.relaunch.stream, launch.memory)
    times_ns: dict[L2Contents, list[float]] = {contents: [] for contents in fills}
    for _ in range(times):
        for contents, fill in fills.items():
            timed.before = fill
            times_ns[contents] += timed.times_ns(timed.queued([partial(launch.relaunch.launch, kernel)]))
    timed.before = _nothing
    return as_in_program(times_ns, empty_ns(timed, EmptyKernel.like(kernel.metadata)), launch.saved.record.clean)
