"""Experiments with saved launches, in a process of ours: ``python -m ...own_process FOLDER FIRST``.

It does the tasks of ``FOLDER`` from number ``FIRST`` on, and writes each result when it is known. A kernel that fails
ends this process; the process that started it then goes on with the next task.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import singledispatch
from pathlib import Path
from typing import Any, TypeVar

import triton
from msgspec.structs import replace

from kprof_inject.capture.cta_samples import CtaChoice
from kprof_inject.capture.measurements import L2Contents, MeasurementsRecord
from kprof_inject.capture.resources import PairedTimesRecord
from kprof_inject.capture.saved_launch import SavedLaunch, read_saved_launch
from kprof_inject.capture.schema import TTGIR_FILE
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.builds import BuildSource, load
from kprof_inject.runtime.counters.cupti import Cupti, find_cupti
from kprof_inject.runtime.counters.pc_sampler import PcSampler
from kprof_inject.runtime.counters.range_profiler import RangeProfiler
from kprof_inject.runtime.devices.cuda_driver import current_context
from kprof_inject.runtime.devices.fixed_memory import AddressTaken
from kprof_inject.runtime.devices.own_process import OwnDevice, device_of_own_process
from kprof_inject.runtime.experiments.back_to_back import BackToBack, empty_ns
from kprof_inject.runtime.experiments.delayed_kernel import (
    DelayedKernel,
    NoExperiment,
    experiment_record,
    spins_of,
    time_delays,
)
from kprof_inject.runtime.experiments.l2_contents import contents_as_in_program, l2_fills
from kprof_inject.runtime.experiments.launch_with_records import capture_launch
from kprof_inject.runtime.experiments.loaded_launch import LoadedLaunch, loaded_launch
from kprof_inject.runtime.experiments.measured_launch import MeasuredLaunch
from kprof_inject.runtime.experiments.paired_launches import HOST_IS_SLOW, PairedLaunches
from kprof_inject.runtime.experiments.relaunch import NotReplayable
from kprof_inject.runtime.experiments.tasks import (
    ADDRESS_TAKEN,
    CaptureLaunch,
    CountLaunch,
    SampleLaunch,
    Task,
    TaskResult,
    TimeDelays,
    TimeEdits,
    TimeRecords,
    read_tasks,
    write_result,
)
from kprof_inject.runtime.experiments.timed_edits import load_builds, overwrite_outputs, time_edits
from kprof_inject.runtime.experiments.watchdog import Watchdog
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.launcher import own_scratch, writing_to
from kprof_inject.runtime.launch.recorded_launch import ArgumentKinds
from kprof_inject.runtime.launch.timing import EmptyKernel
from kprof_inject.workspace import DumpedKernel, write_experiment

T = TypeVar("T")

# Rounds of launches with each contents of the L2, to find those of the program.
_MEASURED_ROUNDS = 10
_SAMPLING_PERIOD_LOG2 = 8
_SAMPLING_BUFFER_BYTES = 256 << 20


class OwnProcess:
    """This process: its device, once a task has named it, and its watchdog."""

    def __init__(self) -> None:
        """Begin without a device."""
        self._device: OwnDevice | None = None
        self.watchdog = Watchdog(lambda reason: None)
        self._cupti: Cupti | None = None
        self._profiler: RangeProfiler | None = None
        self._sampler: PcSampler | None = None
        self._is_sampling = False
        self.l2: dict[str, L2Contents] = {}
        """What the L2 held when each launch that was counted began."""

    def device_for(self, saved: SavedLaunch) -> OwnDevice:
        """Return the device for a launch, that of the first launch. Raises ``KprofError``."""
        if self._device is None:
            self._device = device_of_own_process(saved.record.device_name, saved.record.device_uuid)
        return self._device

    def profiler(self, device: OwnDevice) -> RangeProfiler:
        """Return what counts metrics of the device's launches. Raises ``KprofError`` where that is not possible."""
        if self._sampler is not None and self._is_sampling:
            self._sampler.disable()  # CUPTI does not count while sampling is enabled
            self._is_sampling = False
        if self._profiler is None:
            self._profiler = RangeProfiler(self._loaded_cupti(), device.current(), current_context())
        return self._profiler

    def sampler(self, device: OwnDevice) -> PcSampler:
        """Return what samples the device's kernels that are loaded from now on. Raises ``KprofError``."""
        if self._sampler is None:
            self._sampler = PcSampler(
                self._loaded_cupti(), current_context(), _SAMPLING_PERIOD_LOG2, _SAMPLING_BUFFER_BYTES
            )
        if not self._is_sampling:
            self._sampler.enable()
            self._is_sampling = True
        return self._sampler

    def _loaded_cupti(self) -> Cupti:
        if self._cupti is None:
            self._cupti = Cupti(find_cupti())
        return self._cupti


