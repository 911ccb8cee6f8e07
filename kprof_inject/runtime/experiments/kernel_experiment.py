"""The experiment with one kernel in one process: load its builds with delays, time them, and save the times."""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from triton.runtime.driver import driver

from kprof_inject.capture.experiments import (
    DelayedBuildRecord,
    DelaysRecord,
    ExperimentRecord,
    MeasuredDelayRecord,
    SpinRecord,
)
from kprof_inject.capture.schema import plausible_sm_clock_hz
from kprof_inject.runtime.devices.cuda_driver import l2_bytes
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.experiments.experiment import DelayExperiment, ExperimentTimes
from kprof_inject.runtime.experiments.experiment_target import ExperimentTarget, NoExperiment
from kprof_inject.runtime.experiments.in_program_timing import InProgramTiming
from kprof_inject.runtime.experiments.watchdog import Watchdog
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.arguments import ArgumentKinds
from kprof_inject.runtime.launch.launch_choice import parse_launches
from kprof_inject.runtime.launch.recorded_launch import Grid
from kprof_inject.runtime.process_events import is_of_signal_handler
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.replay.memory_copies import NotReplayable
from kprof_inject.runtime.replay.relaunch import Relaunch
from kprof_inject.runtime.session import Session
from kprof_inject.workspace import DumpedKernel, Workspace, write_experiment


class KernelExperiment:
    """Experiment with one kernel of this process.

    It begins at the first launch that is kept, and ends when that returns, or later if the program's own launches are
    timed.
    """

    def __init__(
        self,
        session: Session,
        report: ProcessReport,
        device: Device,
        watchdog: Watchdog,
        workspace: Workspace,
        dumped: DumpedKernel,
        plan: DelaysRecord,
    ) -> None:
        """Prepare the experiment that ``plan`` describes with the kernel ``dumped``."""
        self.is_over = False
        self._session = session
        self._report = report
        self._device = device
        self._watchdog = watchdog
        self._workspace = workspace
        self._dumped = dumped
        self._plan = plan
        self._launches = parse_launches(session.launches)
        self._seen = 0
        self._thread = 0
        self._was_captured = False
        self._timing: InProgramTiming | None = None
        self._target: ExperimentTarget | None = None

    def before_launch(
        self, kernel: Any, launch: Callable[..., Any], grid: Grid, stream: int, args: tuple[Any, ...]
    ) -> ChosenBuild | None:
        """Run the experiment before a launch of the program, if this is the launch to do it at.

        ``launch`` is the launcher that the kernel has without us. Returns the build to launch if the program's own
        launches are timed.
        """
        try:
            if self._device.is_capturing():
                self._was_captured = True
                return None
            if self._timing is not None:
                return self._chosen_build(grid, args)
            number, self._seen = self._seen, self._seen + 1
            # Otherwise another thread has begun the experiment, or this launch is not kept.
            if not self._thread and self._launches.keeps(number):
                self._thread = threading.get_ident()
                kinds = ArgumentKinds.of(self._dumped.info.signature)
                sm_count = _properties().get("multiprocessor_count", 0)
                self._begin(ExperimentTarget(kernel, launch, grid, stream, args, kinds, sm_count), args)
        except Exception as error:
            if is_of_signal_handler(error):
                self.is_over = True
                raise
            self.give_up(str(error) if isinstance(error, NoExperiment) else f"that failed: {first_line(error)}")
        return None

    def give_up(self, reason: str) -> None:
        """End the experiment, and report the reason."""
        if not self.is_over:
            self.is_over = True
            self._report.add_kernel(self._dumped.variant, self._dumped.name, "left alone", reason)

    def finish(self) -> None:
        """Save the times of the program's own launches, or report why there are none."""
        if self._was_captured and not self._thread:
            self.give_up("it was launched only in CUDA graphs; launch it once outside a graph")
        if self._timing is not None and self._target is not None and not self.is_over:
            timed, target = self._timing.finish(), self._target
            self._timing = self._target = None
            if any(pairs.ns for pairs in timed.pairs):
                self.is_over = True
                self._save(target, timed, is_replayed=False)
            else:
                self.give_up("the program launched it too rarely")

    def _begin(self, target: ExperimentTarget, args: tuple[Any, ...]) -> None:
        """Run the experiment now, or begin to time the program's launches.

        Raises ``NoExperiment``, and any error of a launch.
        """
        with self._device.unaffected_by_graphs():
            target.load(self._workspace.delayed_builds_folder, self._plan)
        if not any(target.builds):
            raise NoExperiment(next(iter(target.refusals.values()), "no delay was compiled"))
        try:
            if self._session.replays.times == 0 or self._session.replays.only == ():
                raise NotReplayable("--no-replay says so")
            timed = self._replayed(target, args)
        except NotReplayable as reason:
            self._report.add_replay(self._dumped.name, 0.0, str(reason))
            self._timing = self._new_timing(target)
            self._target = target
            return
        self.is_over = True
        self._save(target, timed, is_replayed=True)

    def _replayed(self, target: ExperimentTarget, args: tuple[Any, ...]) -> ExperimentTimes:
        """Time relaunches of the kernel. Raises ``NotReplayable``."""
        record = self._plan.scopes.relaunch
        if record is not None and record.refusal:
            raise NotReplayable(f"it {record.refusal}")
        if record is None or record.waits:
            raise NotReplayable("it polls memory and might hang")
        relaunch = Relaunch.of(self._dumped.info.signature, target.grid, target.stream, args)
        experiment = DelayExperiment(
            self._device, relaunch, target.launchable, target.builds, self._plan, self._dumped.variant, self._watchdog,
            self._dumped.name,
        )  # fmt: skip
        return experiment.run(self._session.seconds)

    def _new_timing(self, target: ExperimentTarget) -> InProgramTiming:
        included = [place for place, build in enumerate(target.builds) if build is not None]
        return InProgramTiming(
            self._device, self._plan, included, self._dumped.variant, self._watchdog, self._dumped.name,
            self._session.seconds,
        )  # fmt: skip

    def _chosen_build(self, grid: Grid, args: tuple[Any, ...]) -> ChosenBuild | None:
        timing, target = self._timing, self._target
        if timing is None or target is None or self._thread != threading.get_ident():
            return None
        if not target.is_like(grid, args):
            return None  # other work takes a different time
        if timing.is_done:
            with self._report.guard("saving an experiment"):
                self.finish()
            return None
        return ChosenBuild(self, timing, target.builds)

    def _save(self, target: ExperimentTarget, timed: ExperimentTimes, *, is_replayed: bool) -> None:
        properties = _properties()
        with self._device.unaffected_by_graphs():
            spins = self._spins(target.stream)
        experiment = ExperimentRecord(
            name=self._dumped.name,
            variant=self._dumped.variant,
            pid=os.getpid(),
            scopes=self._plan.scopes,
            target=self._dumped.info.target,
            device_name=self._device.names()[self._device.current()],
            sm_count=properties.get("multiprocessor_count", 0),
            nominal_clock_hz=plausible_sm_clock_hz(1000 * properties.get("sm_clock_rate", 0)),
            sm_clock_hz=statistics.median(timed.sm_clock_hz) if timed.sm_clock_hz else 0.0,
            l2_bytes=l2_bytes(),
            clean=target.clean,
            grid=target.grid,
            arguments=target.arguments,
            delays=tuple(_measured(self._plan.builds, timed, target)),
            spins=spins,
            warps=self._plan.warps,
            launches=timed.launches,
            replayed=is_replayed,
            seconds=timed.seconds,
            timed=sum(len(pairs.ns) for pairs in timed.pairs),
            ended=timed.ended,
        )
        write_experiment(Path(self._session.experiment), experiment)
        self._report.add_kernel(self._dumped.variant, self._dumped.name, "delayed")

    def _spins(self, stream: int) -> tuple[SpinRecord, ...]:
        """Measure how long delays take by themselves; return nothing if that is not possible."""
        plan = self._plan
        with self._report.guard("measuring what delays take"):
            counted = self._device.counted(plan.spin_kernel, len(plan.spin_cycles), stream) if plan.spin_kernel else []
            spins = zip(plan.spin_cycles, counted, strict=False)
            return tuple(SpinRecord(cycles, count / plan.spin_rounds) for cycles, count in spins)
        return ()


