"""Launches of the fake GPU that are saved, in the process of a test."""

from __future__ import annotations

import atexit
import ctypes
import functools
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from triton import knobs

from fake_gpu.device import FakeDevice, MappedPages
from fake_gpu.driver import install
from fake_gpu.gpu import FakeGpu
from fake_gpu.kernels import HOST_KERNELS, scale
from kprof_inject.capture.recording import Recording
from kprof_inject.capture.saved_launch import SavedLaunch, read_saved_launch
from kprof_inject.insertion import insert_kernel, write_insertion
from kprof_inject.runtime.compiling.compiler import wrap_compiler
from kprof_inject.runtime.compiling.triton_caches import fresh_jit_caches
from kprof_inject.runtime.devices.cuda_driver import MemoryRange
from kprof_inject.runtime.plans import PlansMadeNow
from kprof_inject.runtime.process_report import ProcessReport, read_reports
from kprof_inject.runtime.session import SavedLaunches, Session
from kprof_inject.runtime.step import LiveCapture, Step, _install_once
from kprof_inject.workspace import DumpedKernel, Workspace

# Free in every process that a test starts: programs, heaps and libraries are above.
_FIRST_ADDRESS = 1 << 44
_addresses = count(_FIRST_ADDRESS + (1 << 30), 1 << 30)
_SPACING_BYTES = 1 << 16


@contextmanager
def memory_at(address: int, size_bytes: int) -> Iterator[np.ndarray[Any, Any]]:
    """Zeroed memory of this process at an address of a test's choice, as bytes."""
    pages = MappedPages()
    pages.map([MemoryRange(address, size_bytes)])
    try:
        yield np.ctypeslib.as_array((ctypes.c_ubyte * size_bytes).from_address(address))
    finally:
        pages.close()


@contextmanager
def tensors(*sizes: int, first: int = 0) -> Iterator[list[torch.Tensor]]:
    """Zeroed tensors of these numbers of floats, each on pages of its own, at addresses that no other test has, or
    from address ``first`` on."""
    spaces = [-(-4 * size // _SPACING_BYTES) * _SPACING_BYTES for size in sizes]
    starts = list(accumulate(spaces[:-1], initial=first or next(_addresses)))
    pages = MappedPages()
    pages.map([MemoryRange(start, 4 * size) for start, size in zip(starts, sizes, strict=True)])
    try:
        yield [
            torch.from_numpy(np.ctypeslib.as_array((ctypes.c_float * size).from_address(start)))
            for start, size in zip(starts, sizes, strict=True)
        ]
    finally:
        pages.close()


@dataclass(frozen=True)
class Saving:
    """A program that is being recorded in this process, and a launch of each kernel saved."""

    gpu: FakeGpu
    capture: LiveCapture
    workspace: Workspace
    reports: Path

    def finish(self) -> None:
        """Wait until what was launched so far is saved."""
        self.capture.take()

    @property
    def folders(self) -> list[Path]:
        """The folders of all captures' launches."""
        return sorted((self.workspace.folder / "launches").glob("*/*"))

    def launches(self) -> list[SavedLaunch]:
        """All launches, after the end of the capture."""
        return [read_saved_launch(folder) for folder in self.folders]

    def launch(self) -> SavedLaunch:
        """The only launch."""
        (launch,) = self.launches()
        return launch

    def refusals(self) -> list[str]:
        """Why launches were not saved."""
        return [note.refusal for note in read_reports(self.reports).saved_launches if note.refusal]


@contextmanager
def saving(folder: Path, launches: str = "last", **limits: Any) -> Iterator[Saving]:
    """Save a launch of each kernel that this process launches in the context. ``limits`` are of ``SavedLaunches``."""
    gpu = FakeGpu()
    gpu.host_kernels = HOST_KERNELS
    workspace = Workspace.begin(folder / "workspace")
    chosen = SavedLaunches(None, "", str(workspace.kernels_folder), **limits)
    reports = workspace.new_reports_folder("run")
    session = Session("run", str(workspace.folder), str(reports), Recording(launches=launches), saved=chosen)
    report, device = ProcessReport(session.reports), FakeDevice(gpu)
    capture = LiveCapture(session, report, device)
    step = Step(session, report, PlansMadeNow(session, report, _Inserter()).plan_of, device, capture.current)
    with step_here(gpu, step, _compiled()):
        try:
            yield Saving(gpu, capture, workspace, reports)
            capture.take()
        finally:
            capture.enabled = False
            capture.close()


@contextmanager
def step_here(gpu: FakeGpu, step: Step, cache: Path) -> Iterator[None]:
    """Do a step in this process as long as the context lasts. What Triton compiles by itself is in ``cache``."""
    uninstall = install(gpu)
    _install_once()
    unwrap = wrap_compiler(step.compile)
    try:
        with fresh_jit_caches(), knobs.cache.scope():
            knobs.cache.dir = str(cache)
            yield
    finally:
        unwrap()
        uninstall()


@functools.cache
def _compiled() -> Path:
    """Triton's cache of this process, so that a kernel is compiled once for all tests."""
    folder = Path(tempfile.mkdtemp(prefix="kprof-fake-gpu-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class _Inserter:
    def insert(self, workspace: Workspace, kernel: DumpedKernel) -> None:
        write_insertion(workspace, insert_kernel(workspace, kernel, ()))

    def insert_less(self, workspace: Workspace, kernel: DumpedKernel, plan: str) -> str:
        return ""


def save_scale(folder: Path, n: int = 3) -> Path:
    """Save a launch of ``scale`` with 16 programs, at addresses that are the same in each run; return its folder."""
    with (
        pytest.MonkeyPatch.context() as patch,
        tensors(16, 16, first=_FIRST_ADDRESS) as (x, out),
        saving(folder) as saved,
    ):
        patch.setattr(sys, "argv", ["train.py", "--fast"])
        x += torch.arange(1, 17)
        scale[(16,)](x, out, n)
    (launch,) = saved.folders
    return launch
