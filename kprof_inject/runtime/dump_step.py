"""The dump step inside the program: save every kernel's TTGIR as the compiler made it, and time its launches."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import triton

from kprof_inject.capture.edits import write_other_values
from kprof_inject.capture.resources import KernelResources
from kprof_inject.files import source_text
from kprof_inject.runtime.compiling.builds import build_files
from kprof_inject.runtime.compiling.compiler import (
    Compile,
    as_json,
    call_of,
    other_values,
    put_in_place,
    variant_of,
    with_room,
    wrap_compiler,
)
from kprof_inject.runtime.compiling.triton_caches import take_from
from kprof_inject.runtime.devices.cuda_driver import resources_of
from kprof_inject.runtime.devices.device import devices_of_process
from kprof_inject.runtime.hook import is_compile_worker
from kprof_inject.runtime.launch import triton_wrapping
from kprof_inject.runtime.launch.timing import EmptyKernel, LaunchTimer, TimingLauncher, watch_programs_events
from kprof_inject.runtime.process_events import at_end
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.ttgir.strings import source_files
from kprof_inject.workspace import DumpedKernel, Workspace


def install(session: Session, report: ProcessReport) -> None:
    """Install the dump step. Called once, right after the import of Triton."""
    step = DumpStep(session, report)
    watch_programs_events()
    install_step(step.compile, session, report)
    at_end(step.finish)


def install_step(around: Callable[[Compile, Any, Any], Any], session: Session, report: ProcessReport) -> None:
    """Install what all steps need, with ``around`` called for every compilation. Called once."""
    triton_wrapping.wrap_loading()
    triton_wrapping.mark_benchmarks()
    triton_wrapping.report_choices(report)
    wrap_compiler(around)
    if session.programs_cache:
        take_from(Path(session.programs_cache))
    at_end(report.note_end, report.note_resumed)
    at_end(functools.partial(_note_gpu, report, os.getpid()))


class DumpStep:
    """Kernels of this process, saved with their times without records."""

    def __init__(self, session: Session, report: ProcessReport) -> None:
        """Save to the session's workspace."""
        self._kernel_glob = session.recording.kernel
        self._values = session.values
        self._report = report
        self._workspace = Workspace(Path(session.workspace))
        self._timed: list[_TimedKernel] = []

    def compile(self, original: Compile, args: Any, kwargs: Any) -> Any:
        """Compile a kernel, and save it if its name matches ``--kernel``."""
        kernel = with_room(original)(*args, **kwargs)
        with self._report.guard("saving a kernel"):
            variant = variant_of(self._workspace, original, args, kwargs, kernel.asm)
            if save_kernel(self._workspace, self._kernel_glob, variant, kernel, self._report):
                triton_wrapping.around_load(kernel, functools.partial(self.load, variant.variant))
                if self._values:
                    source, target, options = call_of(original, args, kwargs)
                    if others := other_values(source, target, options, self._values):
                        write_other_values(self._workspace.kernels_folder / variant.variant, others)
        return kernel

    def finish(self) -> None:
        """Save the times. Never raises."""
        # A forked child cannot query its parent's devices.
        for kernel in [kernel for kernel in self._timed if kernel.pid == os.getpid()]:
            with self._report.guard("timing a kernel"):
                self._save_run(kernel)
        self._timed.clear()  # frees their events while the driver still exists

    def load(self, variant: str, kernel: Any, load: triton_wrapping.Load) -> None:
        """Load a kernel, and time its launches."""
        load()
        with self._report.guard("timing a kernel"):
            device = devices_of_process()
            device.prepare()
            timer = LaunchTimer(device, EmptyKernel.like(kernel.metadata))
            timed = _TimedKernel(variant, resources_of(kernel), timer, os.getpid())
            if not isinstance(kernel._run, TimingLauncher):  # set already if an exception ended an earlier attempt
                kernel._run = TimingLauncher(kernel, timed.timer)
            self._timed.append(timed)
            self._save_run(timed)

    def _save_run(self, kernel: _TimedKernel) -> None:
        timer = kernel.timer
        run = KernelResources(
            **kernel.resources,
            times_ns=tuple(timer.times_ns()),
            not_timed=timer.not_timed or None,
            empty_launch_ns=timer.empty_ns(),
            launches=timer.launches,
        )
        self._workspace.write_clean_run(kernel.variant, str(os.getpid()), run)


@dataclass(frozen=True, slots=True)
class _TimedKernel:
    variant: str
    resources: dict[str, Any]
    timer: LaunchTimer
    pid: int


def _note_gpu(report: ProcessReport, pid: int) -> None:
    """Report whether the program could have used a GPU, if this is process ``pid`` and it has imported torch.

    Its forked children report nothing, as they would see the same.
    """
    torch = sys.modules.get("torch")
    if torch is not None and os.getpid() == pid:
        with report.guard("looking for a GPU"):
            report.gpu = bool(torch.cuda.is_available())
            report.write()


def why_left_alone(dumped: DumpedKernel) -> str:
    """Return the reason why a later step must run a dumped kernel as it is; empty if there is none."""
    if dumped.info.triton_version != triton.__version__:
        return f"Triton {dumped.info.triton_version} dumped it, and the program has {triton.__version__}; dump it again"
    return "an Inductor worker process compiled it; set compile_threads to 1" if is_compile_worker() else ""


def save_kernel(
    workspace: Workspace, kernel_glob: str, kernel: DumpedKernel, compiled: Any, report: ProcessReport
) -> bool:
    """Save a compiled kernel whose name matches, with the source files that its locations name, and report it.

    Returns False if it is not saved.
    """
    ttgir = compiled.asm.get("ttgir")
    if not fnmatchcase(kernel.name, kernel_glob):
        report.add_kernel(kernel.variant, kernel.name, "passed over")
        return False
    if ttgir is None:
        reason = "Triton keeps no TTGIR of it (knobs.compilation.store_binary_only)"
        report.add_kernel(kernel.variant, kernel.name, "left alone", reason)
        return False
    metadata = as_json(compiled.metadata._asdict()) | kernel.info.metadata
    info = msgspec.structs.replace(kernel.info, name=compiled.metadata.name, metadata=metadata)
    workspace.write_kernel(kernel.variant, info, ttgir, _sources(ttgir), build_files(compiled))
    note = f"the program puts its code in place: {path}" if (path := put_in_place(kernel)) else ""
    report.add_kernel(kernel.variant, kernel.name, "dumped", note)
    return True


def _sources(ttgir: str) -> dict[str, str]:
    """Return the present text of the source files that the module's locations name, without Triton's own library.

    A notebook's cell is not a file; its text is in Python's ``linecache``, from which Triton had it.
    """
    library = Path(triton.__file__).parent
    users = [name for name in source_files(ttgir) if library not in Path(name).parents]
    texts = {name: source_text(Path(name)) or "".join(linecache.getlines(name)) for name in users}
    return {name: text for name, text in texts.items() if text}
