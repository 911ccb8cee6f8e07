"""The thread that brings buffers from the device and writes them."""

from __future__ import annotations

import atexit
import threading
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

import torch

from kprof_inject.capture.writer import CaptureWriter
from kprof_inject.runtime.process_report import ProcessReport

MAX_WAITING_BYTES = 1 << 30
"""How much device memory may wait to be written before launches are left out."""


@dataclass(frozen=True, slots=True)
class CopyJob:
    """One launch's buffer, on the device: complete once ``done`` has happened."""

    variant: str
    description: dict[str, Any]
    ttgir: str
    sources: dict[str, str]
    launch: dict[str, Any]
    buffer: torch.Tensor
    done: torch.cuda.Event

    @property
    def size_bytes(self) -> int:
        return self.buffer.numel()


class BufferCopier:
    """Writes jobs in order, in bounded memory and bounded disk. What it leaves out is counted by reason.

    The copy runs on a stream of the thread's own: on the launch's stream, the program's next kernel would wait for it.
    With ``replaces``, only the newest launch of each variant stays: on disk, and in the queue too.
    """

    def __init__(
        self,
        writer: CaptureWriter,
        report: ProcessReport,
        left_out: Counter[str],
        max_bytes: int,
        replaces: bool,
    ) -> None:
        self._writer = writer
        self._report = report
        self._left_out = left_out
        self._max_bytes = max_bytes
        self._replaces = replaces
        self._waiting: deque[CopyJob] = deque()
        self._waiting_bytes = 0
        self._written: dict[str, tuple[str, int]] = {}
        self._written_bytes = 0
        self._staging = torch.empty(0, dtype=torch.uint8)
        self._streams: dict[int, torch.cuda.Stream] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="kprof-inject-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, job: CopyJob) -> None:
        """Take a job; returns at once."""
        with self._changed:
            if self._replaces:
                self._forget_waiting(job.variant)
            if self._waiting_bytes + job.size_bytes > MAX_WAITING_BYTES and self._waiting:
                self._left_out["the disk was too slow"] += 1
                return
            self._waiting.append(job)
            self._waiting_bytes += job.size_bytes
            self._changed.notify()

    def close(self) -> None:
        """Write what is waiting and say what was left out."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify()
        self._thread.join()
        with self._report.guard("ending the capture"):
            self._writer.finish({"left_out": dict(self._left_out)})

    def _forget_waiting(self, variant: str) -> None:
        for job in [job for job in self._waiting if job.variant == variant]:
            self._waiting.remove(job)
            self._waiting_bytes -= job.size_bytes

    def _work(self) -> None:
        while (job := self._next()) is not None:
            with self._report.guard("saving a launch"):
                self._save(job)

    def _next(self) -> CopyJob | None:
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            if not self._waiting:
                return None
            job = self._waiting.popleft()
            self._waiting_bytes -= job.size_bytes
            return job

    def _save(self, job: CopyJob) -> None:
        replaced = self._written.get(job.variant) if self._replaces else None
        if self._written_bytes + job.size_bytes - (replaced[1] if replaced else 0) > self._max_bytes:
            self._left_out["the capture reached its size limit"] += 1
            return
        data = self._fetch(job)
        self._writer.add_kernel(job.variant, job.description, job.ttgir, job.sources)
        name = self._writer.add_launch(job.launch, data)
        self._written[job.variant] = (name, job.size_bytes)
        self._written_bytes += job.size_bytes
        if replaced is not None:
            self._writer.drop_launch(replaced[0])
            self._written_bytes -= replaced[1]

    def _fetch(self, job: CopyJob) -> memoryview:
        """The buffer's bytes, in pinned memory that is good until the next call."""
        if self._staging.numel() < job.size_bytes:
            self._staging = torch.empty(job.size_bytes, dtype=torch.uint8, pin_memory=True)
        device = job.buffer.device.index
        with torch.cuda.device(device):
            if device not in self._streams:
                self._streams[device] = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream = self._streams[device]
            with torch.cuda.stream(stream):
                job.done.synchronize()
                host = self._staging[: job.size_bytes]
                host.copy_(job.buffer, non_blocking=True)
                stream.synchronize()
        return host.numpy().data
