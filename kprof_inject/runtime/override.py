"""The run step inside the program: compile the planned kernels with records, and capture their launches."""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
import triton.compiler.compiler
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from kprof_inject.errors import KprofError
from kprof_inject.files import read_text
from kprof_inject.runtime.capture import CapturingLauncher, LaunchCapture
from kprof_inject.runtime.compiler import Compile, wrap_compiler
from kprof_inject.runtime.diagnostics import without_false_alarms
from kprof_inject.runtime.dump import note_gpu
from kprof_inject.runtime.instrumentation import instrumented, scope_names, shared_bytes_of
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.variants import Variant, variant_of
from kprof_inject.runtime.versions import installed_version
from kprof_inject.workspace import DumpedKernel, Workspace


def install(session: Session, report: ProcessReport) -> None:
    """Called once, right after Triton was imported."""
    step = _RunStep(session, report)
    wrap_compiler(step.compile)
    atexit.register(note_gpu, report)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A dumped kernel that has a plan, and the plan's scope table."""

    kernel: DumpedKernel
    scope_table: dict[str, Any]


class _RunStep:
    def __init__(self, session: Session, report: ProcessReport) -> None:
        self._session = session
        self._report = report
        self._workspace = Workspace(Path(session.workspace))
        self._capture = LaunchCapture(session, report)
        # Triton's knobs and the backend's instrumentation are global to the process.
        self._lock = threading.RLock()

    def compile(self, original: Compile, args: Any, kwargs: Any) -> Any:
        with self._lock:
            variant, planned = None, None
            with self._report.guard("looking up a kernel's plan"):
                variant = variant_of(original, args, kwargs)
                planned = self._planned(variant) if variant else None
            if variant is None or planned is None:
                return original(*args, **kwargs)
            plain = functools.partial(original, *args, **kwargs)
            try:
                kernel = self._compile_with_records(plain, variant, planned)
            except Exception as error:  # noqa: BLE001 (the compiler's errors have no common base)
                self._leave_alone(variant, f"Triton could not compile it with records: {error}")
                return plain()
            self._report.add_kernel(variant.key, variant.name, "instrumented")
            return kernel

    def _planned(self, variant: Variant) -> _Planned | None:
        scope_table = self._workspace.scope_table(variant.key)
        if scope_table is None:
            return None
        kernel = self._workspace.kernel(variant.key)
        dumped_by = kernel.info["triton_version"]
        if dumped_by != triton.__version__:
            self._leave_alone(
                variant, f"it was dumped by Triton {dumped_by}, and this is {triton.__version__}; dump again"
            )
            return None
        return _Planned(kernel, scope_table)

    def _compile_with_records(self, plain: Compile, variant: Variant, planned: _Planned) -> Any:
        properties = _device_properties(variant.target)
        shared_bytes = properties.get("max_shared_mem") or shared_bytes_of(variant.target)
        with (
            _overriding(self._workspace, planned.kernel),
            instrumented(variant.target, self._session.mode, shared_bytes),
            without_false_alarms(),
        ):
            kernel = plain()
        if not kernel.metadata.profile_scratch_size:
            raise KprofError("the override was not used: its records are not in the binary")
        ttgir_path = self._workspace.override_path(planned.kernel)
        description = {
            "name": planned.kernel.name,
            "scope_table": planned.scope_table,
            "scope_ids": scope_names(str(ttgir_path), variant.target),
            "layout": installed_version().buffer_layout,
            "mode": self._session.mode.to_json(),
            "sm_clock_hz": 1000 * properties.get("sm_clock_rate", 0),
            "metadata": {**planned.kernel.info["metadata"], **_changed_metadata(kernel)},
            "clean_metadata": planned.kernel.info["metadata"],
        }
        self._capture.add_kernel(
            variant.key,
            description,
            read_text(planned.kernel.ttgir_path),
            self._workspace.kernel_sources(variant.key),
        )
        self._capture_launches_of(kernel, plain, variant)
        return kernel

    def _capture_launches_of(self, kernel: Any, plain: Compile, variant: Variant) -> None:
        """Put our launcher in place when Triton makes its own, at the kernel's first launch."""
        initialise = kernel._init_handles

        def initialise_and_wrap() -> None:
            if kernel.module is not None:
                return
            try:
                initialise()
            except Exception as error:  # noqa: BLE001 (shared memory, registers, whatever the driver refuses)
                clean = without_records(f"it does not load with records: {error}")
                # The program, and Triton's caches, already hold this object.
                vars(kernel).clear()
                vars(kernel).update(vars(clean))
                clean.module = None  # or Triton 3.9 unloads the module with this second owner of it
                return
            self._capture.describe_loaded(variant.key, kernel.n_regs, kernel.n_spills)
            kernel._run = CapturingLauncher(kernel, self._capture, variant.key, without_records)

        def without_records(reason: str) -> Any:
            self._leave_alone(variant, reason)
            with self._lock:
                clean = plain()
            clean._init_handles()
            return clean

        kernel._init_handles = initialise_and_wrap

    def _leave_alone(self, variant: Variant, reason: str) -> None:
        with self._report.guard("reporting a kernel"):
            self._report.add_kernel(variant.key, variant.name, "left alone", reason)


@contextmanager
def _overriding(workspace: Workspace, kernel: DumpedKernel) -> Iterator[None]:
    """Have Triton replace the TTGIR of the next compilation by the kernel's own, and keep the binary apart.

    The cache's key does not know the override, so an instrumented binary must not lie where another
    compilation would look.
    """
    compiler: Any = triton.compiler.compiler
    with knobs.compilation.scope(), knobs.cache.scope():
        knobs.compilation.override = True
        knobs.compilation.always_compile = True
        knobs.compilation.store_binary_only = False
        knobs.cache.override_dir = str(workspace.override_folder / kernel.variant)
        knobs.cache.dir = str(workspace.cache_folder("instrumented"))
        # Triton says on stdout that it overrides; the program's output is not ours to add to, and our report has it.
        compiler.print = _say_nothing
        try:
            yield
        finally:
            del compiler.print


def _say_nothing(*_: object, **__: object) -> None:
    pass


def _device_properties(target: GPUTarget) -> dict[str, Any]:
    """What the driver tells of the current device; nothing if the program compiles for another target."""
    try:
        if driver.active.get_current_target() != target:
            return {}
        device = driver.active.get_current_device()
        return dict(driver.active.utils.get_device_properties(device))
    except RuntimeError:  # no active driver: a machine without a GPU
        return {}


def _changed_metadata(kernel: Any) -> dict[str, Any]:
    names = ("num_warps", "shared", "profile_scratch_size", "profile_scratch_align")
    return {name: getattr(kernel.metadata, name) for name in names}