class ChosenBuild:
    """The build for one launch of the program."""

    def __init__(self, experiment: KernelExperiment, timing: InProgramTiming, builds: Sequence[Any]) -> None:
        """Choose among ``builds`` as ``timing`` does."""
        self._experiment = experiment
        self._timing = timing
        self._builds = builds

    def launch(self, stream: int, launch: Callable[[Any], Any]) -> Any:
        """Call ``launch`` with the build, or with None for the kernel without a delay.

        If the launch of a build fails, the kernel without a delay is launched.
        """
        place = self._timing.begin(stream, self._experiment.give_up)
        if place is None:
            result = launch(None)
        else:
            try:
                result = launch(self._builds[place])
            except Exception as error:
                if is_of_signal_handler(error):
                    raise
                self._experiment.give_up(f"its launch fails with a delay: {first_line(error)}")
                return launch(None)
        self._timing.end(stream, self._experiment.give_up)
        return result


def _properties() -> dict[str, int]:
    """Return Triton's properties of the current device."""
    found: dict[str, int] = driver.active.utils.get_device_properties(driver.active.get_current_device())
    return found


def _rounded(times_ns: Sequence[float]) -> tuple[float, ...]:
    """Round times to 0.1 ns; the timer's steps are many times longer."""
    return tuple(round(ns, 1) for ns in times_ns)


def _measured(
    builds: Sequence[DelayedBuildRecord], timed: ExperimentTimes, target: ExperimentTarget
) -> Iterator[MeasuredDelayRecord]:
    refusals = {**timed.refusals, **target.refusals}
    for place, build in enumerate(builds):
        pairs, refusal = timed.pairs[place], refusals.get(place, "")
        yield MeasuredDelayRecord(
            scope=build.scope,
            delay_cycles=build.delay_cycles,
            ns=() if refusal else _rounded(pairs.ns),
            clean_ns=() if refusal else _rounded(pairs.clean_ns),
            registers=target.registers[place],
            refusal=refusal,
        )
