"""Replace the counters of a capture's kernels by those in a report of Nsight Compute.

A kernel and a launch in the report match if the name, the grid and the size of a CTA are equal. A kernel of which the
capture has one grid and one variant, and the report one launch, matches by name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.evidence.measured_units import measured_shares
from kprof_inject.capture.counters import DEFAULT_METRICS
from kprof_inject.capture.measurements import CountersRecord, MeasurementsRecord
from kprof_inject.capture.model import Capture, Kernel, Launch
from kprof_inject.capture.nsight_compute import ProfiledLaunch
from kprof_inject.capture.resources import THREADS_PER_WARP
from kprof_inject.errors import KprofError, printable
from kprof_inject.pipeline import Say
from kprof_inject.quantities import counted, listed
from kprof_inject.timeline.choice import Choice

_MAX_NAMES = 10
# Kernels about which a line each is printed.
_MAX_LINES = 20

_Group = tuple[Path, tuple[int, int, int]]
"""Folder of a kernel, and a grid: its launches with this grid have the same counters."""


class _Match(Struct, frozen=True):
    """Launch of the report whose counters a kernel gets, or None."""

    found: ProfiledLaunch | None
    text: str
    """Which of the report's launches it is, in words that follow *counters*; or the reason why there is none."""


def with_report_counters(
    capture: Capture, report: Sequence[ProfiledLaunch], path: Path, choice: Choice, say: Say
) -> Capture:
    """Return the capture with the report's counters, and say for which of the chosen launches.

    ``path`` is the report's. Kernels without a match keep their own counters. Raises ``KprofError`` if none matches.
    """
    launches = capture.launches
    groups = {_group(launch): launch for launch in choice.wanted(launches)}
    matches = {group: _match(launch, launches, report) for group, launch in groups.items()}
    labels = _labels(groups)
    if groups and not any(match.found for match in matches.values()):
        group, match = next(iter(matches.items()))
        raise KprofError(
            f"{path} has no counters for {listed(list(dict.fromkeys(labels.values())), _MAX_NAMES)}: {match.text}",
            hint=f"profile it with: {_command(groups[group].kernel.name)}",
        )
    lines = [f"{labels[group]}: {_outcome(groups[group].kernel, match, path)}" for group, match in matches.items()]
    for line in lines[:_MAX_LINES]:
        say(line)
    if len(lines) > _MAX_LINES:
        say(f"the counters of {len(lines) - _MAX_LINES} more are not listed; --kernel selects some")
    return _replaced(capture, {group: match.found.counters for group, match in matches.items() if match.found})


def _outcome(kernel: Kernel, match: _Match, path: Path) -> str:
    if match.found is not None:
        return f"{counted(len(match.found.counters.metrics), 'metric')} from {path}, {match.text}"
    has_counters = kernel.measurements is not None and kernel.measurements.counters is not None
    return f"{'its own counters' if has_counters else 'no counters'}, because {match.text}"


def _group(launch: Launch) -> _Group:
    return launch.kernel.folder, launch.grid


def _labels(groups: Mapping[_Group, Launch]) -> dict[_Group, str]:
    """Return the kernels' names, with the grid for a name that several groups have."""
    names = [launch.kernel.name for launch in groups.values()]
    return {
        group: name if names.count(name) == 1 else f"{name} with {_shape(launch.grid, _block_threads(launch))}"
        for (group, launch), name in zip(groups.items(), names, strict=True)
    }


def _match(launch: Launch, launches: Sequence[Launch], report: Sequence[ProfiledLaunch]) -> _Match:
    """Find the launch of the report that ran as this one did."""
    named = [profiled for profiled in report if profiled.kernel == launch.kernel.name]
    if not named:
        names = [printable(name) for name in dict.fromkeys(profiled.kernel for profiled in report)]
        return _Match(None, f"the report has only launches of {listed(names, _MAX_NAMES)}")
    others = [other for other in launches if other.kernel.name == launch.kernel.name and _differs(other, launch)]
    fitting = [profiled for profiled in named if _fits(profiled, launch)]
    if not fitting and len(named) == 1 and not others:
        profiled = named[0]
        there, here = _shape(profiled.grid, profiled.block_threads), _shape(launch.grid, _block_threads(launch))
        return _judged(profiled, f"of its only launch, with {there}: in the capture, it has {here}")
    if not fitting:
        shapes = [_shape(profiled.grid, profiled.block_threads) for profiled in named]
        there, here = listed(list(dict.fromkeys(shapes)), _MAX_NAMES), _shape(launch.grid, _block_threads(launch))
        return _Match(None, f"it ran there with {there}, and in the capture with {here}")
    return _of_the_same_build(launch, others, fitting)


