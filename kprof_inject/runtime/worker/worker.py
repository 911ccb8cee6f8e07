"""Experiments with saved launches, in a worker, one task at a time.

A kernel that fails ends this process; the process that started it then starts another one for the next task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, singledispatch
from pathlib import Path
from typing import Any, TypeVar

import triton
from msgspec.structs import replace

from kprof_inject.capture.cta_samples import CtaChoice
from kprof_inject.capture.measurements import L2Contents, MeasurementsRecord
from kprof_inject.capture.resources import PairedTimesRecord
from kprof_inject.capture.saved_launch import SavedLaunch, read_saved_launch
from kprof_inject.errors import KprofError
from kprof_inject.runtime.child_process import serve
from kprof_inject.runtime.compiling.builds import BuildSource, load
from kprof_inject.runtime.counters.cupti import Cupti, find_cupti
from kprof_inject.runtime.counters.pc_sampler import PcSampler
from kprof_inject.runtime.counters.range_profiler import RangeProfiler
from kprof_inject.runtime.devices.cuda_driver import current_context
from kprof_inject.runtime.devices.worker_device import AddressTaken, WorkerDevice, worker_device
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.launcher import own_scratch, writing_to
from kprof_inject.runtime.launch.timing import EmptyKernel
from kprof_inject.runtime.worker.delayed_kernel import experiment_record, load_delays, time_delays
from kprof_inject.runtime.worker.loaded_launch import LoadedLaunch, NotReplayable, loaded_launch
from kprof_inject.runtime.worker.measured_launch import (
    MeasuredLaunch,
    capture_launch,
    contents_as_in_program,
    l2_fills,
)
from kprof_inject.runtime.worker.paired_launches import (
    HOST_IS_SLOW,
    BackToBack,
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

T = TypeVar("T")

# Rounds of launches with each contents of the L2, to find those of the program.
_MEASURED_ROUNDS = 10
_SAMPLING_PERIOD_LOG2 = 8
_SAMPLING_BUFFER_BYTES = 256 << 20


class Worker:
    """This process: its device, once a task has named it, and its watchdog."""

    def __init__(self) -> None:
        """Begin without a device."""
        self._device: WorkerDevice | None = None
        self.watchdog = Watchdog()
        self._profiler: RangeProfiler | None = None
        self._sampler: PcSampler | None = None
        self._is_sampling = False
        self.l2: dict[str, L2Contents] = {}
        """What the L2 held when each launch that was counted began."""
        self._held = ExitStack()
        self._edited: tuple[str, float | None, PairedLaunches, CloseResults] | None = None

    def device_for(self, saved: SavedLaunch) -> WorkerDevice:
        """Return the device for a launch, that of the first launch. Raises ``KprofError``."""
        if self._device is None:
            self._device = worker_device(saved.record.device_name, saved.record.device_uuid)
        return self._device

    def profiler(self, device: WorkerDevice) -> RangeProfiler:
        """Return what counts metrics of the device's launches. Raises ``KprofError`` where that is not possible."""
        if self._sampler is not None and self._is_sampling:
            self._sampler.disable()  # CUPTI does not count while sampling is enabled
            self._is_sampling = False
        if self._profiler is None:
            self._profiler = RangeProfiler(self._cupti, device.current(), current_context())
        return self._profiler

    def sampler(self, device: WorkerDevice) -> PcSampler:
        """Return what samples the device's kernels that are loaded from now on. Raises ``KprofError``."""
        if self._sampler is None:
            self._sampler = PcSampler(self._cupti, current_context(), _SAMPLING_PERIOD_LOG2, _SAMPLING_BUFFER_BYTES)
        if not self._is_sampling:
            self._sampler.enable()
            self._is_sampling = True
        return self._sampler

    @cached_property
    def _cupti(self) -> Cupti:
        return Cupti(find_cupti())

    def do(self, task: Task) -> TaskResult:
        """Do a task."""
        begun = time.monotonic()
        try:
            if isinstance(task, TimeEdit):
                result = TaskResult(edit=time_edit(task, *self._loaded_to_edit(task)))
            else:
                self.forget_edited()
                saved = read_saved_launch(Path(task.launch))
                with loaded_launch(self.device_for(saved), saved) as launch:
                    result = _done(task, launch, self)
        except AddressTaken:
            return TaskResult(refusal=ADDRESS_TAKEN)
        except (NotReplayable, KprofError) as error:
            result = TaskResult(refusal=error.what if isinstance(error, KprofError) else str(error))
        except Exception as error:  # noqa: BLE001 (Triton's and the driver's errors have no common base)
            result = TaskResult(refusal=f"it failed: {first_line(error)}", is_last=True)
        return replace(result, seconds=time.monotonic() - begun)

    def _loaded_to_edit(self, task: TimeEdit) -> tuple[PairedLaunches, CloseResults]:
        """Return a launch to time with edits: that of the task before, if it is the same one."""
        if self._edited is None or self._edited[:2] != (task.launch, task.tolerance):
            self.forget_edited()
            saved = read_saved_launch(Path(task.launch))
            launch = self._held.enter_context(loaded_launch(self.device_for(saved), saved))
            results = CloseResults(launch, task.tolerance)
            launches = PairedLaunches(launch, clean_kernel(saved), [], self.watchdog, results)
            overwrite_outputs(launch)
            self._edited = task.launch, task.tolerance, launches, results
        return self._edited[2:]

    def forget_edited(self) -> None:
        """Free the memory of a launch that was edited."""
        self._edited = None
        self._held.close()


