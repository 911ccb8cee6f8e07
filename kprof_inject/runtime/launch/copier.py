"""Copy buffers from the device and write them to disk, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

import msgspec
import numpy as np

from kprof_inject.capture.buffer_layouts import LAYOUTS, ends_and_rows
from kprof_inject.capture.capture_files import CaptureWriter, LaunchRecord
from kprof_inject.capture.slowdown import Slowdown, first_warp_ns, slowdown_of
from kprof_inject.runtime.compiling.recording_build import RecordingBuild
from kprof_inject.runtime.devices.cuda_driver import NoDeviceMemory
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.faults import fault_of, first_line
from kprof_inject.runtime.launch.launch_buffers import RecordedLaunch
from kprof_inject.runtime.process_report import ProcessReport

_READ_CLOCK_EVERY_NS = 5_000_000_000

MAX_WAITING_BYTES = 1 << 30  # maximum device memory waiting to be written; launches beyond it are left out

_NOTE_EVERY_S = 1.0

_MAX_COMPARED = 1 << 18  # CTAs of a launch that are compared: to compare more takes over 0.1 s

_NEVER_RAN = bytes(4)  # first bytes of a CTA that never ran; a CTA that ran writes a preamble there

_BEGUN_AT = slice(16, 24)  # bytes that hold the start time of the first CTA, in the layout "timed"


class BufferCopier:
    """Copier of buffers to disk, in order, with bounded memory and disk; it counts what it leaves out by reason.

    With ``replaces``, only the newest launch of each variant stays on disk. The first failure of
    the disk or the device ends the capture: later launches are counted, and the program goes on.

    ``put`` takes no lock that an interrupted caller could leave held: ``SimpleQueue.put`` is reentrant. The copier's
    thread calls ``note_progress`` about once a second, and ``note_slowdown`` for each build of which a sample of the
    CTAs records. ``saved`` counts the launches written, with replaced ones.

    It also reads the timer of each device that it copies from, at first and every few seconds, which shows how the
    timer drifts against the host's clock.
    """

    def __init__(
        self,
        device: Device,
        writer: CaptureWriter,
        report: ProcessReport,
        left_out: Counter[str],
        max_bytes: int,
        replaces: bool,
        note_progress: Callable[[int], None],
        note_slowdown: Callable[[RecordingBuild, Slowdown], None],
    ) -> None:
        self._device = device
        self._writer = writer
        self._report = report
        self._left_out = left_out
        self._max_bytes = max_bytes
        self._replaces = replaces
        self._clock_read_ns: dict[int, int] = {}
        self._note_progress = note_progress
        self._note_slowdown = note_slowdown
        self._compared: set[str] = set()  # builds whose CTAs were compared
        self._is_closing = False
        self._noted_s = 0.0
        self._queue: SimpleQueue[RecordedLaunch | None] = SimpleQueue()
        self._waiting: dict[RecordedLaunch, int] = {}  # launches in the queue, with their sizes
        self._largest_bytes = 0
        self._written: dict[str, LaunchRecord] = {}
        self._begun_ns: dict[str, int] = {}  # start times of the launches in ``_written`` on the device; 0 if unknown
        self._written_bytes = 0
        self.saved = 0
        self._stopped = ""
        self._waits_for_device = False
        self._is_saving = False
        self._last: Callable[[], None] = lambda: None
        # From Python 3.12 on, a fork warns if the process has other threads, even a library's. This thread adds no
        # warning: it starts at the first launch, when CUDA's driver already has two ("cuda-EvtHandlr" is one).
        self._thread = threading.Thread(target=self._work, name="kprof-inject-writer", daemon=True)
        self._thread.start()

    def put(self, launch: RecordedLaunch) -> None:
        """Queue a launch to be saved; return at once."""
        if threading.get_ident() == self._thread.ident:
            self._save_or_stop(launch)
            return
        size_bytes = launch.record.buffer_bytes
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        # The usual case needs no sum: this is the launch path.
        may_be_full = self._waiting and (len(self._waiting) + 1) * self._largest_bytes > MAX_WAITING_BYTES
        if may_be_full and sum(self._waiting.copy().values()) + size_bytes > MAX_WAITING_BYTES:
            self._left_out["the disk was too slow"] += 1
            return
        self._waiting[launch] = size_bytes
        self._queue.put(launch)

    def close(self, last: Callable[[], None], limit_s: float) -> bool:
        """Write the waiting launches, call ``last`` in the copier's thread, and end the thread.

        Returns false if this takes longer than ``limit_s``. Launches that ``last`` puts are written at once, ahead of
        the queue.
        """
        self._last, self._is_closing = last, True
        self._queue.put(None)
        if threading.get_ident() == self._thread.ident:
            return False
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def read_clock(self, device: int) -> None:
        """Read a device's timer, and save the reading."""
        with self.waiting_for_device():
            reading = self._device.read_clock(device)
        self._clock_read_ns[device] = time.time_ns()
        if reading is not None:
            self._writer.add_clock_reading(reading)

    def unfinished(self) -> tuple[int, str]:
        """Return the number of buffers not written yet, and the reason."""
        what = "device" if self._waits_for_device else "disk"
        return len(self._waiting) + self._is_saving, f"the {what} did not finish in time"

    @contextmanager
    def waiting_for_device(self) -> Iterator[None]:
        """Note that the copier's thread waits for the device in this context."""
        self._waits_for_device = True
        try:
            yield
        finally:
            self._waits_for_device = False

    def _work(self) -> None:
        while (launch := self._next()) is not None:
            self._is_saving = True
            self._waiting.pop(launch, None)
            self._save_or_stop(launch)
            del launch  # the reference would keep the buffer's memory until the next launch
            self._is_saving = False
        with self._report.guard("saving the last launches"):
            self._last()

    def _next(self) -> RecordedLaunch | None:
        while True:
            if self.saved == 1 or time.monotonic() - self._noted_s >= _NOTE_EVERY_S:
                self._noted_s = time.monotonic()
                with self._report.guard("saying what is saved"):
                    self._note_progress(self.saved)
            try:
                return self._queue.get(timeout=_NOTE_EVERY_S)
            except Empty:
                continue

    def _save_or_stop(self, launch: RecordedLaunch) -> None:
        try:
            if not self._stopped:
                self._save(launch)
        except OSError as error:
            self._stopped = f"the disk failed: {error.strerror}"
        except NoDeviceMemory:
            self._left_out["the host has no memory to copy them to"] += 1
        except RuntimeError as error:  # torch and cuda_driver report failures of the device with this
            self._stopped = f"the device failed: {first_line(error)}"
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            self._stopped = fault_of(error)
        if self._stopped:
            self._left_out[self._stopped] += 1

    def _save(self, launch: RecordedLaunch) -> None:
        replaced = self._written.get(launch.build.record.program_variant) if self._replaces else None
        if (
            replaced is not None
            and not launch.record.graph
            and not replaced.graph
            and launch.record.index <= replaced.index
        ):
            return  # this launch or a newer one is saved
        if (
            self._written_bytes + launch.record.buffer_bytes - (replaced.buffer_bytes if replaced else 0)
            > self._max_bytes
        ):
            self._left_out["the capture reached its size limit"] += 1
            return
        with self._report.guard("reading a device's clock"):
            if time.time_ns() - self._clock_read_ns.get(launch.record.device, 0) >= _READ_CLOCK_EVERY_NS:
                self.read_clock(launch.record.device)
        with self.waiting_for_device():
            data = self._device.fetch(launch.memory, launch.record.buffer_bytes, launch.record.device, launch.done)
        if launch.record.graph and data[: len(_NEVER_RAN)] == _NEVER_RAN:
            self._left_out["captured into a CUDA graph that never ran"] += 1
            return
        build = launch.build
        begun_ns = int.from_bytes(data[_BEGUN_AT], "little") if build.record.layout == "timed" else 0
        if launch.record.graph and replaced is not None and begun_ns < self._begun_ns[build.record.program_variant]:
            return  # the saved launch began later
        self._writer.add_kernel(build.variant, build.record, build.ttgir, build.sources)
        record = msgspec.structs.replace(launch.record, host_end_ns=launch.host_end_ns)
        name = self._writer.add_launch(record, data)
        self._written[build.record.program_variant] = msgspec.structs.replace(record, file=name)
        self._begun_ns[build.record.program_variant] = begun_ns
        self.saved += 1
        self._written_bytes += launch.record.buffer_bytes
        if replaced is not None:
            self._writer.drop_launch(replaced.file)
            self._written_bytes -= replaced.buffer_bytes
        with self._report.guard("comparing the CTAs that record with the others"):
            self._compare_ctas(launch, data)

    def _compare_ctas(self, launch: RecordedLaunch, data: memoryview) -> None:
        """Compare the CTAs that recorded with the others, once for each build, and note the result."""
        build, record, sample = launch.build, launch.build.record, launch.build.sample(launch.record.grid)
        if build.variant in self._compared or self._is_closing or record.sm_clock_hz is None:
            return
        if not sample.shift or sample.ctas > _MAX_COMPARED:
            return
        known = record.known_metadata
        ends, rows = ends_and_rows(np.frombuffer(data, dtype="<u4"), sample, known.profile_scratch_size)
        warps = record.mode.recorded_warps(known.num_warps)
        raw = LAYOUTS[record.layout].read(rows, known.num_warps, warps, sample, ends)
        # The clock's rate is not known well enough yet to compare its cycles with the others' times.
        slowdown = slowdown_of(raw, sample, first_warp_ns(raw, record.sm_clock_hz, spans_function=False))
        if slowdown is not None:
            self._compared.add(build.variant)
            self._note_slowdown(build, slowdown)
