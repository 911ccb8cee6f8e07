"""Experiments with saved launches, in a worker, one task at a time.

A kernel that fails ends this process; the process that started it then starts another one for the next task.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import triton
from msgspec.structs import replace

from kprof_inject.capture.cta_samples import CtaChoice
from kprof_inject.capture.measurements import L2Contents, MeasurementsRecord
from kprof_inject.capture.resources import PairedTimesRecord
from kprof_inject.capture.saved_launch import SavedLaunch, read_saved_launch
from kprof_inject.errors import KprofError
from kprof_inject.runtime.child_process import serve
from kprof_inject.runtime.compiling.builds import load, source_of
from kprof_inject.runtime.counters.cupti import Cupti, find_cupti
from kprof_inject.runtime.counters.pc_sampler import PcSampler
from kprof_inject.runtime.counters.range_profiler import RangeProfiler
from kprof_inject.runtime.devices.cuda_driver import current_context
from kprof_inject.runtime.devices.worker_device import AddressTaken, WorkerDevice, worker_device
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.launcher import writing_to
from kprof_inject.runtime.launch.timing import EmptyKernel
from kprof_inject.runtime.worker.delayed_kernel import time_delays
from kprof_inject.runtime.worker.loaded_launch import LoadedLaunch, NotReplayable, loaded_launch
from kprof_inject.runtime.worker.measured_launch import capture_in_worker, measured_launch
from kprof_inject.runtime.worker.paired_launches import HOST_IS_SLOW, BackToBack, PairedLaunches, Watchdog, empty_ns
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
        """Return a launch to time with edits: that of the task before, if it is the same one."""
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
                return TaskResult(
                    l2=capture_in_worker(launch, clean_kernel(launch.saved), Path(task.session), task.times)
                )
            case CountLaunch():
                profiler = self._ready_profiler(launch.device)
                with measured_launch(launch, clean_kernel(launch.saved), self._watchdog) as measured:
                    self._l2[task.launch] = measured.l2
                    counters = measured.count(profiler, task.metrics)
                    return TaskResult(measurements=MeasurementsRecord(counters=counters, l2=measured.l2))
            case SampleLaunch():
                sampler, l2 = self._ready_sampler(), self._l2.get(task.launch)
                with measured_launch(launch, clean_kernel(launch.saved), self._watchdog, l2) as measured:
                    samples = measured.sample(sampler)
                    return TaskResult(measurements=MeasurementsRecord(samples=samples, l2=measured.l2))

    def _ready_profiler(self, device: WorkerDevice) -> RangeProfiler:
        if self._sampler is not None and self._is_sampling:
            self._sampler.disable()  # CUPTI does not count while sampling is enabled
            self._is_sampling = False
        if self._profiler is None:
            self._profiler = RangeProfiler(self._cupti, device.current(), current_context())
        return self._profiler

    def _ready_sampler(self) -> PcSampler:
        """Return what samples the kernels that are loaded from now on."""
        if self._sampler is None:
            self._sampler = PcSampler(self._cupti, current_context(), _SAMPLING_PERIOD_LOG2, _SAMPLING_BUFFER_BYTES)
        if not self._is_sampling:
            self._sampler.enable()
            self._is_sampling = True
        return self._sampler

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
            clean_empty_ns, with_records_empty_ns = (
                empty_ns(batch, EmptyKernel.like(metadata)) for metadata in (clean.metadata, known)
            )
    return PairedTimesRecord(
        clean_ns=tuple(max(ns, _MIN_NS) for ns in pairs.clean_ns),
        with_records_ns=tuple(max(ns, _MIN_NS) for ns in pairs.ns),
        launches=timed.launches,
        restored=timed.restored,
        clean_empty_ns=clean_empty_ns,
        with_records_empty_ns=with_records_empty_ns,
    )


if __name__ == "__main__":
    this = Worker()
    serve(lambda task, _: this.do(task))