@singledispatch
def _done(task: Task, launch: LoadedLaunch, worker: Worker) -> TaskResult:
    """Do a task. Raises ``NotReplayable``, ``KprofError``, ``AddressTaken``, and any error of Triton and the driver."""
    raise NotImplementedError(type(task).__name__)


def clean_kernel(saved: SavedLaunch) -> Any:
    """Load the machine code of a saved launch. Raises ``NotReplayable``."""
    if not saved.build_folder.is_dir():
        raise NotReplayable("its machine code was not saved")
    if saved.record.triton != triton.__version__:
        raise NotReplayable(
            f"Triton {saved.record.triton} compiled it, and this Python has {triton.__version__}; launchers differ"
        )
    return load(saved.build_folder, BuildSource.of(saved.kernel))


@_done.register
def _time_records(task: TimeRecords, launch: LoadedLaunch, worker: Worker) -> TaskResult:
    saved, clean = launch.saved, clean_kernel(launch.saved)
    recorded = load(Path(task.build), BuildSource.of(saved.kernel))
    known = task.kernel.known_metadata
    sample = CtaChoice(task.kernel.cta_shift).sample(saved.record.grid, known.num_ctas)
    buffer_bytes = sample.buffer_bytes(known.profile_scratch_size)
    with launch.device.borrowed(buffer_bytes, launch.stream) as buffer, writing_to(buffer, sample):
        launches = PairedLaunches(launch, clean, [recorded], worker.watchdog)
        return TaskResult(replay=time_records(launches, task.seconds, task.times, (clean.metadata, known)))


_MAX_TIMES = 100
_MIN_TIMES = 5
"""``timeline.comparison`` needs this many for an interval."""
_MIN_NS = 1.0  # below the steps of the device's timer


def time_records(
    launches: PairedLaunches, seconds: float, times: int | None, metadata: Sequence[Any]
) -> PairedTimesRecord:
    """Time the only variant of ``launches``, the kernel with records, against the one without.

    It takes ``times`` pairs, or if that is None as many as ``seconds`` allow. ``metadata`` is that of both builds,
    whose empty kernels are timed as well. Raises ``NotReplayable``, and any error of a launch.
    """
    launch, until_s = launches.launch, time.monotonic() + seconds
    timed = launches.run(until_s, times or _MAX_TIMES, lambda pairs: range(len(pairs)), times or _MIN_TIMES)
    if timed.refusals:
        raise NotReplayable(next(iter(timed.refusals.values())))
    (pairs,) = timed.pairs
    if not pairs.ns:
        raise NotReplayable(HOST_IS_SLOW)
    batch = BackToBack(launch.device, launch.stream, launch.refresh, timed.launches, restores=False)
    with launch.device.unaffected_by_graphs():
        clean_empty_ns, with_records_empty_ns = (empty_ns(batch, EmptyKernel.like(known)) for known in metadata)
    return PairedTimesRecord(
        clean_ns=tuple(max(ns, _MIN_NS) for ns in pairs.clean_ns),
        with_records_ns=tuple(max(ns, _MIN_NS) for ns in pairs.ns),
        launches=timed.launches,
        restored=timed.restored,
        clean_empty_ns=clean_empty_ns,
        with_records_empty_ns=with_records_empty_ns,
    )


@_done.register
def _time_delays(task: TimeDelays, launch: LoadedLaunch, worker: Worker) -> TaskResult:
    clean = clean_kernel(launch.saved)
    builds = load_delays(clean, launch.saved.record.grid, Path(task.builds), task.plan)
    launches = PairedLaunches(launch, clean, [kernel for kernel, _ in builds], worker.watchdog)
    timed = time_delays(launches, task.plan, task.seconds)
    write_experiment(Path(task.folder), experiment_record(launches, task.plan, builds, timed))
    return TaskResult()


@_done.register
def _capture_launch(task: CaptureLaunch, launch: LoadedLaunch, worker: Worker) -> TaskResult:
    return TaskResult(l2=capture_launch(launch, clean_kernel(launch.saved), Path(task.session), task.times))


@_done.register
def _count_launch(task: CountLaunch, launch: LoadedLaunch, worker: Worker) -> TaskResult:
    with _measured(launch, worker, worker.profiler) as (measured, profiler, l2):
        worker.l2[task.launch] = l2
        return TaskResult(measurements=MeasurementsRecord(counters=measured.count(profiler, task.metrics), l2=l2))


@_done.register
def _sample_launch(task: SampleLaunch, launch: LoadedLaunch, worker: Worker) -> TaskResult:
    with _measured(launch, worker, worker.sampler, worker.l2.get(task.launch)) as (measured, sampler, l2):
        return TaskResult(measurements=MeasurementsRecord(samples=measured.sample(sampler), l2=l2))


@contextmanager
def _measured(
    launch: LoadedLaunch, worker: Worker, instrument: Callable[[WorkerDevice], T], l2: L2Contents | None = None
) -> Iterator[tuple[MeasuredLaunch, T, L2Contents]]:
    """Lend a launch that has warmed up, what measures it, and what the L2 is to hold when it begins.

    ``l2`` is that if it is known.
    """
    with own_scratch(launch.device), l2_fills(launch) as fills:
        # Its memory must not be at the launch's addresses, nor the kernel be loaded before.
        ready = instrument(launch.device)
        kernel = clean_kernel(launch.saved)
        launches = PairedLaunches(launch, kernel, [], worker.watchdog)
        launches.warm_up()
        l2 = l2 or contents_as_in_program(launch, kernel, fills, _MEASURED_ROUNDS)
        yield MeasuredLaunch(launches, fills[l2]), ready, l2


if __name__ == "__main__":
    this = Worker()
    serve(lambda task, _: this.do(task))
