"""The step that runs the program with delays, and what came of it, read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kprof_inject.analysis.causal.slopes import KernelSlopes, kernel_slopes
from kprof_inject.analysis.interpreter.executions import ExecutedKernel, evaluated
from kprof_inject.analysis.summary import summarise
from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.model import Capture
from kprof_inject.capture.schema import SOURCES_FILE, TTGIR_FILE
from kprof_inject.errors import KprofError
from kprof_inject.files import read_text, write_json, write_text
from kprof_inject.pipeline.delay_builds import CausalChoice, recorded_launch
from kprof_inject.pipeline.programs import Say, nothing_happened, say_what_went_wrong
from kprof_inject.runtime.process_report import read_reports
from kprof_inject.runtime.program import ProgramInput, run_program
from kprof_inject.runtime.session import Session
from kprof_inject.workspace import Workspace, read_experiments


def experiment(
    workspace: Workspace, choice: CausalChoice, program: Sequence[str], program_input: ProgramInput, say: Say
) -> tuple[Path, int]:
    """Run the program with its kernels delayed. Returns the folder of what was found out, and the program's exit code.
    Raises ``KprofError`` if nothing was."""
    folder = workspace.new_experiment_folder()
    reports_folder = workspace.new_reports_folder("causal")
    session = Session(
        "causal",
        str(workspace.folder.resolve()),
        str(reports_folder.resolve()),
        kernel=choice.kernel,
        launches=choice.launches.text,
        replays=choice.replays,
        experiment=str(folder.resolve()),
        seconds=choice.seconds,
    )
    try:
        exit_code = run_program(program, session, workspace.new_cache_folder("causal"), program_input)
    finally:
        _complete(folder, workspace)
    reports = read_reports(reports_folder)
    for state in reports.kernels:
        if state.state == "left alone":
            say(f"{state.name} was not delayed: {state.reason}")
    for replay in reports.replays:
        say(f"{replay.kernel} was not replayed, because {replay.refusal}: its own launches are used in turn")
    say_what_went_wrong(reports, say)
    if not any(read_experiments(folder)):
        raise nothing_happened("launched no kernel with delays", exit_code, reports, choice.kernel, program)
    return folder, exit_code


def _complete(folder: Path, workspace: Workspace) -> None:
    """Put beside what was found out what is needed to read it without the workspace."""
    for kernel_folder in folder.iterdir():
        variant = kernel_folder.name
        write_text(kernel_folder / TTGIR_FILE, workspace.kernel(variant).ttgir())
        write_json(kernel_folder / SOURCES_FILE, workspace.kernel_sources(variant))
    workspace.forget_if_empty(folder)


def slopes_in(folder: Path, capture: Capture | None, say: Callable[[str], None]) -> Iterator[KernelSlopes]:
    """What was found out about each kernel. ``capture`` may have launches of these."""
    for kernel_folder, found in read_experiments(folder):
        timeline = recorded_launch(capture, found.variant, found.grid)
        summary = summarise(timeline) if timeline else None
        yield kernel_slopes(found, _executed(kernel_folder, found, say), timeline, summary)


def _executed(folder: Path, found: ExperimentRecord, say: Callable[[str], None]) -> ExecutedKernel | None:
    path = folder / TTGIR_FILE
    try:
        return evaluated(read_text(path), str(path), found.grid, found.arguments)
    except KprofError as error:
        say(f"{found.name}: {error.what}")
        return None