def _of_the_same_build(launch: Launch, others: Sequence[Launch], fitting: Sequence[ProfiledLaunch]) -> _Match:
    """Choose among launches of the same shape, which other variants of the kernel may have, too."""
    registers = launch.kernel.clean.registers
    same = [profiled for profiled in fitting if registers is not None and profiled.registers == registers]
    threads = _block_threads(launch)
    rivals = [other for other in others if other.grid == launch.grid and _block_threads(other) == threads]
    if any(other.kernel.clean.registers in (None, registers) for other in rivals) or (rivals and not same):
        variants = len({_variant(other) for other in rivals}) + 1
        shape = _shape(launch.grid, threads)
        return _Match(None, f"it is not known which of {variants} variants with {shape} ran there")
    chosen = same or fitting
    text = "of its only launch" if len(chosen) == 1 else f"of the last of {len(chosen)} launches"
    there = chosen[-1].registers
    if not same and registers is not None and there is not None:
        text += f", of another build: it has {there} registers per thread, not {registers}"
    return _judged(chosen[-1], text)


def _judged(profiled: ProfiledLaunch, text: str) -> _Match:
    """Return the match, or none if the launch's metrics do not show the utilization of any unit."""
    metrics = _metrics_of_units()
    known = measured_shares(profiled.counters)
    if not known:
        return _Match(None, "no metric of it shows how busy a unit is")
    missing = [metric for metric, unit in metrics.items() if unit not in known]
    if not missing:
        return _Match(profiled, text)
    units = ", ".join(dict.fromkeys(metrics[metric] for metric in missing))
    return _Match(profiled, f"{text}; without {units}: for these, add to ncu: --metrics {','.join(missing)}")


def _metrics_of_units() -> dict[str, str]:
    """Return the unit of each metric that is a unit's utilization."""
    return {
        metric: unit
        for metric in DEFAULT_METRICS
        for unit in measured_shares(CountersRecord(metrics={metric: 0.0}, passes=1))
    }


def _differs(other: Launch, launch: Launch) -> bool:
    return _variant(other) != _variant(launch) or other.grid != launch.grid


def _variant(launch: Launch) -> str:
    """Return the key of the kernel's build without records, which processes share."""
    return launch.kernel.program_variant or launch.kernel.variant


def _fits(profiled: ProfiledLaunch, launch: Launch) -> bool:
    """Return whether grid and CTA are equal, as far as both are known."""
    threads = _block_threads(launch)
    if None not in (threads, profiled.block_threads) and threads != profiled.block_threads:
        return False
    if profiled.grid is None or launch.recorded is not None:
        return True
    x, y, z = launch.grid
    x *= launch.kernel.metadata.get("num_ctas", 1)
    # A buffer without a capture has the number of its CTAs, but not their grid.
    return profiled.grid == (x, y, z) or (launch.process is None and math.prod(profiled.grid) == x * y * z)


def _block_threads(launch: Launch) -> int | None:
    """Return the threads of a CTA; None if another profiler recorded it, which does not say."""
    return None if launch.recorded is not None else launch.kernel.num_warps * THREADS_PER_WARP


def _shape(grid: tuple[int, int, int] | None, block_threads: int | None) -> str:
    shown = "an unknown grid" if grid is None else f"grid {grid}"
    return shown if block_threads is None else f"{shown} of {block_threads} threads"


def _command(kernel: str) -> str:
    """Return the command line of Nsight Compute that counts what we count, in the conditions of the program."""
    return (
        f"ncu --kernel-name {quote(kernel)} --clock-control none --cache-control none "
        f"--metrics {','.join(DEFAULT_METRICS)} -o REPORT -- PROG"
    )


def _replaced(capture: Capture, found: Mapping[_Group, CountersRecord]) -> Capture:
    changed: dict[_Group, Kernel] = {}

    def launches_with_counters(launches: Sequence[Launch]) -> Iterator[Launch]:
        for launch in launches:
            group = _group(launch)
            if group in found and group not in changed:
                changed[group] = _with_counters(launch.kernel, found[group])
            yield dataclasses.replace(launch, kernel=changed[group]) if group in changed else launch

    processes = [
        replace(process, launches=tuple(launches_with_counters(process.launches))) for process in capture.processes
    ]
    return replace(capture, processes=tuple(processes))


def _with_counters(kernel: Kernel, counters: CountersRecord) -> Kernel:
    record = kernel.measurements or MeasurementsRecord()
    return replace(kernel, measurements=replace(record, counters=counters, not_counted=""))
