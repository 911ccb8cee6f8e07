"""Replace a kernel's launcher, so that each launch of the program goes through the kernel's experiment."""

from __future__ import annotations

from typing import Any

from kprof_inject.runtime.experiments.kernel_experiment import KernelExperiment
from kprof_inject.runtime.launch.autotuning import is_benchmarking
from kprof_inject.runtime.launch.loading import StandInLauncher
from kprof_inject.runtime.stack_room import COMPILING


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
                chosen = self._experiment.before_launch(kernel, self._launch, grid, stream, args)
                if chosen is not None:
                    return chosen.launch(stream, launch)
            return launch(None)
