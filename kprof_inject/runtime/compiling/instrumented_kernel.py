"""Compile a dumped kernel with its planned records, for a program's launches."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from kprof_inject.capture.capture_files import KernelRecord
from kprof_inject.capture.cta_samples import EVERY_CTA, CtaChoice, CtaSample
from kprof_inject.capture.mode import AUTO_BUFFER, Mode
from kprof_inject.capture.resources import KernelResources, limits_of, registers_for
from kprof_inject.capture.ring_sizes import auto_buffer, keeps_occupancy, mode_of_kernel, smaller_buffer_bytes
from kprof_inject.capture.schema import plausible_sm_clock_hz
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.files import write_bytes
from kprof_inject.quantities import counted
from kprof_inject.runtime.compiling.builds import build_files
from kprof_inject.runtime.compiling.compiler_messages import errors_in, without_false_alarms
from kprof_inject.runtime.compiling.instrumentation import (
    instrumented,
    keeping_body,
    require_clock_reads,
    scope_names,
    shared_bytes_of,
    tag_values,
    target_of,
)
from kprof_inject.runtime.compiling.recording_build import ArgumentKinds, RecordingBuild
from kprof_inject.runtime.devices.cuda_driver import l2_bytes, resources_of
from kprof_inject.runtime.process_events import in_forked_child
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.versions import installed_version
from kprof_inject.workspace import DumpedKernel, Workspace

# A second body is not worth this many more spills: ptxas allocates the registers of both at once, and where it leaves
# values in memory, the CTAs that do not record wait for them, too.
_MAX_MORE_SPILLS = 3

_MAX_AUTO_BYTES = 128 << 20
"""Size of a launch's buffer up to which ``auto`` gives each warp a whole ring in global memory. A launch has two or
three buffers, in memory that the program may need."""

_CHANGED_BY_RECORDS = ("num_warps", "shared", "profile_scratch_size", "profile_scratch_align")


@dataclass(frozen=True, slots=True)
class InstrumentedKernel:
    """A dumped kernel with planned records, which ``compile`` compiles; it undoes the effects that it is given."""

    session: Session
    dumped: DumpedKernel
    plan: str
    """Name of the plan in the workspace."""
    scope_table: ScopeTable
    clean: KernelResources
    """Resources of the kernel without records."""
    clean_ptx: str | None
    """PTX of the kernel without records; None if it has none, or if all CTAs record in any case."""
    compile: Callable[[ExitStack], Any]
    prefers_shared: bool = False
    """True if records of this kernel cost less in shared memory, also where they mostly cost less in global memory."""

    @property
    def target(self) -> GPUTarget:
        """The kernel's target."""
        assert self.dumped.info.target is not None  # known for a kernel that was compiled
        return target_of(self.dumped.info.target)

    @property
    def target_name(self) -> str:
        """The target as text, such as ``cuda:90``."""
        return str(self.dumped.info.target)

    @property
    def has_samples(self) -> bool:
        """True if a sample of the CTAs can record."""
        return self.target.backend == "cuda" and self.clean_ptx is not None

    @property
    def cluster_ctas(self) -> int:
        """Number of CTAs in a cluster."""
        return self.dumped.info.known_metadata.num_ctas

    @property
    def sms(self) -> int:
        """Number of SMs of the current device; 0 if it is unknown."""
        return int(_device_properties(self.target).get("multiprocessor_count", 0))

    @property
    def total_warps(self) -> int:
        """Number of warps of a CTA."""
        return int(self.dumped.info.metadata["num_warps"])

    @property
    def _has_tags(self) -> bool:
        return any(scope.tags for scope in self.scope_table.scopes)

    def mode(self, sample: CtaSample) -> Mode:
        """Return the session's mode for launches of this kernel of which ``sample`` records.

        Raises ``KprofError`` if mode and kernel do not suit each other.
        """
        mode = self.session.recording.mode
        if mode.sched_stores and any(scope.ended_by_next for scope in self.scope_table.scopes):
            raise KprofError(
                "--sched-stores moves the store of a start to its end, and iterations have only one record",
                hint="insert with --iter-records two",
            )
        mode.require_tags_kept(self._has_tags)
        if mode.buffer == AUTO_BUFFER:
            can_choose = self.target.backend == "cuda" and "nvidia" in installed_version().global_buffer_on
            stays = self.prefers_shared and not sample.shift
            mode = replace(mode, buffer=auto_buffer(sample) if can_choose and not stays else "shared")
        chosen = mode_of_kernel(
            mode,
            self.dumped.info.metadata["shared"],
            self.total_warps,
            self.clean.registers,
            self.target_name,
            self.scope_table.most_records,
        )
        if chosen.buffer == "global" and self.session.recording.mode.buffer == AUTO_BUFFER and not mode.buffer_bytes:
            limited = smaller_buffer_bytes(chosen, sample.rows, self.total_warps, _MAX_AUTO_BYTES)
            chosen = replace(chosen, buffer_bytes=limited or chosen.buffer_bytes)
        return chosen

    def can_prefer_shared(self, sample: CtaSample) -> bool:
        """Return whether records of these CTAs are in global memory, and could be in shared memory instead.

        They could if that is left to us, and as many CTAs then fit on an SM.
        """
        if self.session.recording.mode.buffer != AUTO_BUFFER or sample.shift or self.mode(sample).buffer == "shared":
            return False
        shared_bytes, target = self.dumped.info.metadata["shared"], self.target_name
        try:
            ring_bytes = dataclasses.replace(self, prefers_shared=True).mode(sample).buffer_bytes
        except KprofError:  # no room
            return False
        return keeps_occupancy(ring_bytes, shared_bytes, self.total_warps, self.clean.registers, target)

    def build(self, variant: str, ctas: CtaChoice, mode: Mode) -> tuple[RecordingBuild, Any]:
        """Compile and load a build whose name in the capture is ``variant``; return it with its kernel.

        Raises ``KprofError`` with the reason if the compiler refuses, or if the result would not do.
        """
        kernel = self.compile_with_records(mode, ctas)
        kernel._init_handles()
        if ctas != EVERY_CTA:
            if self._holds_fewer_ctas(kernel):
                kernel = self._with_fewer_registers(mode, ctas) or kernel
            self._require_few_spills(kernel, mode)
        build = self._build_of(kernel, variant, mode, ctas)
        before, after = build.record.clean.ctas_per_sm, build.record.with_records.ctas_per_sm
        # All CTAs of a cooperative launch must be resident at once.
        if getattr(kernel.metadata, "launch_cooperative_grid", False) and before and after and after < before:
            raise KprofError(
                f"with records, an SM holds {after} of its CTAs instead of {before}, and its launch is cooperative"
            )
        return build, kernel

    def _holds_fewer_ctas(self, kernel: Any) -> bool:
        """Return whether fewer CTAs fit on an SM than without records."""
        before, after = self.clean.ctas_per_sm, resources_of(kernel)["ctas_per_sm"]
        return before is not None and after is not None and after < before

    def _with_fewer_registers(self, mode: Mode, ctas: CtaChoice) -> Any:
        """Return the kernel with so few registers that as many CTAs fit as without records; None if that fails.

        Only the CTAs that record spill. With fewer CTAs on an SM, the launch would be another.
        """
        limits = limits_of(self.target_name)
        shared_bytes, ctas_before = self.dumped.info.metadata["shared"], self.clean.ctas_per_sm or 0
        registers = registers_for(limits, shared_bytes, self.total_warps, ctas_before)
        if registers is None:
            return None
        kernel = self.compile_with_records(mode, ctas, registers)
        kernel._init_handles()
        return None if self._holds_fewer_ctas(kernel) else kernel

    def _require_few_spills(self, kernel: Any, mode: Mode) -> None:
        """Raise ``KprofError`` if a kernel with two bodies spills more than both do alone."""
        before, after = self.clean.spills, resources_of(kernel)["spills"]
        if before is None or after is None or after <= before + _MAX_MORE_SPILLS:
            return
        try:
            alone = self.compile_with_records(mode, EVERY_CTA)
            alone._init_handles()
        except Exception:  # noqa: BLE001 (whatever prevents records in all CTAs, a sample can have them)
            return
        with_records = resources_of(alone)["spills"]
        if with_records is not None and with_records + _MAX_MORE_SPILLS < after and not self._holds_fewer_ctas(alone):
            raise KprofError(f"with a second body, its threads spill {counted(after, 'word')} instead of {before}")

    def compile_with_records(self, mode: Mode, ctas: CtaChoice, max_registers: int | None = None) -> Any:
        """Have Triton compile the kernel's TTGIR with records in place of its own.

        ``max_registers`` is for a kernel of which a sample of the CTAs records. Raises ``KprofError`` with the
        compiler's reason if it refuses, and if the result has no records.
        """
        shared_bytes = _device_properties(self.target).get("max_shared_mem") or shared_bytes_of(self.target)
        with _Effects() as effects, without_false_alarms() as messages:
            effects.enter_context(instrumented(self.target, mode, shared_bytes))
            if self._has_tags:
                effects.enter_context(tag_values())
            if ctas != EVERY_CTA and self.clean_ptx is not None:
                effects.enter_context(keeping_body(self.clean_ptx, self.cluster_ctas, max_registers))
            try:
                kernel = self.compile(effects)
            except Exception as error:  # the compiler's errors have no common base
                errors = errors_in(messages.take())
                reason = errors[0].text if errors else f"{type(error).__name__}: {error}"
                raise KprofError(f"Triton does not compile it with records: {reason}") from error
        if not kernel.metadata.profile_scratch_size:
            raise KprofError("Triton did not use the override: its records are not in the binary")
        require_clock_reads(kernel, self.target)
        return kernel

    def _build_of(self, kernel: Any, variant: str, mode: Mode, ctas: CtaChoice) -> RecordingBuild:
        """Return the build of a loaded kernel with records."""
        workspace, dumped = Workspace(Path(self.session.workspace)), self.dumped
        device = _device_properties(self.target)
        clean_metadata = dumped.info.metadata
        record = KernelRecord(
            name=dumped.name,
            program_variant=dumped.variant,
            scopes=self.scope_table,
            scope_ids=scope_names(
                str(workspace.override_path(dataclasses.replace(dumped, variant=self.plan))), self.target
            ),
            layout=installed_version().buffer_layout,
            mode=mode,
            cta_shift=ctas.shift,
            sm_clock_hz=plausible_sm_clock_hz(1000 * device.get("sm_clock_rate", 0)),
            sm_count=device.get("multiprocessor_count") or None,
            l2_bytes=l2_bytes() or None,
            # Two bits per cycle and line; the clock is in kHz.
            dram_bytes_per_s=2 * 1e3 * device.get("mem_clock_rate", 0) * device.get("mem_bus_width", 0) / 8 or None,
            metadata={**clean_metadata, **{name: getattr(kernel.metadata, name) for name in _CHANGED_BY_RECORDS}},
            clean=replace(self.clean, shared_bytes=clean_metadata["shared"]),
            with_records=KernelResources(**resources_of(kernel)),
        )
        if self.session.saved.has(dumped.variant):
            for name, data in build_files(kernel).items():
                write_bytes(workspace.recorded_builds_folder / variant / name, data)
        return RecordingBuild(
            variant=variant,
            variant_of_program=dumped.variant,
            launch=kernel._run,
            function=kernel.function,
            packed_metadata=kernel.packed_metadata,
            row_bytes=kernel.metadata.profile_scratch_size,
            cluster_ctas=self.cluster_ctas,
            ctas=ctas,
            overlaps=bool(getattr(kernel.metadata, "launch_pdl", False)),
            ttgir=dumped.ttgir(),
            sources=workspace.kernel_sources(dumped.variant),
            record=record,
            argument_kinds=ArgumentKinds.of(dumped.info.signature),
        )


class _Effects(ExitStack):
    """Changes of the process's state for one compilation, undone at its end.

    A child that another thread forks meanwhile never reaches that end, so there they are undone at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        in_forked_child(self._undo_in_child)

    def _undo_in_child(self) -> None:
        if threading.get_ident() != self._thread:
            self.close()


def binaries_folder(workspace: Workspace) -> Path:
    """Return this process's folder for binaries with records."""
    return workspace.cache_folder("instrumented")


def remove_binaries(workspace: Workspace) -> None:
    """Remove the binaries that this process compiled with records. The next run removes those of killed processes."""
    shutil.rmtree(binaries_folder(workspace), ignore_errors=True)


def _device_properties(target: GPUTarget) -> dict[str, Any]:
    """Return the driver's properties of the current device; empty if the program compiles for another target."""
    try:
        if driver.active.get_current_target() != target:
            return {}
        device = driver.active.get_current_device()
        return dict(driver.active.utils.get_device_properties(device))
    except RuntimeError:  # no active driver, as on a machine without a GPU
        return {}
