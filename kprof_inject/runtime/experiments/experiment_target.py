"""The target of an experiment: a launch of the program, and the builds that may replace its kernel."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from math import prod
from pathlib import Path
from typing import Any

from kprof_inject.capture.experiments import DelayedBuildRecord, DelaysRecord
from kprof_inject.capture.schema import Resources
from kprof_inject.runtime.compiling.delayed_builds import assembly_in, load
from kprof_inject.runtime.devices.cuda_driver import resources_of
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.arguments import HOOK_ARGUMENTS, ArgumentKinds
from kprof_inject.runtime.launch.recorded_launch import Grid
from kprof_inject.runtime.replay.relaunch import Launchable

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
        sm_count: int,
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
        self._sm_count = sm_count

    def is_like(self, grid: Grid, args: tuple[Any, ...]) -> bool:
        """Return whether another launch has the same grid and numbers, and so probably does the same work."""
        return grid == self.grid and _numbers(args) == self._numbers

    def load(self, folder: Path, plan: DelaysRecord) -> None:
        """Load all builds of a plan.

        Raises ``NoExperiment`` if the module's text compiles to another kernel than the source.
        """
        if difference := _difference(_assembly_of(self.kernel), assembly_in(folder / plan.plain)):
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
            return None, f"an SM holds {room} of its CTAs instead of {clean_room}"
        return loaded, ""

    def _fits(self, ctas_per_sm: int) -> bool:
        """Return whether all CTAs run at once with this many on an SM, so that more room changes nothing."""
        return prod(self.grid) <= self._sm_count * ctas_per_sm


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


def _assembly_of(kernel: Any) -> str:
    return str(kernel.asm.get("ptx") or kernel.asm.get("amdgcn") or "")
