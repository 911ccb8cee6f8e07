"""Sources of the kernels of an experiment: a program, or a saved launch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from kprof_inject.capture.edits import NO_VALUES, WantedValues
from kprof_inject.capture.model import Capture
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.recording import Recording
from kprof_inject.cli.console import say
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.programs import Program
from kprof_inject.pipeline.saved_launches import adopt, capture_launch, saved_launch_at, saved_launches_of
from kprof_inject.runtime.program import ProgramInput
from kprof_inject.workspace import Workspace


class KernelSource:
    """A program that launches the kernels of a command's experiment, or a saved launch of one."""

    def __init__(self, program: Sequence[str], kernel: str, command: str) -> None:
        """Raise ``KprofError`` if the words after the options of ``command`` are no program and no saved launch."""
        self.saved = saved_launch_at(program, kernel)
        self.program = program
        self.program_input = ProgramInput()
        self.command = command

    def dump(self, workspace: Workspace, kernel: str, values: WantedValues = NO_VALUES) -> int:
        """Dump the kernels, and return the program's exit code. Raises ``KprofError`` if it cannot be run twice."""
        if self.saved is not None:
            adopt(workspace, self.saved)
            return 0
        if self.program_input.refusal:
            again = (
                f"dump it first, and continue with: kprof-inject {self.command} {quote(str(workspace.folder))} -- PROG"
            )
            hint = f"start it with < FILE, or with < /dev/null if it reads nothing; or {again}"
            raise KprofError(f"cannot run the program twice: {self.program_input.refusal}", hint=hint)
        return Program(workspace, self.program, self.program_input, say).dump(kernel, values)

    def record(
        self, workspace: Workspace, recording: Recording, *, instead: str, made_by: str = ""
    ) -> tuple[Capture | None, int]:
        """Launch the kernels with the planned records; return the capture and the program's exit code.

        If nothing was recorded, there is no capture; ``instead`` says what that means. ``made_by`` is as in
        ``Program.run``.
        """
        try:
            if self.saved is not None:
                return read_capture(capture_launch(workspace, self.saved, recording, say, made_by=made_by)), 0
            program = Program(workspace, self.program, self.program_input, say)
            folder, exit_code = program.run(recording, made_by)
        except KprofError as error:
            say(f"no records, {instead}: {error.what}")
            return None, 0
        return read_capture(folder), exit_code

    def launches(self, workspace: Workspace, capture: Capture | None) -> dict[str, Path]:
        """Return the saved launch of each variant."""
        if self.saved is not None:
            return {self.saved.record.variant: self.saved.folder}
        return {} if capture is None else saved_launches_of(workspace, capture.folder)