def main(folder: Path, first: int) -> int:
    """Do the tasks, and return the exit code."""
    process = OwnProcess()
    for number, task in enumerate(read_tasks(folder)):
        if number < first:
            continue
        begun = time.monotonic()
        try:
            result = _done(task, process)
        except AddressTaken:
            return ADDRESS_TAKEN
        except (NotReplayable, NoExperiment, KprofError) as error:
            result = TaskResult(refusal=error.what if isinstance(error, KprofError) else str(error))
        except Exception as error:  # noqa: BLE001 (Triton's and the driver's errors have no common base)
            result = TaskResult(refusal=f"it failed: {first_line(error)}")
            write_result(folder, number, result)
            return 1  # after an error of the device, nothing more works in this process
        seconds = time.monotonic() - begun
        write_result(folder, number, replace(result, seconds=seconds))
    return 0


@singledispatch
def _done(task: Task, process: OwnProcess) -> TaskResult:
    """Do a task. Raises ``NotReplayable``, ``KprofError``, ``AddressTaken``, and any error of Triton and the driver."""
    raise NotImplementedError(type(task).__name__)


def _clean_kernel(saved: SavedLaunch) -> Any:
    """Load the machine code of a saved launch."""
    if not saved.build_folder.is_dir():
        raise NotReplayable("its machine code was not saved")
    if saved.record.triton != triton.__version__:
        raise NotReplayable(
            f"Triton {saved.record.triton} compiled it, and this Python has {triton.__version__}; launchers differ"
        )
    return load(saved.build_folder, BuildSource.of(saved.kernel))


@_done.register
def _time_records(task: TimeRecords, process: OwnProcess) -> TaskResult:
    saved = read_saved_launch(Path(task.launch))
    device = process.device_for(saved)
    with ExitStack() as lent:
        launch = lent.enter_context(loaded_launch(device, saved))
        clean = _clean_kernel(saved)
        recorded = load(Path(task.build), BuildSource.of(saved.kernel))
        known = task.kernel.known_metadata
        sample = CtaChoice(task.kernel.cta_shift).sample(saved.record.grid, known.num_ctas)
        buffer_bytes = sample.buffer_bytes(known.profile_scratch_size)
        buffer = lent.enter_context(device.borrowed(buffer_bytes, launch.relaunch.stream))
        lent.enter_context(writing_to(buffer, sample))
        launches = _paired(launch, clean, [recorded], device, process)
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
    until_s = time.monotonic() + seconds
    timed = launches.run(until_s, times or _MAX_TIMES, lambda pairs: range(len(pairs)), times or _MIN_TIMES)
    if timed.refusals:
        raise NotReplayable(next(iter(timed.refusals.values())))
    (pairs,) = timed.pairs
    if not pairs.ns:
        raise NotReplayable(HOST_IS_SLOW)
    batch = BackToBack(launches.device, launches.relaunch.stream, launches.memory, timed.launches, restores=False)
    with launches.device.unaffected_by_graphs():
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
def _time_delays(task: TimeDelays, process: OwnProcess) -> TaskResult:
    saved = read_saved_launch(Path(task.launch))
    device = process.device_for(saved)
    with loaded_launch(device, saved) as launch:
        relaunch, clean = launch.relaunch, _clean_kernel(saved)
        numbers = ArgumentKinds.of(saved.kernel.signature).numbers(relaunch.arguments)
        target = DelayedKernel(clean, relaunch.grid, numbers)
        target.load(Path(task.builds), task.plan)
        if not any(target.builds):
            raise NotReplayable(next(iter(target.refusals.values()), "no delay was compiled"))
        timed = time_delays(_paired(launch, clean, target.builds, device, process), task.plan, task.seconds)
        dumped = DumpedKernel(saved.record.variant, saved.kernel, saved.folder / TTGIR_FILE)
        spins = spins_of(task.plan, device, relaunch.stream)
        record = experiment_record(dumped, task.plan, target, timed, device, spins)
        write_experiment(Path(task.folder), record)
    return TaskResult()


