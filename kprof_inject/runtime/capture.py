"""Saves the profile buffer of each kept launch without ever making the program wait for the device."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
from triton.runtime import _allocation

from kprof_inject import __version__
from kprof_inject.capture.writer import CaptureWriter
from kprof_inject.runtime.copier import BufferCopier, CopyJob
from kprof_inject.runtime.launches import parse_launches
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session


@dataclass(slots=True)
class _Variant:
    """What is known of one instrumented kernel of this process."""

    description: dict[str, Any]
    ttgir: str
    sources: dict[str, str]
    launches: int = 0


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A launch that has its buffer. ``index`` counts the launches of its variant; ``keep`` says that it is wanted."""

    buffer: torch.Tensor
    index: int
    keep: bool


@dataclass(slots=True)
class _State(threading.local):
    """The buffer of the launch that this thread is making."""

    buffer: Any = field(default=None)


class LaunchCapture:
    """Gives each launch its profile buffer and hands the kept ones on to be copied and written."""

    def __init__(self, session: Session, report: ProcessReport) -> None:
        self._session = session
        self._report = report
        self._filter = parse_launches(session.launches)
        self._variants: dict[str, _Variant] = {}
        self._current = _State()
        self._scratch: dict[int, torch.Tensor] = {}
        self._left_out: Counter[str] = Counter()
        self._copier: BufferCopier | None = None
        self._lock = threading.Lock()

    def add_kernel(self, variant: str, description: dict[str, Any], ttgir: str, sources: dict[str, str]) -> None:
        self._variants[variant] = _Variant(description, ttgir, sources)

    def describe_loaded(self, variant: str, registers: int, spills: int) -> None:
        self._variants[variant].description |= {"registers": registers, "spills": spills}

    def begin(self, variant: str, size_bytes: int, stream: int) -> PreparedLaunch | None:
        """Prepare a launch's buffer, in the launch path; None if there is no memory for it."""
        known = self._variants[variant]
        index = known.launches
        known.launches += 1
        keep = self._filter.keeps(index)
        if keep and torch.cuda.is_current_stream_capturing():
            self._left_out["captured into a CUDA graph"] += 1
            keep = False
        try:
            buffer = self._zeroed(size_bytes, stream) if keep else self._shared_scratch(size_bytes)
        except torch.cuda.OutOfMemoryError:
            return None
        self._current.buffer = buffer
        _allocation._profile_allocator.set(self._allocate)
        return PreparedLaunch(buffer, index, keep)

    def end(self, variant: str, launch: PreparedLaunch, grid: tuple[int, int, int], stream: int) -> None:
        """Hand a kept launch's buffer on, with an event behind the launch that tells when it is complete."""
        self._current.buffer = None
        if not launch.keep:
            return
        with self._report.guard("capturing a launch"):
            line = {
                "variant": variant,
                "index": launch.index,
                "grid": list(grid),
                "device": torch.cuda.current_device(),
                "stream": stream,
                "host_ns": time.time_ns(),
                "buffer_bytes": launch.buffer.numel(),
            }
            with _on(stream):
                done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
                done.record()
            known = self._variants[variant]
            job = CopyJob(variant, known.description, known.ttgir, known.sources, line, launch.buffer, done)
            self._running_copier().put(job)

    def _allocate(self, size: int, alignment: int, stream: int | None) -> torch.Tensor:
        """Triton's profile allocator: the buffer that ``begin`` prepared."""
        buffer: torch.Tensor = self._current.buffer
        return buffer

    def _zeroed(self, size_bytes: int, stream: int) -> torch.Tensor:
        # Of a CTA that never ran, or a warp that never recorded, nothing is written.
        with _on(stream):
            return torch.zeros(size_bytes, dtype=torch.uint8, device="cuda")

    def _shared_scratch(self, size_bytes: int) -> torch.Tensor:
        # Launches that are not kept may overwrite each other: nobody reads this.
        device = torch.cuda.current_device()
        scratch = self._scratch.get(device)
        if scratch is None or scratch.numel() < size_bytes:
            scratch = self._scratch[device] = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
        return scratch

    def _running_copier(self) -> BufferCopier:
        with self._lock:
            if self._copier is None:
                folder = Path(self._session.capture, f"{os.getpid()}-{time.time_ns()}")
                writer = CaptureWriter(folder, _process_info(self._session))
                self._copier = BufferCopier(
                    writer, self._report, self._left_out, self._session.max_bytes, self._filter.replaces
                )
            return self._copier


class CapturingLauncher:
    """Stands where Triton keeps a kernel's launcher, and passes every call on.

    ``plain(reason)`` gives the same kernel without records; it is launched instead once there is no buffer to be had.
    """

    def __init__(self, kernel: Any, capture: LaunchCapture, variant: str, plain: Callable[[str], Any]) -> None:
        self._launch = kernel._run
        self._capture = capture
        self._variant = variant
        self._plain = plain
        self._clean: Any = None
        self._cta_bytes = kernel.metadata.profile_scratch_size * kernel.metadata.num_ctas

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, metadata: Any, *args: Any
    ) -> Any:
        size_bytes = grid_x * grid_y * grid_z * self._cta_bytes
        if not size_bytes:
            return self._launch(grid_x, grid_y, grid_z, stream, function, metadata, *args)
        launch = self._capture.begin(self._variant, size_bytes, stream) if self._clean is None else None
        if launch is None:
            if self._clean is None:
                self._clean = self._plain(f"there is no memory for a buffer of {size_bytes} bytes")
            function, metadata = self._clean.function, self._clean.packed_metadata
            return self._clean.run(grid_x, grid_y, grid_z, stream, function, metadata, *args)
        result = self._launch(grid_x, grid_y, grid_z, stream, function, metadata, *args)
        self._capture.end(self._variant, launch, (grid_x, grid_y, grid_z), stream)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launch, name)


def _on(stream: int) -> Any:
    """A context in which torch allocates and copies on the launch's stream."""
    if stream == torch.cuda.current_stream().cuda_stream:
        return torch.cuda.stream(None)  # does nothing
    return torch.cuda.stream(torch.cuda.ExternalStream(stream))  # type: ignore[no-untyped-call]


def _process_info(session: Session) -> dict[str, Any]:
    return {
        "tool": __version__,
        "pid": os.getpid(),
        "argv": list(sys.argv),
        "host": platform.node(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "device_names": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "mode": session.mode.to_json(),
        "launches": session.launches,
        "max_bytes": session.max_bytes,
    }
