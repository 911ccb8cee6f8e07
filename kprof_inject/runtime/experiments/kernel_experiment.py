"""An experiment with one kernel inside the program: load its builds with delays, time them, and save the times.

This is for kernels that no other process can launch, and only if the user asks for it (``--replay-in-program``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kprof_inject.capture.experiments import DelaysRecord, SpinRecord
from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.experiments.delayed_kernel import DelayedKernel, NoExperiment, experiment_record, spins_of
from kprof_inject.runtime.experiments.delays import time_delays
from kprof_inject.runtime.experiments.in_program_timing import InProgramTiming
from kprof_inject.runtime.experiments.memory_copies import copies_of, memory_of
from kprof_inject.runtime.experiments.paired_launches import PairedLaunches, PairedTimes
from kprof_inject.runtime.experiments.relaunch import NotReplayable, Relaunch
from kprof_inject.runtime.experiments.replays_in_program import ONLY_IN_GRAPHS
from kprof_inject.runtime.experiments.watchdog import Watchdog
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.launch_choice import parse_launches
from kprof_inject.runtime.launch.recorded_launch import HOOK_ARGUMENTS, ArgumentKinds
from kprof_inject.runtime.launch.triton_wrapping import StandInLauncher, is_benchmarking
from kprof_inject.runtime.process_events import is_of_signal_handler
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.stack_room import COMPILING
from kprof_inject.workspace import DumpedKernel, Workspace, write_experiment


@dataclass(slots=True, eq=False)
class KernelExperiment:
    """Experiment with one kernel of this process.

    It begins at the first launch that is kept, and ends when that returns, or later if the program's own launches are
    timed.
    """

    _session: Session
    _report: ProcessReport
    _device: Device
    _watchdog: Watchdog
    _workspace: Workspace
    _dumped: DumpedKernel
    _plan: DelaysRecord
    is_over: bool = False
    _seen: int = 0
    """Number of launches seen outside of graphs."""
    _thread: int = 0
    """Thread that began the experiment; 0 before."""
    _was_captured: bool = False
    _timing: InProgramTiming | None = None
    _target: DelayedKernel | None = None

    def before_launch(
        self, kernel: Any, launch: Callable[..., Any], grid: Grid, stream: int, args: tuple[Any, ...]
    ) -> InProgramTiming | None:
        """Run the experiment before a launch of the program, if this is the launch to do it at.

        ``launch`` is the launcher that the kernel has without us. If the program's own launches are timed, the result
        must make this launch.
        """
        try:
            if self._device.is_capturing():
                self._was_captured = True
                return None
            if self._timing is not None:
                return self._timing_of(grid, args)
            number, self._seen = self._seen, self._seen + 1
            # Otherwise another thread has begun the experiment, or this launch is not kept.
            if not self._thread and parse_launches(self._session.launches).keeps(number):
                self._thread = threading.get_ident()
                kinds = ArgumentKinds.of(self._dumped.info.signature)
                self._begin(DelayedKernel(kernel, launch, grid, stream, args, kinds), args)
        except Exception as error:
            if is_of_signal_handler(error):
                self.is_over = True
                raise
            self.give_up(
                str(error) if isinstance(error, NoExperiment) else f"the experiment failed: {first_line(error)}"
            )
        return None

    def give_up(self, reason: str) -> None:
        """End the experiment, and report the reason."""
        if not self.is_over:
            self.is_over = True
            self._report.add_kernel(self._dumped.variant, self._dumped.name, "left alone", reason)

    def finish(self) -> None:
        """Save the times of the program's own launches, or report why there are none."""
        if self._was_captured and not self._thread:
            self.give_up(ONLY_IN_GRAPHS)
        if self._timing is not None and self._target is not None and not self.is_over:
            timed, target = self._timing.finish(), self._target
            self._timing = self._target = None
            if any(pairs.ns for pairs in timed.pairs):
                self.is_over = True
                self._save(target, timed, is_replayed=False)
            else:
                self.give_up("the program launched it too rarely")

    def _begin(self, target: DelayedKernel, args: tuple[Any, ...]) -> None:
        """Run the experiment now, or begin to time the program's launches.

        Raises ``NoExperiment``, and any error of a launch.
        """
        with self._device.unaffected_by_graphs():
            target.load(self._workspace.delayed_builds_folder, self._plan)
        if not any(target.builds):
            raise NoExperiment(next(iter(target.refusals.values()), "no delay was compiled"))
        try:
            if self._session.replays.times == 0 or self._session.replays.only == ():
                raise NotReplayable("--no-replay is set")
            timed = self._replayed(target, args)
        except NotReplayable as reason:
            self._report.add_replay(self._dumped.name, 0.0, str(reason))
            self._target = target
            self._timing = InProgramTiming(
                device=self._device,
                plan=self._plan,
                dumped=self._dumped,
                builds=target.builds,
                watchdog=self._watchdog,
                seconds=self._session.seconds,
                give_up=self.give_up,
            )
            return
        self.is_over = True
        self._save(target, timed, is_replayed=True)

    def _replayed(self, target: DelayedKernel, args: tuple[Any, ...]) -> PairedTimes:
        """Time relaunches of the kernel. Raises ``NotReplayable``."""
        record = self._plan.scopes.relaunch
        if record is not None and record.refusal:
            raise NotReplayable(f"it {record.refusal}")
        if record is None or record.waits:
            raise NotReplayable("it polls memory and might hang")
        relaunch = Relaunch.of(target.grid, target.stream, args)
        ranges = memory_of(args[HOOK_ARGUMENTS:], ArgumentKinds.of(self._dumped.info.signature))
        with self._device.unaffected_by_graphs(), copies_of(self._device, ranges, target.stream) as memory:
            launches = PairedLaunches(
                device=self._device,
                relaunch=relaunch.moved(memory.moved),
                memory=memory,
                clean=target.launchable,
                variants=target.builds,
                watchdog=self._watchdog,
                name=self._dumped.name,
                seed=self._dumped.variant,
            )
            return time_delays(launches, self._plan, self._session.seconds)

    def _timing_of(self, grid: Grid, args: tuple[Any, ...]) -> InProgramTiming | None:
        timing, target = self._timing, self._target
        if timing is None or target is None or self._thread != threading.get_ident():
            return None
        if not target.is_like(grid, args):
            return None  # other work takes a different time
        if timing.is_done:
            with self._report.guard("saving an experiment"):
                self.finish()
            return None
        return timing

    def _save(self, target: DelayedKernel, timed: PairedTimes, *, is_replayed: bool) -> None:
        spins: tuple[SpinRecord, ...] = ()
        with self._device.unaffected_by_graphs(), self._report.guard("measuring what delays take"):
            spins = spins_of(self._plan, self._device, target.stream)
        experiment = experiment_record(
            self._dumped, self._plan, target, timed, self._device, spins, is_replayed=is_replayed
        )
        write_experiment(Path(self._session.experiment), experiment)
        self._report.add_kernel(self._dumped.variant, self._dumped.name, "delayed")


class ExperimentLauncher(StandInLauncher):
    """Launcher that has an experiment choose the build of each launch, and steps aside when that is over.

    The program never sees our own failures, but it does see a failure of the launch.
    """

    def __init__(self, kernel: Any, experiment: KernelExperiment) -> None:
        """Stand in for the launcher of a loaded ``kernel``."""
        super().__init__(kernel)
        self._experiment = experiment

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, metadata: Any, *args: Any
    ) -> Any:
        """Launch the build that the experiment chooses, as Triton's launcher does."""
        grid = (grid_x, grid_y, grid_z)

        def launch(build: Any) -> Any:
            if build is None:
                return self._launch(*grid, stream, function, metadata, *args)
            return build.run(*grid, stream, build.function, build.packed_metadata, *args)

        with COMPILING:
            kernel = self._kernel()
            if self._experiment.is_over or kernel is None:
                self._step_aside()
            elif not is_benchmarking() and grid_x * grid_y * grid_z:
                timing = self._experiment.before_launch(kernel, self._launch, grid, stream, args)
                if timing is not None:
                    return timing.launch(stream, launch)
            return launch(None)
