"""A kernel with its builds with delays: time a launch with each, until every slope is precise, and record that."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Collection, Iterator, Sequence
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
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.schema import Argument, Grid, plausible_sm_clock_hz
from kprof_inject.runtime.compiling.builds import assembly_in, load, objection_to
from kprof_inject.runtime.devices.cuda_driver import l2_bytes, resources_of
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.experiments.paired_launches import LaunchPairs, PairedLaunches, PairedTimes
from kprof_inject.runtime.faults import first_line
from kprof_inject.workspace import DumpedKernel

SLOPE_ERROR = 0.03
"""An experiment ends early when half the interval of every slope is below this."""

MAX_ROUNDS = 2000
"""More rounds do not help: a slope that is imprecise after these is so for other reasons."""


class NoExperiment(Exception):
    """Error that an experiment with a kernel is impossible; its text is the reason."""


class DelayedKernel:
    """A launch, and the builds to launch instead of its kernel.

    ``builds`` are in the order of the plan; None is a build that is left out for the reason in ``refusals``.
    ``arguments`` are the numbers among the launch's.
    """

    def __init__(self, kernel: Any, grid: Grid, arguments: tuple[Argument | None, ...]) -> None:
        """Describe a launch of ``kernel``."""
        self.kernel = kernel
        self.grid = grid
        self.arguments = arguments
        self.clean = Resources(**resources_of(kernel))
        self.builds: list[Any] = []
        self.refusals: dict[int, str] = {}
        self.registers: list[int | None] = []

    def load(self, folder: Path, plan: DelaysRecord) -> None:
        """Load all builds of a plan.

        Raises ``NoExperiment`` if the module's text compiles to another kernel than the source.
        """
        own_assembly = str(self.kernel.asm.get("ptx") or self.kernel.asm.get("amdgcn") or "")
        if objection := objection_to("ttgir", own_assembly, assembly_in(folder / plan.plain)):
            raise NoExperiment(objection)
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
            loaded = load(folder / build.binary, self.kernel.src, self.kernel.hash)
        except Exception as error:  # noqa: BLE001 (the driver's errors have no common base)
            return None, f"it does not load: {first_line(error)}"
        room, clean_room = Resources(**resources_of(loaded)).ctas_per_sm, self.clean.ctas_per_sm
        if room != clean_room:
            # If all CTAs run at once, more room on an SM changes nothing.
            slots = _properties().get("multiprocessor_count", 0) * min(room or 0, clean_room or 0)
            if prod(self.grid) > slots:
                return None, f"with the delay, an SM holds {room} of its CTAs instead of {clean_room}"
        return loaded, ""


def are_precise(pairs: Sequence[LaunchPairs], delays: Sequence[tuple[int, int, float]], slope_error: float) -> bool:
    """Return whether all slopes are known to within ``slope_error``; false if there are none.

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


def time_delays(launches: PairedLaunches, plan: DelaysRecord, seconds: float) -> PairedTimes:
    """Time the builds of a plan, which are the variants of ``launches``, for at most ``seconds``.

    Raises as ``PairedLaunches.run`` does.
    """

    def unsettled(pairs: Sequence[LaunchPairs]) -> Collection[int]:
        timed = [(found, build) for found, build in zip(pairs, plan.builds, strict=True) if found.ns]
        delays = [(build.scope, build.delay_cycles, build.whole_share) for _, build in timed]
        return () if are_precise([found for found, _ in timed], delays, SLOPE_ERROR) else range(len(pairs))

    return launches.run(time.monotonic() + seconds, MAX_ROUNDS, unsettled)


def experiment_record(
    dumped: DumpedKernel,
    plan: DelaysRecord,
    target: DelayedKernel,
    timed: PairedTimes,
    device: Device,
    spins: tuple[SpinRecord, ...],
) -> ExperimentRecord:
    """Return the record of an experiment."""
    properties = _properties()
    return ExperimentRecord(
        name=dumped.name,
        variant=dumped.variant,
        pid=os.getpid(),
        scopes=plan.scopes,
        target=dumped.info.target,
        device_name=device.names()[device.current()],
        sm_count=properties.get("multiprocessor_count") or None,
        nominal_clock_hz=plausible_sm_clock_hz(1000 * properties.get("sm_clock_rate", 0)),
        sm_clock_hz=statistics.median(timed.sm_clock_hz) if timed.sm_clock_hz else None,
        l2_bytes=l2_bytes() or None,
        clean=target.clean,
        grid=target.grid,
        arguments=target.arguments,
        delays=tuple(_measured(plan.builds, timed, target)),
        spins=spins,
        warps=plan.warps,
        launches=timed.launches,
        seconds=timed.seconds,
        timed=sum(len(pairs.ns) for pairs in timed.pairs),
        ended=timed.ended,
    )


def spins_of(plan: DelaysRecord, device: Device, stream: int) -> tuple[SpinRecord, ...]:
    """Measure how long the delays of a plan take by themselves; return nothing if that is not possible."""
    counted = device.counted(plan.spin_kernel, len(plan.spin_cycles), stream) if plan.spin_kernel else []
    spins = zip(plan.spin_cycles, counted, strict=False)
    return tuple(SpinRecord(cycles, count / plan.spin_rounds) for cycles, count in spins)


def _properties() -> dict[str, int]:
    """Return Triton's properties of the current device."""
    found: dict[str, int] = driver.active.utils.get_device_properties(driver.active.get_current_device())
    return found


def _rounded(times_ns: Sequence[float]) -> tuple[float, ...]:
    """Round times to 0.1 ns; the timer's steps are many times longer."""
    return tuple(round(ns, 1) for ns in times_ns)


def _measured(
    builds: Sequence[DelayedBuildRecord], timed: PairedTimes, target: DelayedKernel
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
