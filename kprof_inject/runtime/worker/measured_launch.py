"""Measure one saved launch in a worker: with records, with the hardware's counters, or by samples of its warps.

It begins with what the L2 held in the program. The kernels before the launch decide that, and without its inputs in the
L2 a launch takes longer. A saved launch does not have these kernels, but it has its times in the program. So we try
several contents, and use those with which it takes as long as there.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from triton.compiler.compiler import CompiledKernel

from kprof_inject.capture.measurements import CountersRecord, L2Contents, SampledInstruction, SamplesRecord
from kprof_inject.capture.resources import KernelResources
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.builds import compile_text, source_of
from kprof_inject.runtime.counters.cupti import CuptiError
from kprof_inject.runtime.counters.pc_sampler import PcSampler, PcSamples
from kprof_inject.runtime.counters.range_profiler import RangeProfiler
from kprof_inject.runtime.devices.cuda_driver import MemoryRange, NoDeviceMemory, l2_bytes, resources_of
from kprof_inject.runtime.launch import triton_wrapping
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.launch_saver import LaunchSaver
from kprof_inject.runtime.launch.launcher import own_scratch, record_launches
from kprof_inject.runtime.launch.planned_kernel import KernelPlan, PlannedKernel
from kprof_inject.runtime.launch.timing import EmptyKernel, LaunchTimer
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import NO_SAVED_LAUNCHES, Session
from kprof_inject.runtime.worker.loaded_launch import LoadedLaunch
from kprof_inject.runtime.worker.paired_launches import BackToBack, PairedLaunches, Watchdog, empty_ns
from kprof_inject.workspace import Workspace

_TIMES_L2 = 2  # reading twice as much as fits leaves nothing else
# A share of 10 % then has an error of 0.3 points (95 %), and of 3.4 points in a scope with 1 % of the samples.
_WANTED_SAMPLES = 30_000
_MAX_SAMPLED_LAUNCHES = 60  # CUPTI has one buffer for them all, with the samples of the kernels that restore the memory
# Longer launches are sampled less often.
_MAX_SAMPLED_NS = 300e6
_CLEAN_LAUNCHES = 30
_MEASURED_ROUNDS = 10  # rounds of launches with each contents of the L2, to find those of the program

Fills = Mapping[L2Contents, Callable[[], None]]  # functions that queue what leaves these contents in the L2


@contextmanager
def l2_fills(launch: LoadedLaunch) -> Iterator[Fills]:
    """Lend what can be done with the L2 before a launch: only ``left`` if its times in the program are unknown."""
    memory = launch.saved.record.memory
    fills: dict[L2Contents, Callable[[], None]] = {"left": partial(_read, launch)}
    with ExitStack() as lent:
        if launch.saved.record.clean.times_ns:
            inputs = [MemoryRange(one.address, one.size_bytes) for one in memory if one.before == one.after]
            if inputs:
                fills["inputs"] = partial(_read, launch, *inputs)
            size_bytes = _TIMES_L2 * l2_bytes()
            if size_bytes:
                with suppress(NoDeviceMemory):  # else as much as the launch itself left
                    buffer = lent.enter_context(launch.device.borrowed(size_bytes, launch.stream))
                    fills["emptied"] = partial(_read, launch, MemoryRange(buffer.data_ptr(), size_bytes))
        yield fills


def _read(launch: LoadedLaunch, *ranges: MemoryRange) -> None:
    for one in ranges:
        launch.device.read(one, launch.stream)


def as_in_program(
    times_ns: Mapping[L2Contents, list[float]], empty_ns: float | None, program: KernelResources
) -> L2Contents:
    """Return the contents with which a launch takes about as long as in the program."""
    if not program.times_ns:
        return "left"
    expected_ns = median(program.times_ns)
    if empty_ns is not None and program.empty_launch_ns is not None:
        expected_ns += empty_ns - program.empty_launch_ns
    return min(times_ns, key=lambda contents: abs(median(times_ns[contents]) - expected_ns))


def contents_as_in_program(launch: LoadedLaunch, kernel: Any, fills: Fills, times: int) -> L2Contents:
    """Time a launch with each contents, and return those of the program."""
    if len(fills) == 1:
        return "left"
    timed = BackToBack(launch.device, launch.stream, launch.refresh)
    times_ns: dict[L2Contents, list[float]] = {contents: [] for contents in fills}
    for _ in range(times):
        for contents, fill in fills.items():
            timed.before = fill
            times_ns[contents] += timed.times_ns(timed.queued([partial(launch.launch, kernel)]))
    timed.before = fills["left"]
    return as_in_program(times_ns, empty_ns(timed, EmptyKernel.like(kernel.metadata)), launch.saved.record.clean)


@contextmanager
def measured_launch(
    launch: LoadedLaunch, clean: Any, watchdog: Watchdog, l2: L2Contents | None = None
) -> Iterator[MeasuredLaunch]:
    """Lend a launch whose unchanged kernel has warmed up. ``l2`` is what the L2 held in the program, if it is known."""
    with own_scratch(launch.device), l2_fills(launch) as fills:
        launches = PairedLaunches(launch, clean, [], watchdog)
        launches.warm_up()
        l2 = l2 or contents_as_in_program(launch, clean, fills, _MEASURED_ROUNDS)
        yield MeasuredLaunch(launches, l2, fills[l2])


@dataclass(frozen=True, slots=True)
class MeasuredLaunch:
    """A launch to be measured on a device whose context is current.

    ``l2`` is what the L2 holds when the launch begins; ``fill`` queues that.
    """

    launches: PairedLaunches
    l2: L2Contents
    fill: Callable[[], None]

    def count(self, profiler: RangeProfiler, metrics: Sequence[str]) -> CountersRecord:
        """Count the metrics that the device has. Raises ``KprofError`` where that is not possible."""

        def launch() -> None:
            self._launch()
            self._wait()

        values, passes = profiler.measure(metrics, self._begin, launch)
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        return CountersRecord(metrics=finite, passes=passes)

    def sample(self, sampler: PcSampler) -> SamplesRecord:
        """Sample the warps. The sampler was enabled before the kernel was loaded.

        Raises ``KprofError`` where that is not possible.
        """
        samples, name = PcSamples(), self.launches.launch.saved.record.name

        def sample(times: int) -> None:
            with sampler.sampling(samples):
                for _ in range(times):
                    self._begin()
                    self._launch()
                self._wait()

        sample(1)
        launches = 1
        of_one = max(sum(sum(counts.values()) for counts in samples.of(name).values()), 1)
        by_time = int(_MAX_SAMPLED_NS / max(self.launches.clean_ns, 1.0))
        more = max(min(math.ceil(_WANTED_SAMPLES / of_one), _MAX_SAMPLED_LAUNCHES, by_time), 1)
        with suppress(CuptiError):  # the buffer was too small for all of these: keep the samples of the first launch
            sample(more)
            launches += more
        by_address = samples.of(name)
        if not by_address:
            raise KprofError("CUPTI took no sample of it")
        instructions = (SampledInstruction(address, counts) for address, counts in sorted(by_address.items()))
        return SamplesRecord(
            period_cycles=sampler.period_cycles,
            launches=launches,
            total=samples.total,
            dropped=samples.dropped,
            instructions=tuple(instructions),
        )

    def _begin(self) -> None:
        self.launches.launch.refresh()
        self.fill()
        self._wait()

    def _launch(self) -> None:
        self.launches.launch.launch(self.launches.clean)
        self.launches.watch_stream()

    def _wait(self) -> None:
        device = self.launches.launch.device
        device.synchronise(device.current())


def capture_in_worker(launch: LoadedLaunch, clean: Any, session_path: Path, times: int) -> L2Contents:
    """Launch a saved launch with the records that are planned in the session's workspace, and save their buffers.

    ``clean`` is the kernel without records, which is timed before. Returns what the L2 held when each launch began.
    Raises ``KprofError`` if the kernel cannot be recorded.
    """
    device, session = launch.device, Session.read(session_path)
    workspace, report = Workspace(Path(session.workspace)), ProcessReport(session.reports)
    dumped = workspace.kernel(launch.saved.record.variant)
    scope_table = workspace.scope_table(dumped.variant)
    if scope_table is None:
        raise KprofError(f"{dumped.name} has no planned records", hint="insert some")

    def compiled_from(text: Path, _: ExitStack) -> Any:
        # From its instrumented TTGIR alone, because its source is not here.
        folder = workspace.recorded_builds_folder / f"{dumped.variant}.compiled"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        compile_text(text.read_text(), dumped.info, folder)
        return CompiledKernel(source_of(dumped.info), {made.name: str(made) for made in sorted(folder.iterdir())}, "")

    sys.argv = [str(launch.saved.folder)]  # the capture says what was run
    with own_scratch(device), l2_fills(launch) as fills:
        l2 = contents_as_in_program(launch, clean, fills, _CLEAN_LAUNCHES)
        workspace.write_clean_run(dumped.variant, _clean_run(launch, clean, fills[l2]))
        saver = LaunchSaver(NO_SAVED_LAUNCHES, session.recording.launches, device, report)
        capture = LaunchCapture(session, report, device, saver)
        triton_wrapping.wrap_loading()
        plan = KernelPlan(dumped, dumped.variant, scope_table)
        planned = PlannedKernel(session, report, device, lambda _: None, dumped, plan, compiled_from)
        record_launches(clean, planned, capture.current)
        for _ in range(times):
            launch.refresh()
            fills[l2]()
            launch.launch(clean)
        capture.finish()
        report.note_end()
    return l2


def _clean_run(launch: LoadedLaunch, clean: Any, fill: Callable[[], None]) -> KernelResources:
    device, stream = launch.device, launch.stream
    timer = LaunchTimer(device, EmptyKernel.like(clean.metadata))
    for _ in range(_CLEAN_LAUNCHES):
        launch.refresh()
        fill()
        start = timer.begin(stream)
        launch.launch(clean)
        if start is not None:
            timer.end(start, stream)
    device.synchronise(device.current())
    return timer.resources(**resources_of(clean))
