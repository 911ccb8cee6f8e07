"""Experiments with saved launches, in a worker, one task at a time.

A kernel that fails ends this process; the process that started it then starts another one for the next task.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import triton
from msgspec.structs import replace
from triton.runtime.driver import driver

from kprof_inject.capture.cta_samples import CtaChoice
from kprof_inject.capture.experiments import DelayedBuildRecord, ExperimentRecord, MeasuredDelayRecord, SpinRecord
from kprof_inject.capture.measurements import L2Contents, MeasurementsRecord
from kprof_inject.capture.resources import PairedTimesRecord, Resources
from kprof_inject.capture.saved_launch import SavedLaunch, read_saved_launch
from kprof_inject.capture.schema import Grid, plausible_sm_clock_hz
from kprof_inject.errors import KprofError
from kprof_inject.runtime.child_process import serve
from kprof_inject.runtime.compiling.builds import assembly_in, load, objection_to, source_of
from kprof_inject.runtime.compiling.recording_build import ArgumentKinds
from kprof_inject.runtime.counters.cupti import Cupti, find_cupti
from kprof_inject.runtime.counters.pc_sampler import PcSampler
from kprof_inject.runtime.counters.range_profiler import RangeProfiler
from kprof_inject.runtime.devices.cuda_driver import current_context, l2_bytes, resources_of
from kprof_inject.runtime.devices.worker_device import AddressTaken, WorkerDevice, worker_device
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.launcher import writing_to
from kprof_inject.runtime.launch.timing import EmptyKernel
from kprof_inject.runtime.worker.loaded_launch import LoadedLaunch, NotReplayable, loaded_launch
from kprof_inject.runtime.worker.measured_launch import capture_in_worker, measured_launch
from kprof_inject.runtime.worker.paired_launches import (
    HOST_IS_SLOW,
    BackToBack,
    LaunchPairs,
    PairedLaunches,
    Watchdog,
    empty_ns,
)
from kprof_inject.runtime.worker.tasks import (
    ADDRESS_TAKEN,
    CaptureLaunch,
    CountLaunch,
    SampleLaunch,
    Task,
    TaskResult,
    TimeDelays,
    TimeEdit,
    TimeRecords,
)
from kprof_inject.runtime.worker.timed_edits import CloseResults, overwrite_outputs, time_edit
from kprof_inject.workspace import write_experiment

_MAX_TIMES = 100
_MIN_TIMES = 5  # ``timeline.comparison`` needs this many for an interval
_MIN_NS = 1.0  # below the steps of the device's timer
_SAMPLING_PERIOD_LOG2 = 8
_SAMPLING_BUFFER_BYTES = 256 << 20
SLOPE_ERROR = 0.03  # an experiment ends early when half the interval of every slope is below this
MAX_ROUNDS = 2000  # more rounds do not help: a slope that is imprecise after these is so for other reasons


class Worker:
    """This process: its device, once a task has named it, its watchdog, and what its tasks share."""

    def __init__(self) -> None:
        self._device: WorkerDevice | None = None
        self._watchdog = Watchdog()
        self._profiler: RangeProfiler | None = None
        self._sampler: PcSampler | None = None
        self._is_sampling = False
        # What the L2 held when each launch that was counted began.
        self._l2: dict[str, L2Contents] = {}
        self._held = ExitStack()
        self._edited: tuple[str, float | None, PairedLaunches, CloseResults] | None = None

    def do(self, task: Task) -> TaskResult:
        """Do a task."""
        begun = time.monotonic()
        try:
            if isinstance(task, TimeEdit):
                result = TaskResult(edit=time_edit(task, *self._loaded_to_edit(task)))
            else:
                self.forget_edited()
                with self._loaded(task) as launch:
                    result = self._done(task, launch)
        except AddressTaken:
            return TaskResult(refusal=ADDRESS_TAKEN)
        except (NotReplayable, KprofError) as error:
            result = TaskResult(refusal=error.what if isinstance(error, KprofError) else str(error))
        except Exception as error:  # noqa: BLE001 (Triton's and the driver's errors have no common base)
            result = TaskResult(refusal=f"it failed: {first_line(error)}", is_last=True)
        return replace(result, seconds=time.monotonic() - begun)

    def _loaded(self, task: Task) -> AbstractContextManager[LoadedLaunch]:
        saved = read_saved_launch(Path(task.launch))
        if self._device is None:
            self._device = worker_device(saved.record.device_name, saved.record.device_uuid)
        return loaded_launch(self._device, saved)

    def _loaded_to_edit(self, task: TimeEdit) -> tuple[PairedLaunches, CloseResults]:
        if self._edited is None or self._edited[:2] != (task.launch, task.tolerance):
            self.forget_edited()
            launch = self._held.enter_context(self._loaded(task))
            results = CloseResults(launch, task.tolerance)
            launches = PairedLaunches(launch, clean_kernel(launch.saved), [], self._watchdog, results)
            overwrite_outputs(launch)
            self._edited = task.launch, task.tolerance, launches, results
        return self._edited[2:]

    def forget_edited(self) -> None:
        """Free the memory of a launch that was edited."""
        self._edited = None
        self._held.close()

    def _done(
        self, task: TimeRecords | TimeDelays | CaptureLaunch | CountLaunch | SampleLaunch, launch: LoadedLaunch
    ) -> TaskResult:
        match task:
            case TimeRecords():
                return TaskResult(replay=_time_records(task, launch, self._watchdog))
            case TimeDelays():
                experiment = time_delays(task, launch, clean_kernel(launch.saved), self._watchdog)
                write_experiment(Path(task.folder), experiment)
                return TaskResult()
            case CaptureLaunch():
                clean = clean_kernel(launch.saved)
                return TaskResult(l2=capture_in_worker(launch, clean, Path(task.session), task.times))
            case CountLaunch():
                if self._sampler is not None and self._is_sampling:
                    self._sampler.disable()  # CUPTI does not count while sampling is enabled
                    self._is_sampling = False
                if self._profiler is None:
                    self._profiler = RangeProfiler(self._cupti, launch.device.current(), current_context())
                with measured_launch(launch, clean_kernel(launch.saved), self._watchdog) as measured:
                    self._l2[task.launch] = measured.l2
                    counters = measured.count(self._profiler, task.metrics)
                    return TaskResult(measurements=MeasurementsRecord(counters=counters, l2=measured.l2))
            case SampleLaunch():
                if self._sampler is None:
                    settings = _SAMPLING_PERIOD_LOG2, _SAMPLING_BUFFER_BYTES
                    self._sampler = PcSampler(self._cupti, current_context(), *settings)
                if not self._is_sampling:  # it samples the kernels that are loaded from now on
                    self._sampler.enable()
                    self._is_sampling = True
                l2 = self._l2.get(task.launch)
                with measured_launch(launch, clean_kernel(launch.saved), self._watchdog, l2) as measured:
                    samples = measured.sample(self._sampler)
                    return TaskResult(measurements=MeasurementsRecord(samples=samples, l2=measured.l2))

    @cached_property
    def _cupti(self) -> Cupti:
        return Cupti(find_cupti())


def clean_kernel(saved: SavedLaunch) -> Any:
    """Load the machine code of a saved launch. Raises ``NotReplayable``."""
    if not saved.build_folder.is_dir():
        raise NotReplayable("its machine code was not saved")
    if saved.record.triton != triton.__version__:
        raise NotReplayable(
            f"Triton {saved.record.triton} compiled it, and this Python has {triton.__version__}; launchers differ"
        )
    return load(saved.build_folder, source_of(saved.kernel))


def _time_records(task: TimeRecords, launch: LoadedLaunch, watchdog: Watchdog) -> PairedTimesRecord:
    saved, device = launch.saved, launch.device
    clean, recorded = clean_kernel(saved), load(Path(task.build), source_of(saved.kernel))
    known, until_s = task.kernel.known_metadata, time.monotonic() + task.seconds
    sample = CtaChoice(task.kernel.cta_shift).sample(saved.record.grid, known.num_ctas)
    with (
        device.borrowed(sample.buffer_bytes(known.profile_scratch_size), launch.stream) as buffer,
        writing_to(buffer, sample),
    ):
        launches = PairedLaunches(launch, clean, [recorded], watchdog)
        timed = launches.run(until_s, task.times or _MAX_TIMES, lambda _: [0], task.times or _MIN_TIMES)
        if timed.refusals:
            raise NotReplayable(timed.refusals[0])
        (pairs,) = timed.pairs
        if not pairs.ns:
            raise NotReplayable(HOST_IS_SLOW)
        batch = BackToBack(device, launch.stream, launch.refresh, timed.launches, restores=False)
        with device.unaffected_by_graphs():
            both = (EmptyKernel.like(clean.metadata), EmptyKernel.like(known))
            clean_empty_ns, with_records_empty_ns = (empty_ns(batch, kernel) for kernel in both)
    return PairedTimesRecord(
        clean_ns=tuple(max(ns, _MIN_NS) for ns in pairs.clean_ns),
        with_records_ns=tuple(max(ns, _MIN_NS) for ns in pairs.ns),
        launches=timed.launches,
        restored=timed.restored,
        clean_empty_ns=clean_empty_ns,
        with_records_empty_ns=with_records_empty_ns,
    )


def time_delays(task: TimeDelays, launch: LoadedLaunch, clean: Any, watchdog: Watchdog) -> ExperimentRecord:
    """Time the builds of the task's plan against the kernel without delays, ``clean``.

    Raises ``NotReplayable`` if the module's text compiles to another kernel than the source, if no build loads, and as
    ``PairedLaunches.run`` does.
    """
    plan, saved, device, folder = task.plan, launch.saved, launch.device, Path(task.builds)
    own_assembly = str(clean.asm.get("ptx") or clean.asm.get("amdgcn") or "")
    if objection := objection_to("ttgir", own_assembly, assembly_in(folder / plan.plain)):
        raise NotReplayable(objection)
    builds = [_loaded(clean, saved.record.grid, folder, build) for build in plan.builds]
    if not any(kernel for kernel, _ in builds):
        raise NotReplayable(next((refusal for _, refusal in builds if refusal), "no delay was compiled"))

    def unsettled(pairs: Sequence[LaunchPairs]) -> Collection[int]:
        timed = [(found, build) for found, build in zip(pairs, plan.builds, strict=True) if found.ns]
        delays = [(build.scope, build.delay_cycles, build.whole_share) for _, build in timed]
        return () if are_precise([found for found, _ in timed], delays, SLOPE_ERROR) else range(len(pairs))

    launches = PairedLaunches(launch, clean, [kernel for kernel, _ in builds], watchdog)
    timed = launches.run(time.monotonic() + task.seconds, MAX_ROUNDS, unsettled)
    # How long the delays take by themselves, if the device can measure it.
    counted = device.counted(plan.spin_kernel, len(plan.spin_cycles), launch.stream) if plan.spin_kernel else []
    spins = zip(plan.spin_cycles, counted, strict=False)
    delays = []
    for place, (build, (kernel, refusal), pairs) in enumerate(zip(plan.builds, builds, timed.pairs, strict=True)):
        refusal = refusal or timed.refusals.get(place, "")
        delays.append(
            MeasuredDelayRecord(
                scope=build.scope,
                delay_cycles=build.delay_cycles,
                # The timer's steps are many times longer than 0.1 ns.
                ns=() if refusal else tuple(round(ns, 1) for ns in pairs.ns),
                clean_ns=() if refusal else tuple(round(ns, 1) for ns in pairs.clean_ns),
                registers=None if kernel is None else kernel.n_regs,
                refusal=refusal,
            )
        )
    properties = _properties()
    return ExperimentRecord(
        name=saved.kernel.name,
        variant=saved.record.variant,
        pid=os.getpid(),
        scopes=plan.scopes,
        target=saved.kernel.target,
        device_name=device.names()[device.current()],
        sm_count=properties.get("multiprocessor_count") or None,
        nominal_clock_hz=plausible_sm_clock_hz(1000 * properties.get("sm_clock_rate", 0)),
        sm_clock_hz=statistics.median(timed.sm_clock_hz) if timed.sm_clock_hz else None,
        l2_bytes=l2_bytes() or None,
        clean=Resources(**resources_of(clean)),
        grid=saved.record.grid,
        arguments=ArgumentKinds.of(saved.kernel.signature).numbers(launch.arguments),
        delays=tuple(delays),
        spins=tuple(SpinRecord(cycles, count / plan.spin_rounds) for cycles, count in spins),
        warps=plan.warps,
        launches=timed.launches,
        seconds=timed.seconds,
        timed=sum(len(pairs.ns) for pairs in timed.pairs),
        ended=timed.ended,
    )


def _loaded(clean: Any, grid: Grid, folder: Path, build: DelayedBuildRecord) -> tuple[Any, str]:
    if build.binary is None:
        return None, build.refusal
    try:
        loaded = load(folder / build.binary, clean.src, clean.hash)
    except Exception as error:  # noqa: BLE001 (the driver's errors have no common base)
        return None, f"it does not load: {first_line(error)}"
    room, clean_room = (Resources(**resources_of(kernel)).ctas_per_sm for kernel in (loaded, clean))
    if room != clean_room:
        # If all CTAs run at once, more room on an SM changes nothing.
        slots = _properties().get("multiprocessor_count", 0) * min(room or 0, clean_room or 0)
        if prod(grid) > slots:
            return None, f"with the delay, an SM holds {room} of its CTAs instead of {clean_room}"
    return loaded, ""


def _properties() -> dict[str, int]:
    found: dict[str, int] = driver.active.utils.get_device_properties(driver.active.get_current_device())
    return found


def are_precise(pairs: Sequence[LaunchPairs], delays: Sequence[tuple[int, int, float]], slope_error: float) -> bool:
    """Return True if there are slopes, and all are known to within ``slope_error``.

    ``delays`` has for each build its scope, its cycles, and the fraction by which the kernel takes longer if none of
    these cycles are hidden.
    """
    base = {scope: pairs[index].error for index, (scope, cycles, _) in enumerate(delays) if not cycles}
    errors: dict[int, float] = {}
    for index, (scope, cycles, share) in enumerate(delays):
        if cycles:
            error = math.hypot(pairs[index].error, base.get(scope, 0.0)) / share if share else math.inf
            errors.setdefault(scope, error)  # of the scope's first delay, the shortest
    return bool(errors) and max(errors.values()) <= slope_error


if __name__ == "__main__":
    this = Worker()
    serve(lambda task, _: this.do(task))
