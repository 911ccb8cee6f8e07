"""The thread that brings buffers from the device and writes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue

from kprof_inject.capture.schema import ClockRecord
from kprof_inject.capture.writer import CaptureWriter
from kprof_inject.runtime.devices.device import ClockReading, Device, NoDeviceMemory
from kprof_inject.runtime.faults import fault_of, first_line
from kprof_inject.runtime.launch.launch_buffers import AtomicCounts, FullBuffer, LaunchInfo
from kprof_inject.runtime.process_report import ProcessReport

_READ_EVERY_NS = 5_000_000_000


class DeviceClocks:
    """Saves a reading of each device's timer when it is first seen, and another every few seconds, to follow how it and
    the host's clock drift apart. ``read_clock`` reads one device's."""

    def __init__(self, read_clock: Callable[[int], ClockReading | None], writer: CaptureWriter) -> None:
        self._read_clock = read_clock
        self._writer = writer
        self._last_ns: dict[int, int] = {}

    def keep_up(self, device: int) -> None:
        """Read the device's timer if that is due."""
        if time.time_ns() - self._last_ns.get(device, 0) >= _READ_EVERY_NS:
            self.read(device)

    def read(self, device: int) -> None:
        reading = self._read_clock(device)
        self._last_ns[device] = time.time_ns()
        if reading is not None:
            self._writer.add_clock_reading(ClockRecord(device, **asdict(reading)))


MAX_WAITING_BYTES = 1 << 30
"""How much device memory may wait to be written before launches are left out."""

_KEEP_UP_EVERY_S = 1.0

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
    index: int
    graph: bool


@dataclass(slots=True, eq=False)
class _Waiting:
    """A buffer on its way to the disk; None if a newer one has taken its place."""

    full: FullBuffer | None


