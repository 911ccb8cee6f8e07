"""Sources of the kernels of an experiment: a program, or a saved launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from kprof_inject.capture.edits import NO_VALUES, WantedValues
from kprof_inject.capture.model import Capture
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.recording import Recording
from kprof_inject.capture.saved_launch import SavedLaunch
from kprof_inject.cli.console import say
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.programs import Program
from kprof_inject.pipeline.saved_launches import adopt, capture_launch, saved_launch_at, saved_launches_of
from kprof_inject.runtime.program import ProgramInput
from kprof_inject.workspace import Workspace


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A program that launches the kernels of a command's experiment, or a saved launch of one."""

    program: Sequence[str]
    program_input: ProgramInput
    saved: SavedLaunch | None
    command: str

    @classmethod
    def of(cls, words: Sequence[str], kernel: str, command: str) -> KernelSource:
        """Return the source that the words after the options of ``command`` name.

        Raises ``KprofError`` if it is neither a program nor a saved launch.
        """
        saved = saved_launch_at(words, kernel)
        return cls(words, ProgramInput(), saved, command)

    def dump(self, workspace: Workspace, kernel: str, values: WantedValues = NO_VALUES) -> int:
        """Dump the kernels, and return the program's exit code. Raises ``KprofError`` if it cannot be run twice.

        ``values`` are as in ``Program.dump``; a saved launch has those that were saved with it.
        """
        if self.saved is not None:
            adopt(workspace, self.saved)
            return 0
        if self.program_input.refusal:
            again = f"kprof-inject {self.command} {quote(str(workspace.folder))} -- PROG"
            raise KprofError(
                f"cannot run the program twice: {self.program_input.refusal}",
                hint="start it with < FILE, or with < /dev/null if it reads nothing; or dump it first, and continue "
                f"with: {again}",
            )
        return Program(workspace, self.program, self.program_input, say).dump(kernel, values)

    def record(
        self, workspace: Workspace, recording: Recording, *, instead: str, made_by: str = ""
    ) -> tuple[Capture | None, int]:
        """Launch the kernels with the planned records; return the capture and the program's exit code.

        The capture is None if nothing was recorded; ``instead`` says what that means, in words that follow *so*.
        ``made_by`` is as in ``Program.run``.
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
