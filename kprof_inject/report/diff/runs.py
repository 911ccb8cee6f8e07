"""What is compared: the launches of one variant of a kernel with one grid, of one side."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.reader import Kernel, Launch
from kprof_inject.timeline.overhead import usable_times
from kprof_inject.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True, eq=False)
class KernelRuns:
    """``name`` is the kernel's, or what it is called on the other side; empty if nothing tells (a Proton buffer).
    ``timelines``, at least one, are in the order of the launches."""

    name: str
    timelines: tuple[Timeline, ...]

    @property
    def kernel(self) -> Kernel:
        return self.timelines[0].launch.kernel

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.timelines[0].launch.grid

    def clean_times_ns(self) -> list[NDArray[np.float64]]:
        """The times without records, an array for each process that took some. Several captures may have been made with
        those of one."""
        kernels = [timeline.launch.kernel for timeline in self.timelines]
        samples = [usable_times(times) for times in dict.fromkeys(kernel.clean.times_ns or () for kernel in kernels)]
        return [sample for sample in samples if sample.size]


def runs_of(timelines: Iterable[Timeline], renamed: Mapping[str, str]) -> list[KernelRuns]:
    """The launches of one side by kernel, variant and grid, in the order of the first of each. ``renamed`` are names of
    kernels, or of variants, with what they are called on the other side."""
    found: dict[Hashable, list[Timeline]] = {}
    for timeline in timelines:
        launch = timeline.launch
        found.setdefault((launch.kernel.variant, launch.grid, timeline.table), []).append(timeline)
    return [KernelRuns(_name(runs[0].launch, renamed), tuple(runs)) for runs in found.values()]


def process_of(launch: Launch) -> Hashable:
    """Launches for which this is equal were made by the same process of the same capture, on one device."""
    return launch.kernel.folder, launch.device


def _name(launch: Launch, renamed: Mapping[str, str]) -> str:
    kernel = launch.kernel
    # A kernel of which there are no files is called what its Proton buffer is.
    own = kernel.name if kernel.folder.is_dir() else ""
    return renamed.get(kernel.variant, renamed.get(kernel.name, own))
