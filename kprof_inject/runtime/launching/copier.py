"""The thread that brings buffers from the device and writes them."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from kprof_inject.capture.writer import CaptureWriter
from kprof_inject.runtime.devices.clock_readings import DeviceClocks
from kprof_inject.runtime.devices.device import Device, NoDeviceMemory
from kprof_inject.runtime.faults import fault_of, first_line
from kprof_inject.runtime.launching.launch_buffers import FullBuffer
from kprof_inject.runtime.process_report import ProcessReport

MAX_WAITING_BYTES = 1 << 30
"""How much device memory may wait to be written before launches are left out."""

_NEVER_RAN = bytes(4)
"""What stands where a CTA that ran has its preamble."""

_BEGUN_AT = slice(16, 24)
"""Where the layout "timed" says when the launch's first CTA began."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A launch on disk, and when it began on the device (0: not known)."""

    name: str
    size_bytes: int
    begun_ns: int


class BufferCopier:
    """Writes buffers in order, in bounded memory and bounded disk. What it leaves out is counted by reason.

    With ``replaces``, only the newest launch of each variant stays: on disk, and in the queue too. The first failure of
    the disk or of the device ends the capture: what comes after is counted, and the program goes on.
    """

    def __init__(
        self,
        device: Device,
        writer: CaptureWriter,
        report: ProcessReport,
        left_out: Counter[str],
        max_bytes: int,
        replaces: bool,
        clocks: DeviceClocks,
    ) -> None:
        self._device = device
        self._writer = writer
        self._report = report
        self._left_out = left_out
        self._max_bytes = max_bytes
        self._replaces = replaces
        self._clocks = clocks
        self._waiting: deque[FullBuffer] = deque()
        self._waiting_bytes = 0
        self._written: dict[str, _Written] = {}
        self._written_bytes = 0
        self._stopped = ""
        self._changed = threading.Condition()
        self._closing = False
        self._last: Callable[[], None] = _nothing
        self._thread = threading.Thread(target=self._work, name="kprof-inject-writer", daemon=True)
        self._thread.start()

    def put(self, full: FullBuffer) -> None:
        """Take a buffer; returns at once."""
        if threading.current_thread() is self._thread:
            self._save_or_stop(full)
            return
        size_bytes = full.launch.size_bytes
        with self._changed:
            # Whether a graph ran is known when its buffer is here: until then, it replaces nothing.
            if self._replaces and not full.launch.graph:
                self._forget_waiting(full.launch.kernel.variant_of_program)
            if self._waiting_bytes + size_bytes > MAX_WAITING_BYTES and self._waiting:
                self._left_out["the disk was too slow"] += 1
                return
            self._waiting.append(full)
            self._waiting_bytes += size_bytes
            self._changed.notify()

    def close(self, last: Callable[[], None], limit_s: float) -> bool:
        """Write what is waiting, call ``last`` in the copier's thread, and end that; false if it takes longer than
        ``limit_s``. What ``last`` puts here is written at once, whatever waits."""
        with self._changed:
            self._last = last
            self._closing = True
            self._changed.notify()
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _forget_waiting(self, variant: str) -> None:
        for full in [full for full in self._waiting if full.launch.kernel.variant_of_program == variant]:
            self._waiting.remove(full)
            self._waiting_bytes -= full.launch.size_bytes

    def _work(self) -> None:
        while (full := self._next()) is not None:
            self._save_or_stop(full)
        with self._report.guard("saving the last launches"):
            self._last()

    def _next(self) -> FullBuffer | None:
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            if not self._waiting:
                return None
            full = self._waiting.popleft()
            self._waiting_bytes -= full.launch.size_bytes
            return full

    def _save_or_stop(self, full: FullBuffer) -> None:
        if self._stopped:
            self._left_out[self._stopped] += 1
            return
        try:
            self._save(full)
        except OSError as error:
            self._stopped = f"the disk refused: {error.strerror}"
            self._left_out[self._stopped] += 1
        except NoDeviceMemory:
            self._left_out["the host has no memory to copy them to"] += 1
        except RuntimeError as error:  # torch's, and ours, for a failure of the device
            self._stopped = f"the device failed: {first_line(error)}"
            self._left_out[self._stopped] += 1
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            self._stopped = fault_of(error)
            self._left_out[self._stopped] += 1

    def _save(self, full: FullBuffer) -> None:
        launch = full.launch
        replaced = self._written.get(launch.kernel.variant_of_program) if self._replaces else None
        if self._written_bytes + launch.size_bytes - (replaced.size_bytes if replaced else 0) > self._max_bytes:
            self._left_out["the capture reached its size limit"] += 1
            return
        with self._report.guard("reading a device's clock"):
            self._clocks.keep_up(launch.device)
        data = self._device.fetch(full.buffer, launch.size_bytes, launch.device, full.done)
        if launch.graph and data[: len(_NEVER_RAN)] == _NEVER_RAN:
            self._left_out["captured into a CUDA graph that never ran"] += 1
            return
        kernel = launch.kernel
        begun_ns = int.from_bytes(data[_BEGUN_AT], "little") if kernel.description["layout"] == "timed" else 0
        if launch.graph and replaced is not None and begun_ns < replaced.begun_ns:
            return  # another launch was the last
        self._writer.add_kernel(kernel.variant, kernel.description, kernel.ttgir, kernel.sources)
        name = self._writer.add_launch(launch.to_json(), data)
        self._written[kernel.variant_of_program] = _Written(name, launch.size_bytes, begun_ns)
        self._written_bytes += launch.size_bytes
        if replaced is not None:
            self._writer.drop_launch(replaced.name)
            self._written_bytes -= replaced.size_bytes


def _nothing() -> None:
    pass
