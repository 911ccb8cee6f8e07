"""``run --fit``, and what comes after the program, without a GPU.

What the program would have captured is put in place of what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from buffers import Cta, Scope, buffer_words, kernel_json, save_launches, start
from snapshots import check

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.recording import Recording
from kprof_inject.cli.console import say
from kprof_inject.pipeline import programs
from kprof_inject.pipeline.programs import Program
from kprof_inject.runtime.program import ProgramInput
from kprof_inject.runtime.session import Session
from kprof_inject.workspace import Workspace

Fitted = Callable[..., tuple[list[Mode], Path, int]]


@pytest.fixture
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fitted:
    """Runs and fits a program that writes these numbers of records per warp, one in each run.

    Gives the modes of the runs, the resulting capture's folder and the exit code."""

    def call(
        *records: int, max_bytes: int = 1 << 30, exit_code: int | None = None, given: ProgramInput | None = None
    ) -> tuple[list[Mode], Path, int]:
        modes: list[Mode] = []

        def run_program(_: Sequence[str], session: Session, *_rest: object) -> int:
            save(session, records[len(modes)])
            modes.append(session.recording.mode)
            return exit_code or len(modes)

        monkeypatch.setattr(programs, "run_program", run_program)
        recording = Recording(max_bytes=max_bytes)
        program = Program(Workspace.create(tmp_path / "ws"), ("prog.py",), given or ProgramInput(), say)
        folder, ended_with = program.fit_and_run(program.run(recording), recording)
        return modes, folder, ended_with

    return call


@pytest.mark.parametrize(("exit_code", "is_measured"), [(0, True), (1, True), (130, False), (143, False)])
def test_after_an_interrupted_program_no_other_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int, is_measured: bool
) -> None:
    measured: list[Path] = []

    def measure_run(workspace: Workspace, folder: Path, *_: object) -> None:
        measured.append(folder)

    def run_program(_: Sequence[str], session: Session, *_rest: object) -> int:
        save(session, 1)
        return exit_code

    monkeypatch.setattr(programs, "run_program", run_program)
    monkeypatch.setattr(programs, "measure_run", measure_run)
    program = Program(Workspace.create(tmp_path / "ws"), ("prog.py",), ProgramInput(), say)
    folder, ended_with = program.run(Recording())
    assert (measured, ended_with) == ([folder] if is_measured else [], exit_code)


def save(session: Session, records: int) -> None:
    """Save a launch, as a program of the session does whose warps write so many records."""
    written = [start(0, cycles) for cycles in range(records)]
    words = buffer_words([Cta([written])] * 3, session.recording.mode.buffer_bytes // 8 or 16)
    kernel = kernel_json([Scope("s")], words, 1)
    kernel["clean"] = {"shared_bytes": 0}
    kernel["metadata"]["target"] = {"backend": "cuda", "arch": 90}
    save_launches(Path(session.capture), kernel, [words])


def test_a_run_that_lost_nothing_is_the_only_one(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    modes, _, exit_code = fitted(16)
    assert (modes, exit_code) == ([Mode()], 1)
    assert "no record was lost" in capsys.readouterr().err


def test_records_that_were_lost_are_kept_by_a_second_run(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    modes, folder, exit_code = fitted(20, 20)
    assert modes == [Mode(), Mode("shared", 256)]
    assert (folder.parent / folder.name, exit_code) == (max(folder.parent.iterdir()), 2)
    told = capsys.readouterr().err
    assert "12 of 60 records" in told
    assert "--buffer-type shared --buffer-size 256" in told
    check("cli/run_and_fit", told, "a second run")
    assert "lost again" not in told


def test_a_program_that_does_more_each_time_is_told_of(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    modes, _, _ = fitted(20, 50)
    assert len(modes) == 2
    assert "records were lost again" in capsys.readouterr().err


def test_a_buffer_beyond_the_limit_is_not_tried(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    modes, _, exit_code = fitted(20, max_bytes=1000)
    assert (len(modes), exit_code) == (1, 1)
    check("cli/run_and_fit", capsys.readouterr().err, "a buffer beyond the limit")


def test_a_program_whose_input_is_gone_is_not_run_again(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    given = ProgramInput()
    given.refusal = "its stdin is a pipe"
    modes, _, exit_code = fitted(20, given=given)
    assert (len(modes), exit_code) == (1, 1)
    told = capsys.readouterr().err
    check("cli/run_and_fit", told, "its stdin is a pipe")
