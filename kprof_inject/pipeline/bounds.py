"""Virtual removal: compile a kernel without some operations, check what else vanished, and time it on a saved launch.

What that wins is an upper bound of what any change of these operations can win.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.structure.operation_words import words_of
from kprof_inject.analysis.unjudged import evaluating
from kprof_inject.capture.edits import Bound, MeasuredGain
from kprof_inject.capture.saved_launch import SavedLaunch
from kprof_inject.errors import KprofError
from kprof_inject.forks import usable_cores
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.vanished import vanished
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.own_processes import do_tasks
from kprof_inject.pipeline.removal_choice import Removal, removals_for
from kprof_inject.pipeline.removals.kinds import PARTLY_REMOVED, text_without
from kprof_inject.pipeline.removals.replacing import RemovalRefused
from kprof_inject.quantities import counted, listed
from kprof_inject.runtime.compiling.builds import assembly_in, code_lines
from kprof_inject.runtime.compiling.delayed_builds import Build, refusals_of
from kprof_inject.runtime.compiling.disassembly import machine_code_of
from kprof_inject.runtime.experiments.edits.edit import KernelToEdit
from kprof_inject.runtime.experiments.tasks import TimedRemoval, TimeRemovals
from kprof_inject.runtime.faults import first_line
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import Workspace

_MAX_NAMES = 3
_MAX_CHECKS = 4


def measured_bounds(
    workspace: Workspace,
    saved: SavedLaunch,
    kernel: KernelToEdit,
    analysis: LaunchAnalysis,
    executable: str,
    seconds: float,
    say: Say,
) -> tuple[tuple[Bound, ...], float]:
    """Return the bounds of the places that the findings on a launch concern, and the seconds that measuring took.

    ``seconds`` is the limit for that.
    """
    try:
        module = parse(kernel.ttgir, f"{kernel.record.name}.ttgir")
        with evaluating():
            removals = [_Trial(module, one) for one in removals_for(module, analysis)]
    except KprofError as error:
        say(f"{saved.record.name}: no bounds are measured, because {error.what}")
        return (), 0.0
    if not removals:
        return (), 0.0
    say(f"{saved.record.name}: {counted(len(removals), 'place')} to remove virtually")
    _compile(workspace, saved, kernel, [one for one in removals if not one.refusal])
    _check(module, kernel, [one for one in removals if not one.refusal])
    took_s = _time(workspace, saved, executable, seconds, [one for one in removals if not one.refusal])
    return tuple(one.bound for one in removals), took_s


@dataclass(slots=True)
class _Trial:
    """A removal, as far as it has come: of those operations that can be removed."""

    module: Module
    removal: Removal
    operations: list[Operation] = field(init=False)
    text: str = ""
    build: Build | None = None
    gain: MeasuredGain | None = None
    refusal: str = ""

    def __post_init__(self) -> None:
        """Remove what can be removed from the text."""
        refusals = {one: _refusal_of(self.module, [one]) for one in self.removal.operations}
        self.operations = [one for one, refusal in refusals.items() if not refusal]
        if self.operations:
            self.text = text_without(self.module, self.operations)
        else:
            self.operations = list(refusals)
            self.refusal = next(iter(refusals.values()))

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines of the operations, with their regions."""
        return tuple(sorted(self.module.lines_of(self.operations)))

    @property
    def lines_around(self) -> list[int]:
        """The lines of the loops around, which have no work of their own.

        Instructions that the compiler made of operations in several lines of a loop have the loop's line.
        """
        return self.module.line_numbers([owner.start for one in self.operations for owner in one.owners()])

    @property
    def bound(self) -> Bound:
        removal = self.removal
        return Bound(
            removed=listed([_words_of(self.module, one) for one in self.operations], _MAX_NAMES),
            lines=self.lines,
            reason=removal.reason,
            predicted=removal.predicted,
            gain=None if self.refusal else self.gain,
            low=removal.low,
            refusal=self.refusal,
        )


def _words_of(module: Module, operation: Operation) -> str:
    return f"{PARTLY_REMOVED.get(operation.name, '')}{words_of(module, operation)}"


def _refusal_of(module: Module, operations: Sequence[Operation]) -> str:
    try:
        text_without(module, operations)
    except RemovalRefused as error:
        return str(error)
    return ""


def _compile(workspace: Workspace, saved: SavedLaunch, kernel: KernelToEdit, trials: Sequence[_Trial]) -> None:
    if not trials:
        return
    folder = workspace.edited_builds_folder
    plain, builds = Build(kernel.ttgir, kernel.record), [Build(trial.text, kernel.record) for trial in trials]
    refusals = refusals_of(plain, builds, saved.build_folder, folder)
    for trial, build, refusal in zip(trials, builds, refusals, strict=True):
        trial.build, trial.refusal = build, refusal
        if not refusal and _code_of(folder / build.name) == _code_of(folder / plain.name):
            trial.refusal = "the machine code is the same without it"


def _code_of(build: Path) -> list[str]:
    return code_lines(assembly_in(build))


def _check(module: Module, kernel: KernelToEdit, trials: Sequence[_Trial]) -> None:
    """Refuse removals with which the compiler removed something else, too."""
    if not trials:
        return

    def code_of(text: str) -> MachineFunction | str:
        try:
            functions = machine_code_of(parse(text, module.file), kernel.record.options)
        except KprofError as error:
            return f"its machine code cannot be read: {first_line(error)}"
        return functions[0] if len(functions) == 1 else "its machine code has several functions"

    with ThreadPoolExecutor(min(usable_cores(), _MAX_CHECKS)) as pool:
        plain, *codes = pool.map(code_of, [module.text, *(trial.text for trial in trials)])
    for trial, code in zip(trials, codes, strict=True):
        if isinstance(plain, str) or isinstance(code, str):
            trial.refusal = plain if isinstance(plain, str) else str(code)
        elif lost := vanished(plain, code, {*trial.lines, *trial.lines_around}):
            trial.refusal = f"the compiler also removed {lost}"


def _time(workspace: Workspace, saved: SavedLaunch, executable: str, seconds: float, trials: Sequence[_Trial]) -> float:
    """Time removals in turn; each in a process of its own if one of them ends the process that times them all.

    Returns the seconds that this took.
    """
    if not trials:
        return 0.0
    folder = workspace.edited_builds_folder.resolve()
    task = TimeRemovals(
        launch=str(saved.folder.resolve()),
        builds=tuple(str(folder / trial.build.name) for trial in trials if trial.build is not None),
        seconds=seconds,
    )
    (result,) = do_tasks([task], executable, workspace.cache_folder_of_rerun("launches"))
    if result.refusal and len(trials) > 1:
        part = seconds / len(trials)
        return result.seconds + sum(_time(workspace, saved, executable, part, [trial]) for trial in trials)
    timed = result.removals or tuple(TimedRemoval(refusal=result.refusal) for _ in trials)
    for trial, one in zip(trials, timed, strict=True):
        trial.gain, trial.refusal = one.gain, one.refusal
    return result.seconds