@_done.register
def _time_edits(task: TimeEdits, process: OwnProcess) -> TaskResult:
    saved = read_saved_launch(Path(task.launch))
    device = process.device_for(saved)
    with loaded_launch(device, saved) as launch:
        clean = _clean_kernel(saved)
        builds = list(load_builds(task.builds, task.grids, saved))
        launches = _paired(launch, clean, [kernel for kernel, _ in builds], device, process)
        overwrite_outputs(device, launch)
        return TaskResult(edits=time_edits(task, launch, launches, [refusal for _, refusal in builds]))


@_done.register
def _capture_launch(task: CaptureLaunch, process: OwnProcess) -> TaskResult:
    saved = read_saved_launch(Path(task.launch))
    device = process.device_for(saved)
    with loaded_launch(device, saved) as launch:
        l2 = capture_launch(launch, _clean_kernel(saved), device, Path(task.session), task.times)
    return TaskResult(l2=l2)


@_done.register
def _count_launch(task: CountLaunch, process: OwnProcess) -> TaskResult:
    saved = read_saved_launch(Path(task.launch))
    with _measured(saved, process, process.profiler) as (launch, profiler, l2):
        process.l2[task.launch] = l2
        return TaskResult(measurements=MeasurementsRecord(counters=launch.count(profiler, task.metrics), l2=l2))


@_done.register
def _sample_launch(task: SampleLaunch, process: OwnProcess) -> TaskResult:
    saved = read_saved_launch(Path(task.launch))
    with _measured(saved, process, process.sampler, process.l2.get(task.launch)) as (launch, sampler, l2):
        return TaskResult(measurements=MeasurementsRecord(samples=launch.sample(sampler), l2=l2))


@contextmanager
def _measured(
    saved: SavedLaunch, process: OwnProcess, instrument: Callable[[OwnDevice], T], l2: L2Contents | None = None
) -> Iterator[tuple[MeasuredLaunch, T, L2Contents]]:
    """Lend a loaded launch that has warmed up, what measures it, and what the L2 is to hold when it begins.

    ``l2`` is that if it is known.
    """
    device = process.device_for(saved)
    with loaded_launch(device, saved) as launch, own_scratch(device), l2_fills(device, launch) as fills:
        ready = instrument(device)  # its memory must not be at the launch's addresses, nor the kernel be loaded before
        kernel = _clean_kernel(saved)
        launches = _paired(launch, kernel, [], device, process)
        launches.warm_up(BackToBack(device, launch.relaunch.stream, launch.memory))
        l2 = l2 or contents_as_in_program(launch, kernel, device, fills, _MEASURED_ROUNDS)
        yield MeasuredLaunch(launches, launch, kernel, fills[l2]), ready, l2


def _paired(
    launch: LoadedLaunch, clean: Any, variants: Sequence[Any], device: OwnDevice, process: OwnProcess
) -> PairedLaunches:
    record = launch.saved.record
    return PairedLaunches(
        device=device,
        relaunch=launch.relaunch,
        memory=launch.memory,
        clean=clean,
        variants=variants,
        watchdog=process.watchdog,
        name=record.name,
        seed=record.variant,
        waits=record.relaunch is None or record.relaunch.waits,
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
