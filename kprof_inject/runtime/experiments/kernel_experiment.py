"""The experiment with one kernel in one process: load its builds with delays, time them, and save the times."""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
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
from kprof_inject.capture.schema import Resources, plausible_sm_clock_hz
from kprof_inject.runtime.compiling.delayed_builds import assembly_in, load
from kprof_inject.runtime.devices.cuda_driver import l2_bytes, resources_of
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.experiments.experiment import DelayExperiment, ExperimentTimes, InProgramTiming, Watchdog
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.launch_choice import parse_launches
from kprof_inject.runtime.launch.recorded_launch import HOOK_ARGUMENTS, ArgumentKinds, Grid
from kprof_inject.runtime.launch.triton_wrapping import StandInLauncher, is_benchmarking
from kprof_inject.runtime.process_events import is_of_signal_handler
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.replay.relaunch import Launchable, NotReplayable, Relaunch
from kprof_inject.runtime.replay.replay import ONLY_IN_GRAPHS
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.stack_room import COMPILING
from kprof_inject.workspace import DumpedKernel, Workspace, write_experiment

_NOT_CODE = (".version", ".file", ".loc")
_DEBUG_SECTIONS = ".section\t.debug"
"""These sections follow the code, in PTX and in AMD's assembly."""


class NoExperiment(Exception):
    """Error that an experiment with a kernel is impossible; its text is the reason."""


class ExperimentTarget:
    """A launch of the program, and the builds to launch instead of its kernel.

    ``builds`` are in the order of the plan; None is a build that is left out for the reason in ``refusals``. Only the
    numbers of the launch's arguments are kept, so that the program can free the memory.
    """

    def __init__(
        self,
        kernel: Any,
        launch: Callable[..., Any],
        grid: Grid,
        stream: int,
        args: tuple[Any, ...],
        kinds: ArgumentKinds,
    ) -> None:
        """Describe a launch of ``kernel``; ``launch`` is the launcher that the kernel has without us."""
        self.kernel = kernel
        self.launchable = Launchable(launch, kernel.function, kernel.packed_metadata)
        self.grid = grid
        self.stream = stream
        self.arguments = kinds.numbers(args[HOOK_ARGUMENTS:])
        self.clean = Resources(**resources_of(kernel))
        self.builds: list[Any] = []
        self.refusals: dict[int, str] = {}
        self.registers: list[int | None] = []
        self._numbers = _numbers(args)

    def is_like(self, grid: Grid, args: tuple[Any, ...]) -> bool:
        """Return whether another launch has the same grid and numbers, and so probably does the same work."""
        return grid == self.grid and _numbers(args) == self._numbers

    def load(self, folder: Path, plan: DelaysRecord) -> None:
        """Load all builds of a plan.

        Raises ``NoExperiment`` if the module's text compiles to another kernel than the source.
        """
        own_assembly = str(self.kernel.asm.get("ptx") or self.kernel.asm.get("amdgcn") or "")
        if difference := _difference(own_assembly, assembly_in(folder / plan.plain)):
            raise NoExperiment(f"its TTGIR alone compiles to a different kernel than the program runs ({difference})")
        for place, build in enumerate(plan.builds):
            loaded, refusal = self._loaded(folder, build)
            self.builds.append(loaded)
            self.registers.append(None if loaded is None else loaded.n_regs)
            if refusal:
                self.refusals[place] = refusal

    def _loaded(self, folder: Path, build: DelayedBuildRecord) -> tuple[Any, str]:
        if build.binary is None:
            return None, build.refusal
        try:
            loaded = load(folder / build.binary, self.kernel)
        except Exception as error:  # noqa: BLE001 (the driver's errors have no common base)
            return None, f"it does not load: {first_line(error)}"
        room, clean_room = Resources(**resources_of(loaded)).ctas_per_sm, self.clean.ctas_per_sm
        if room != clean_room and not self._fits(min(room or 0, clean_room or 0)):
            return None, f"with the delay, an SM holds {room} of its CTAs instead of {clean_room}"
        return loaded, ""

    def _fits(self, ctas_per_sm: int) -> bool:
        """Return whether all CTAs run at once with this many on an SM, so that more room changes nothing."""
        return prod(self.grid) <= _properties().get("multiprocessor_count", 0) * ctas_per_sm


def _numbers(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value for value in args[HOOK_ARGUMENTS:] if isinstance(value, int | float))


def _difference(a: str, b: str) -> str:
    """Return the first lines of code in which two assembly texts differ; empty if they are the same."""
    for a_line, b_line in zip_longest(_code(a), _code(b), fillvalue=""):
        if a_line != b_line:
            return f"{a_line.strip()!r} against {b_line.strip()!r}"
    return ""


def _code(assembly: str) -> list[str]:
    """Return the lines of code, without locations and the version of PTX.

    Inductor writes the source to a different file in each process, and in some chooses a different version.
    """
    code, _, _ = assembly.partition(_DEBUG_SECTIONS)
    return [line for line in code.splitlines() if not line.lstrip().startswith(_NOT_CODE)]


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
    _target: ExperimentTarget | None = None

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
                self._begin(ExperimentTarget(kernel, launch, grid, stream, args, kinds), args)
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
                raise NotReplayable("--no-replay is set")
            timed = self._replayed(target, args)
        except NotReplayable as reason:
            self._report.add_replay(self._dumped.name, 0.0, str(reason))
            self._target = target
            seconds = self._session.seconds
            self._timing = InProgramTiming(
                device=self._device,
                plan=self._plan,
                dumped=self._dumped,
                builds=target.builds,
                watchdog=self._watchdog,
                seconds=seconds,
                give_up=self.give_up,
            )
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
            self._device, relaunch, target.launchable, target.builds, self._plan, self._dumped, self._watchdog
        )
        return experiment.run(self._session.seconds)

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
