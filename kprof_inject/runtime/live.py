"""The run step without a dump before it: each kernel gets its records when it is compiled, in one process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiler import Compile, wrap_compiler
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.devices.of_process import devices_of_process
from kprof_inject.runtime.dump import save_kernel
from kprof_inject.runtime.imports import after_import
from kprof_inject.runtime.inductor import INDUCTOR_AUTOTUNER
from kprof_inject.runtime.jit_caches import fresh_jit_caches
from kprof_inject.runtime.launching import autotuning, kernel_loading
from kprof_inject.runtime.launching.capture import LaunchCapture
from kprof_inject.runtime.launching.launch_buffers import CapturedKernel, Place
from kprof_inject.runtime.launching.timing import LaunchTimer
from kprof_inject.runtime.override import RunStep
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.recording import PlannedKernel, remove_binaries
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.variants import Variant
from kprof_inject.workspace import DumpedKernel, Workspace

Insert = Callable[[Workspace, DumpedKernel], None]
"""Writes a dumped kernel's plan into the workspace, or raises ``KprofError``."""


class LiveCapture:
    """Captures one after the other, each a capture of the workspace; the next begins when the one before was taken."""

    def __init__(self, session: Session, report: ProcessReport, device: Device) -> None:
        self.enabled = True
        self._workspace = Workspace(Path(session.workspace))
        self._session = session
        self._report = report
        self._device = device
        self._folder, self._current = self._next()

    def number(self, kernel: CapturedKernel) -> int | None:
        return self._current.number(kernel) if self.enabled else None

    def pass_over(self, kernel: CapturedKernel, number: int) -> None:
        self._current.pass_over(kernel, number)

    def begin(self, kernel: CapturedKernel, number: int, grid: tuple[int, int, int], stream: int) -> Place:
        return self._current.begin(kernel, number, grid, stream)

    def timer(self, variant: str) -> LaunchTimer:
        return self._current.timer(variant)

    def take(self) -> Path:
        """End the present capture and begin the next; returns the folder of the one that ended, which is there if
        anything was launched. It waits for the device."""
        folder = self._folder
        self._current.finish()
        self._workspace.forget_if_empty(folder)
        self._folder, self._current = self._next()
        return folder

    def close(self) -> None:
        """Forget the capture that nobody will take."""
        self._workspace.forget_if_empty(self._folder)

    def _next(self) -> tuple[Path, LaunchCapture]:
        folder = self._workspace.new_capture_folder().resolve()
        return folder, LaunchCapture(replace(self._session, capture=str(folder)), self._report, self._device)


@dataclass(frozen=True, slots=True)
class _PlansMadeNow:
    """Plans each kernel from what it compiles to."""

    session: Session
    report: ProcessReport
    insert: Insert

    def plan_of(self, variant: Variant, plain: Compile) -> PlannedKernel | None:
        if not fnmatchcase(variant.name, self.session.kernel):
            return None
        workspace = Workspace(Path(self.session.workspace))
        save_kernel(workspace, variant, plain())
        kernel = workspace.kernel(variant.key)
        try:
            self.insert(workspace, kernel)
        except KprofError as error:
            self.report.add_kernel(variant.key, variant.name, "left alone", error.what)
            return None
        scope_table = workspace.scope_table(variant.key)
        return PlannedKernel(workspace, kernel, scope_table, variant.target) if scope_table else None


@contextmanager
def live(session: Session, report: ProcessReport, insert: Insert) -> Iterator[LiveCapture]:
    """Record the kernels that this process launches in this context, as ``session`` says."""
    device = devices_of_process()
    capture = LiveCapture(session, report, device)
    step = RunStep(session, report, device, capture, _PlansMadeNow(session, report, insert))
    _install_once()
    unwrap = wrap_compiler(step.compile)
    try:
        with fresh_jit_caches():
            yield capture
    finally:
        # A kernel that the program keeps goes on without records.
        capture.enabled = False
        capture.close()
        unwrap()
        remove_binaries(Workspace(Path(session.workspace)))


@functools.cache
def _install_once() -> None:
    kernel_loading.install()
    autotuning.install()
    after_import({INDUCTOR_AUTOTUNER: autotuning.install_for_inductor})
