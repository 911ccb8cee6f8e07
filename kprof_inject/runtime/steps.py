"""The dump and run steps as the command line calls them: start the program, then judge what it left.

Imports neither Triton nor torch: both are the program's affair.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.reader import left_out_launches, seen_launches
from kprof_inject.capture.schema import LAUNCHES_FILE
from kprof_inject.errors import KprofError
from kprof_inject.runtime.launching.launches import LaunchChoice
from kprof_inject.runtime.packages import install_command, missing_to_run
from kprof_inject.runtime.program import ProgramInput, is_run_by_us, run_program
from kprof_inject.runtime.session import Reports, Session, read_reports
from kprof_inject.workspace import Workspace


@dataclass(frozen=True, slots=True)
class StepResult:
    """How the program ended and what its processes reported."""

    exit_code: int
    reports: Reports


def dump(workspace: Workspace, kernel_glob: str, program: Sequence[str], program_input: ProgramInput) -> StepResult:
    """Run the program and save its kernels. Raises ``KprofError`` if there are none to save."""
    reports_folder = workspace.new_reports_folder("dump")
    session = Session("dump", str(workspace.folder.resolve()), str(reports_folder.resolve()), kernel=kernel_glob)
    exit_code = run_program(program, session, workspace.new_cache_folder("dump"), program_input)
    reports = read_reports(reports_folder)
    if not workspace.kernels():
        raise _nothing_happened("compiled no kernel", exit_code, reports, kernel_glob, program)
    return StepResult(exit_code, reports)


def run(
    workspace: Workspace,
    capture_folder: Path,
    choice: LaunchChoice,
    mode: Mode,
    program: Sequence[str],
    program_input: ProgramInput,
) -> StepResult:
    """Rerun the program with the planned records and save its launches into ``capture_folder``.

    Raises ``KprofError`` if none was saved.
    """
    reports_folder = workspace.new_reports_folder("run")
    session = Session(
        "run",
        str(workspace.folder.resolve()),
        str(reports_folder.resolve()),
        capture=str(capture_folder.resolve()),
        mode=mode,
        **asdict(choice),
    )
    try:
        exit_code = run_program(program, session, workspace.new_cache_folder("run"), program_input)
    finally:
        workspace.forget_if_empty(capture_folder)
    reports = read_reports(reports_folder)
    if not any(capture_folder.glob(f"*/{LAUNCHES_FILE}")):
        seen, left_out = seen_launches(capture_folder), left_out_launches(capture_folder)
        if left_out:
            reasons = "; ".join(f"{reason} ({count})" for reason, count in left_out.items())
            raise KprofError(f"no launch was saved: {reasons}", exit_code=exit_code or 1)
        if reports.unfinished:
            raise KprofError(
                f"no launch was saved: {'; '.join(map(str, reports.unfinished))}", exit_code=exit_code or 1
            )
        if seen and not exit_code:
            raise KprofError(
                f"none of the {seen} launches with records was kept: --launches {choice.launches}",
                hint="launches are counted from 0 for each variant of a kernel, without those of autotuners",
            )
        raise _nothing_happened("launched no kernel with records", exit_code, reports, choice.kernel, program)
    return StepResult(exit_code, reports)


def _nothing_happened(
    what: str, exit_code: int, reports: Reports, kernel_glob: str, program: Sequence[str]
) -> KprofError:
    """The most telling reason why a step came back with nothing; the program's own failure comes first."""
    crashed = f" (it ended with exit code {exit_code})" if exit_code else ""
    code = exit_code or 1
    if reports.errors:
        return KprofError(
            f"the program {what}: {reports.errors[0]}{crashed}",
            hint="this is a fault of kprof-inject or of the version of Triton; please report it",
            exit_code=code,
        )
    if not reports.joined:
        hint = "it must be Python, and read PYTHONPATH: no -I or -E, no cleaned environment"
        return KprofError(f"no Python process of the program joined{crashed}", hint=hint, exit_code=code)
    left_alone = [state for state in reports.kernels if state.state == "left alone"]
    if left_alone:
        reasons = "; ".join(f"{state.name}: {state.reason}" for state in left_alone)
        return KprofError(
            f"the program {what}{crashed}: {reasons}",
            hint="the kernels ran as they were; take that away, select less, or choose another --buffer",
            exit_code=code,
        )
    if others := sorted({state.name for state in reports.kernels if state.state == "passed over"}):
        return KprofError(
            f"the program {what} called {kernel_glob}{crashed}",
            hint=f"check --kernel: there {'is' if len(others) == 1 else 'are'} {', '.join(others)}",
            exit_code=code,
        )
    if reports.gpu is False:
        return KprofError(
            f"the program {what}{crashed}: torch sees no GPU on this machine",
            hint="run it where there is one; 'kprof-inject demo' works without",
            exit_code=code,
        )
    if exit_code and not reports.triton_versions and is_run_by_us(program) and (missing := missing_to_run()):
        return KprofError(
            f"the program {what}{crashed}: {sys.executable}, which ran it, lacks {' and '.join(missing)}",
            hint=f"{install_command(*missing)}; or name the Python that has them: -- PYTHON {program[0]}",
            exit_code=code,
        )
    if exit_code:
        return KprofError(
            f"the program {what}: it ended with exit code {exit_code}",
            hint="its own messages are above; make it run by itself first",
            exit_code=code,
        )
    if not reports.triton_versions:
        return KprofError("the program never imported Triton", hint="give the program that launches the kernels")
    return KprofError(f"the program {what}", hint="check that it reaches its kernels as it does by itself")
