"""A kernel with its builds with delays: time a launch with each, until every slope is precise, and record that."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Collection, Sequence
from math import prod
from pathlib import Path
from typing import Any

from triton.runtime.driver import driver

from kprof_inject.capture.experiments import (
    DelayedBuildRecord,
    ExperimentRecord,
    MeasuredDelayRecord,
    SpinRecord,
)
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.schema import Grid, plausible_sm_clock_hz
from kprof_inject.runtime.compiling.builds import assembly_in, load, objection_to
from kprof_inject.runtime.compiling.recording_build import ArgumentKinds
from kprof_inject.runtime.devices.cuda_driver import l2_bytes, resources_of
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.worker.loaded_launch import LoadedLaunch, NotReplayable
from kprof_inject.runtime.worker.paired_launches import LaunchPairs, PairedLaunches, Watchdog
from kprof_inject.runtime.worker.tasks import TimeDelays

SLOPE_ERROR = 0.03  # an experiment ends early when half the interval of every slope is below this
MAX_ROUNDS = 2000  # more rounds do not help: a slope that is imprecise after these is so for other reasons


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
