"""Conclusions of ``try`` from its processes: one that dies, a win by luck, no time, another kernel."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from launch_files import edit, reseal

from kprof_inject.analysis.program import Report
from kprof_inject.capture.edits import EditsRecord, MeasuredGain
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.saved_launch import read_saved_launch
from kprof_inject.errors import KprofError
from kprof_inject.pipeline import edit_trials
from kprof_inject.pipeline.edit_trials import TryChoice, try_edits
from kprof_inject.pipeline.saved_launches import adopt
from kprof_inject.report.experiments import headline
from kprof_inject.runtime.compiling import builds
from kprof_inject.runtime.compiling.builds import Build, assembly_in, compiled
from kprof_inject.runtime.experiments.edits.kinds import parse_edits
from kprof_inject.runtime.experiments.tasks import TaskResult, TimedBuild, TimedEdits, TimeEdits
from kprof_inject.workspace import Workspace

pytestmark = pytest.mark.triton

Answer = Callable[[Sequence[int]], TaskResult]


def answer_of(won: dict[int, float], warps: Sequence[int]) -> TaskResult:
    """Return the result of a process: the gain of each build, by its number of warps."""
    gains = [MeasuredGain(won=won[one], low=won[one] - 0.001, high=won[one] + 0.001, pairs=100) for one in warps]
    builds = tuple(TimedBuild(gain=gain, results="identical", resources=Resources()) for gain in gains)
    return TaskResult(seconds=1.0, edits=TimedEdits(builds=builds, clean_ns=1000.0, clean=Resources()))


class Processes:
    """In place of processes of ours: ``asked`` has the numbers of warps of the builds of each task."""

    def __init__(self, patch: pytest.MonkeyPatch, answer: Answer) -> None:
        self.asked: list[list[int]] = []
        self._answer = answer
        patch.setattr(edit_trials, "do_tasks", self._do)

    def _do(self, tasks: Sequence[Any], **_: Any) -> list[TaskResult]:
        (task,) = tasks
        assert isinstance(task, TimeEdits)
        warps = [
            int(assembly_in(Path(build)).partition(".reqntid ")[2].split()[0].rstrip(",")) // 32
            for build in task.builds
        ]
        self.asked.append(warps)
        return [self._answer(warps)]


@pytest.fixture
def attempt(tmp_path: Path, scale_launch: Path) -> Callable[..., EditsRecord]:
    workspace = Workspace.begin(tmp_path / "ws")

    def tried(*edits: str, seconds: float = 20.0) -> EditsRecord:
        saved = read_saved_launch(scale_launch)
        adopt(workspace, saved)
        choice = TryChoice(seconds=seconds, edits=tuple(map(parse_edits, edits)))
        (record,) = try_edits(workspace, {saved.record.variant: scale_launch}, Report(()), choice, lambda _: None)
        assert workspace.edits(record.variant) == record
        return record

    return tried


WON = {1: -0.5, 2: -0.2, 8: 0.3, 16: 0.2}


def outcomes(record: EditsRecord) -> dict[str, str]:
    return {one.text: one.outcome for one in record.tried}


@pytest.mark.slow
def test_the_best_is_confirmed_alone_in_another_process(
    attempt: Callable[..., EditsRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = Processes(monkeypatch, lambda warps: answer_of(WON, warps))
    record = attempt()
    assert processes.asked == [[8, 2], [16], [8]], "the neighbours, one further on, and the best once more"
    assert record.winner is not None
    assert record.winner.text == "num_warps=8"
    assert outcomes(record)["num_warps=16"] == "faster"
    assert record.gpu_seconds == 3.0


@pytest.mark.slow
def test_a_win_by_luck_is_none(attempt: Callable[..., EditsRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    lucky = Processes(
        monkeypatch, lambda warps: answer_of({8: 0.002, 16: 0.15} if len(warps) == 1 else {8: 0.2, 16: 0.1}, warps)
    )
    record = attempt("num_warps=8", "num_warps=16")
    assert lucky.asked == [[8, 16], [8], [16]]
    assert outcomes(record) == {"num_warps=8": "no difference", "num_warps=16": "faster"}
    assert record.winner is not None
    assert record.winner.confirmed is not None
    assert record.winner.confirmed.won == 0.15
    assert headline(record).startswith("num_warps=16 makes scale 15.0 % ± 0.1 faster")


@pytest.mark.slow
def test_a_build_that_ends_its_process_is_refused_alone(
    attempt: Callable[..., EditsRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    died = TaskResult(refusal="the process that repeated it ended with signal 9")
    processes = Processes(monkeypatch, lambda warps: died if 2 in warps else answer_of(WON, warps))
    record = attempt("num_warps=8", "num_warps=2")
    assert processes.asked == [[8, 2], [], [8], [2], [8]]
    assert outcomes(record) == {"num_warps=8": "faster", "num_warps=2": "refused"}
    assert record.tried[1].refusal == died.refusal


@pytest.mark.slow
def test_a_kernel_that_cannot_be_repeated_is_not_tried(
    attempt: Callable[..., EditsRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = Processes(monkeypatch, lambda warps: TaskResult(refusal="something else is at its addresses"))
    record = attempt()
    assert processes.asked[1:] == [[]]
    assert headline(record) == "scale was not tried, because something else is at its addresses"


@pytest.mark.slow
def test_what_was_measured_stays_if_a_later_process_fails(
    attempt: Callable[..., EditsRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = TaskResult(refusal="the device has no room for its 1 GB and a copy of it")
    processes = Processes(monkeypatch, lambda warps: failed if warps in ([], [16]) else answer_of(WON, warps))
    record = attempt()
    assert processes.asked == [[8, 2], [16], [], [8]]
    assert record.winner is not None
    assert record.winner.text == "num_warps=8"
    assert [one.refusal for one in record.tried if one.text == "num_warps=16"] == [failed.refusal]


@pytest.mark.slow
def test_without_time_to_confirm_it_nothing_wins(
    attempt: Callable[..., EditsRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(warps: Sequence[int]) -> TaskResult:
        if warps == [8]:
            unmeasured = (TimedBuild(results="identical"),)
            return TaskResult(edits=TimedEdits(builds=unmeasured, clean_ns=1000.0, clean=Resources()))
        return answer_of(WON, warps)

    Processes(monkeypatch, answer)
    record = attempt("num_warps=8", "num_warps=2")
    assert record.winner is None
    assert outcomes(record)["num_warps=8"] == "refused"
    assert "no time to confirm" in record.tried[0].refusal


def test_a_launch_without_its_machine_code_is_not_tried(tmp_path: Path, scale_launch: Path) -> None:
    shutil.rmtree(scale_launch / "build")
    edit(scale_launch, lambda values: [values["files"].pop(name) for name in [*values["files"]] if "build/" in name])
    workspace = Workspace.begin(tmp_path / "ws")
    saved = read_saved_launch(scale_launch)
    adopt(workspace, saved)
    (record,) = try_edits(workspace, {saved.record.variant: scale_launch}, Report(()), TryChoice(), lambda _: None)
    assert headline(record) == "scale was not tried, because its machine code was not saved"


@pytest.mark.slow
def test_edits_that_do_not_fit_in_the_time_are_left_out(
    attempt: Callable[..., EditsRecord], scale_launch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(scale_launch, lambda values: values["clean"].update(times_ns=[1e9]))
    processes = Processes(monkeypatch, lambda warps: answer_of(WON, warps))
    record = attempt("num_warps=8", "num_warps=2", seconds=60.0)
    assert processes.asked[0] == [8]
    assert len(record.tried) == 1


def test_text_that_compiles_to_another_kernel_is_refused(
    attempt: Callable[..., EditsRecord], scale_launch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ptx,) = (scale_launch / "build").glob("*.ptx")
    ptx.write_text(ptx.read_text().replace("mul.f32", "add.f32").replace("mul.", "add."))
    reseal(scale_launch)
    processes = Processes(monkeypatch, lambda warps: answer_of(WON, warps))
    record = attempt("num_warps=8", "program_order=reversed")
    assert processes.asked == []
    assert {one.outcome for one in record.tried} == {"refused"}
    assert all("compiles to a different kernel" in one.refusal for one in record.tried)


def test_kernels_of_other_names_are_not_tried(tmp_path: Path, scale_launch: Path) -> None:
    with pytest.raises(KprofError):
        try_edits(Workspace.begin(tmp_path / "ws"), {"v": scale_launch}, Report(()), TryChoice("nope"), lambda _: None)


@pytest.mark.parametrize(
    ("what", "shown"),
    [("the compiler died (signal SIGSEGV)\n  last words", "the compiler died (signal SIGSEGV)"), ("", "KprofError")],
)
def test_an_edit_that_ends_the_compiler_is_refused(
    attempt: Callable[..., EditsRecord], monkeypatch: pytest.MonkeyPatch, what: str, shown: str
) -> None:
    def failing(builds: Sequence[Build], folder: Path) -> list[KprofError | None]:
        made = list(compiled(builds[:1], folder))
        return [*made, *(KprofError(what) for _ in builds[1:])]

    monkeypatch.setattr(builds, "compiled", failing)
    processes = Processes(monkeypatch, lambda warps: answer_of(WON, warps))
    record = attempt("num_warps=8")
    assert processes.asked == []
    assert record.tried[0].refusal == f"it does not compile: {shown}"
    assert not record.is_answered