class BufferCopier:
    """Writes buffers in order, in bounded memory and bounded disk. What it leaves out is counted by reason.

    With ``replaces``, only the newest launch of each variant stays: on disk, and in the queue too. The first failure of
    the disk or of the device ends the capture: what comes after is counted, and the program goes on.

    ``put`` takes no lock that its caller could be interrupted with. ``keep_up`` is called in the copier's thread about
    once a second. ``saved`` is how many launches were written so far, replaced ones too."""

    def __init__(
        self,
        device: Device,
        writer: CaptureWriter,
        report: ProcessReport,
        left_out: AtomicCounts,
        max_bytes: int,
        replaces: bool,
        clocks: DeviceClocks,
        keep_up: Callable[[int], None],
    ) -> None:
        self._device = device
        self._writer = writer
        self._report = report
        self._left_out = left_out
        self._max_bytes = max_bytes
        self._replaces = replaces
        self._clocks = clocks
        self._keep_up = keep_up
        self._kept_up_s = 0.0
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._waiting: dict[_Waiting, int] = {}
        self._newest: dict[str, _Waiting] = {}
        self._largest_bytes = 0
        self._written: dict[str, _Written] = {}
        self._written_bytes = 0
        self.saved = 0
        self._stopped = ""
        self._waits_for_device = False
        self._is_saving = False
        self._last: Callable[[], None] = _nothing
        self._thread = threading.Thread(target=self._work, name="kprof-inject-writer", daemon=True)
        self._thread.start()

    def put(self, full: FullBuffer) -> None:
        """Take a buffer; returns at once."""
        if threading.get_ident() == self._thread.ident:
            self._save_or_stop(full)
            return
        launch = full.launch
        size_bytes = launch.size_bytes
        if size_bytes > self._largest_bytes:
            self._largest_bytes = size_bytes
        # Whether a graph ran is known when its buffer is here: until then, it replaces nothing.
        replaced = self._older_than(launch) if self._replaces and not launch.graph else None
        if not self._has_room(size_bytes, replaced):
            launch.is_taken = True
            self._left_out.add("the disk was too slow")
            return
        item = _Waiting(full)
        self._waiting[item] = size_bytes
        self._queue.put(item)
        if self._replaces and not launch.graph:
            self._newest[launch.build.variant_of_program] = item
        if replaced is not None:
            replaced.full = None
            self._waiting.pop(replaced, None)

    def close(self, last: Callable[[], None], limit_s: float) -> bool:
        """Write what is waiting, call ``last`` in the copier's thread, and end that; false if it takes longer than
        ``limit_s``. What ``last`` puts here is written at once, whatever waits."""
        self._last = last
        self._queue.put(None)
        if threading.get_ident() == self._thread.ident:
            return False
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def unfinished(self) -> tuple[int, str]:
        """How many buffers are not written yet, and what keeps them."""
        what = "device" if self._waits_for_device else "disk"
        return len(self._waiting) + self._is_saving, f"the {what} did not finish in time"

    @contextmanager
    def waiting_for_device(self) -> Iterator[None]:
        """What the copier's thread does inside ends when the device has ended its work."""
        self._waits_for_device = True
        try:
            yield
        finally:
            self._waits_for_device = False

    def _older_than(self, launch: LaunchInfo) -> _Waiting | None:
        item = self._newest.get(launch.build.variant_of_program)
        older = item.full if item is not None else None
        return item if older is not None and older.launch.index < launch.index else None

    def _has_room(self, size_bytes: int, replaced: _Waiting | None) -> bool:
        if (len(self._waiting) + 1) * self._largest_bytes <= MAX_WAITING_BYTES:
            return True  # without a sum: this is the launch path
        waiting = self._waiting.copy()
        waiting.pop(replaced, None)  # type: ignore[arg-type]
        return not waiting or sum(waiting.values()) + size_bytes <= MAX_WAITING_BYTES

    def _work(self) -> None:
        while (item := self._next()) is not None:
            self._is_saving = True
            self._waiting.pop(item, None)
            full, item.full = item.full, None
            if full is not None:
                self._save_or_stop(full)
            del full  # its memory is for others
            self._is_saving = False
        with self._report.guard("saving the last launches"):
            self._last()

    def _next(self) -> _Waiting | None:
        while True:
            if self.saved == 1 or time.monotonic() - self._kept_up_s >= _KEEP_UP_EVERY_S:
                self._kept_up_s = time.monotonic()
                with self._report.guard("saying what is saved"):
                    self._keep_up(self.saved)
            try:
                return self._queue.get(timeout=_KEEP_UP_EVERY_S)
            except Empty:
                continue

    def _save_or_stop(self, full: FullBuffer) -> None:
        full.launch.is_taken = True
        if self._stopped:
            self._left_out.add(self._stopped)
            return
        try:
            self._save(full)
        except OSError as error:
            self._stopped = f"the disk failed: {error.strerror}"
            self._left_out.add(self._stopped)
        except NoDeviceMemory:
            self._left_out.add("the host has no memory to copy them to")
        except RuntimeError as error:  # torch's, and ours, for a failure of the device
            self._stopped = f"the device failed: {first_line(error)}"
            self._left_out.add(self._stopped)
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            self._stopped = fault_of(error)
            self._left_out.add(self._stopped)

    def _save(self, full: FullBuffer) -> None:
        launch = full.launch
        replaced = self._written.get(launch.build.variant_of_program) if self._replaces else None
        if replaced is not None and not launch.graph and not replaced.graph and launch.index <= replaced.index:
            return  # it is saved, or a newer one is
        if self._written_bytes + launch.size_bytes - (replaced.size_bytes if replaced else 0) > self._max_bytes:
            self._left_out.add("the capture reached its size limit")
            return
        with self._report.guard("reading a device's clock"):
            self._clocks.keep_up(launch.device)
        with self.waiting_for_device():
            data = self._device.fetch(full.buffer, launch.size_bytes, launch.device, full.done)
        if launch.graph and data[: len(_NEVER_RAN)] == _NEVER_RAN:
            self._left_out.add("captured into a CUDA graph that never ran")
            return
        build = launch.build
        begun_ns = int.from_bytes(data[_BEGUN_AT], "little") if build.record.layout == "timed" else 0
        if launch.graph and replaced is not None and begun_ns < replaced.begun_ns:
            return  # another launch was the last
        self._writer.add_kernel(build.variant, build.record, build.ttgir, build.sources)
        name = self._writer.add_launch(launch.record(), data)
        self._written[build.variant_of_program] = _Written(
            name, launch.size_bytes, begun_ns, launch.index, launch.graph
        )
        self.saved += 1
        self._written_bytes += launch.size_bytes
        if replaced is not None:
            self._writer.drop_launch(replaced.name)
            self._written_bytes -= replaced.size_bytes


def _nothing() -> None:
    pass
