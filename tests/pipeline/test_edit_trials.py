"""Conclusions of ``try`` from its processes: one that dies or hangs, a win by luck, no time, another kernel."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing import Pipe
from pathlib import Path

import pytest
from launch_files import edit, reseal
from programs.child import python_path

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
from kprof_inject.runtime.compiling.builds import Build, assembly_in
from kprof_inject.runtime.worker.edit_kinds import parse_edits
from kprof_inject.runtime.worker.tasks import TaskResult, TimedBuild, TimedEdit, TimeEdit
from kprof_inject.workspace import Workspace

pytestmark = pytest.mark.triton
compile_build = builds._compile_build

Answer = Callable[[int], TaskResult | None]
Attempt = Callable[..., EditsRecord]
Workers = Callable[[Answer], "Processes"]


def answer_of(won: Mapping[int, float], warps: int) -> TaskResult:
    """Return the result of a process for a build with this number of warps; 0 is the unchanged kernel."""
    gain = MeasuredGain(won=won[warps], low=won[warps] - 0.001, high=won[warps] + 0.001, pairs=100) if warps else None
    build = TimedBuild(gain=gain, results="identical", resources=Resources())
    return TaskResult(seconds=1.0, edit=TimedEdit(build=build, clean_ns=1000.0, clean=Resources()))


class Processes:
    """In place of workers: ``asked`` has the number of warps of the build of each task, by process."""

    def __init__(self, patch: pytest.MonkeyPatch, answer: Answer) -> None:
        self.asked: list[list[int]] = []
        self._answer = answer
        self._is_fresh = True
        self.until_s = math.inf
        self.connection, self._other = Pipe()
        patch.setattr(edit_trials, "WorkerProcess", lambda **_: self)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def is_due(self) -> bool:
        return self.connection.poll() or time.monotonic() > self.until_s

    def stop(self) -> None:
        self._is_fresh = True

    def begin_task(self, task: TimeEdit, time_limit_s: float) -> None:
        self.until_s = time.monotonic() + time_limit_s
        code = assembly_in(Path(task.build)) if task.build else ""
        warps = int(code.partition(".reqntid ")[2].split()[0].rstrip(",")) // 32 if code else 0
        if self._is_fresh:
            self.asked.append([])
        self._is_fresh = False
        self.asked[-1].append(warps)
        if (answer := self._answer(warps)) is not None:
            self._other.send(answer)

    def result(self) -> TaskResult:
        if not self.connection.poll(max(self.until_s - time.monotonic(), 0)):
            return TaskResult(refusal="it took longer than 5 s")
        answer: TaskResult = self.connection.recv()
        return answer

    def do(self, task: TimeEdit, time_limit_s: float) -> TaskResult:
        self.begin_task(task, time_limit_s)
        return self.result()


@pytest.fixture
def attempt(tmp_path: Path, scale_launch: Path) -> Attempt:
    workspace = Workspace.begin(tmp_path / "ws")

    def tried(*edits: str, seconds: float = 120.0, said: Callable[[str], None] = lambda _: None) -> EditsRecord:
        saved = read_saved_launch(scale_launch)
        adopt(workspace, saved)
        choice = TryChoice(seconds=seconds, edits=tuple(map(parse_edits, edits)))
        (record,) = try_edits(workspace, {saved.record.variant: scale_launch}, Report(()), choice, said)
        assert workspace.edits(record.variant) == record
        return record

    return tried


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], Processes]:
    return partial(Processes, monkeypatch)


WON = {1: -0.5, 2: -0.2, 8: 0.3, 16: 0.2}


def outcomes(record: EditsRecord) -> dict[str, str]:
    return {one.text: one.outcome for one in record.tried}


@pytest.mark.slow
def test_the_best_is_confirmed_alone_in_another_process(attempt: Attempt, workers: Workers) -> None:
    processes = workers(lambda warps: answer_of(WON, warps))
    record = attempt()
    assert processes.asked == [[0, 8, 2, 16], [8]], "the neighbours, one further on, and the best once more"
    assert record.winner and record.winner.text == "num_warps=8"
    assert outcomes(record)["num_warps=16"] == "faster"
    assert record.gpu_seconds == 5.0
    assert record.ended == "all"


@pytest.mark.slow
def test_a_win_by_luck_is_none(attempt: Attempt, workers: Workers) -> None:
    def answer(warps: int) -> TaskResult:
        return answer_of({8: 0.2, 16: 0.1} if len(lucky.asked) == 1 else {8: 0.002, 16: 0.15}, warps)

    lucky = workers(answer)
    record = attempt("num_warps=8", "num_warps=16")
    assert lucky.asked == [[0, 8, 16], [8], [16]]
    assert outcomes(record) == {"num_warps=8": "no difference", "num_warps=16": "faster"}
    assert record.winner and record.winner.confirmed and record.winner.confirmed.won == 0.15
    assert headline(record).startswith("num_warps=16 makes scale 15.0 % ± 0.1 faster")


@pytest.mark.slow
def test_a_build_that_ends_its_process_is_refused_alone(attempt: Attempt, workers: Workers) -> None:
    died = TaskResult(refusal="the process that repeated it ended with signal SIGKILL")
    workers(lambda warps: died if warps == 2 else answer_of(WON, warps))
    said: list[str] = []
    record = attempt("num_warps=2", "num_warps=8", said=said.append)
    assert outcomes(record) == {"num_warps=8": "faster", "num_warps=2": "refused"}
    assert record.tried[0].refusal == died.refusal
    assert said[-4:] == [
        "scale: 2 edits in 120 s, most promising first: num_warps=2; num_warps=8",
        f"num_warps=2 is refused: {died.refusal}",
        "num_warps=8 won 30.0 % ± 0.1, results identical",
        "in a second process, num_warps=8 won 30.0 % ± 0.1, results identical",
    ]


def test_a_kernel_that_cannot_be_repeated_is_not_tried(attempt: Attempt, workers: Workers) -> None:
    processes = workers(lambda warps: TaskResult(refusal="something else is at its addresses"))
    record = attempt()
    assert processes.asked == [[0]]
    assert headline(record) == "scale was not tried, because something else is at its addresses"


# The limit of time


@pytest.mark.slow
def test_the_best_so_far_when_time_is_over(attempt: Attempt, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is busy with the second edit, or hangs in it."""
    monkeypatch.setattr(edit_trials, "_MIN_LIMIT_S", 60.0)
    workers(lambda warps: None if warps == 2 else answer_of(WON, warps))
    begun = time.monotonic()
    record = attempt("num_warps=8", "num_warps=2", "num_warps=16", seconds=6.0)
    assert 4 < time.monotonic() - begun < 10
    assert record.ended == "time"
    assert [one.outcome for one in record.tried] == ["faster", "not measured", "not measured"]
    assert [one.refusal for one in record.tried[1:]] == ["the 6 s were over while it was timed", "the 6 s were over"]
    assert record.winner and record.winner.text == "num_warps=8"


@pytest.mark.slow
def test_an_edit_that_hangs_is_given_up(attempt: Attempt, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit_trials, "_MIN_LIMIT_S", 3.0)
    workers(lambda warps: None if warps == 2 else answer_of(WON, warps))
    record = attempt("num_warps=2", "num_warps=8", seconds=12.0)
    assert outcomes(record) == {"num_warps=2": "refused", "num_warps=8": "faster"}
    assert record.ended == "all"


@pytest.mark.slow
def test_without_time_to_confirm_it_the_best_says_so(attempt: Attempt, workers: Workers) -> None:
    processes = workers(lambda warps: None if len(processes.asked) == 2 else answer_of(WON, warps))
    record = attempt("num_warps=8", seconds=6.0)
    assert processes.asked == [[0, 8], [8]]
    assert record.winner and record.winner.confirmed is None
    assert record.ended == "time"
    assert headline(record) == (
        "num_warps=8 makes scale 30.0 % ± 0.1 faster: 1.00 µs → 700 ns (no time for a second process to confirm it)"
    )


def test_without_time_for_the_unchanged_kernel_nothing_is_measured(attempt: Attempt, workers: Workers) -> None:
    workers(lambda _: None)
    record = attempt("num_warps=8", seconds=0.2)
    assert not record.is_answered
    assert headline(record).startswith("no edit of scale was measured, because the 0.2 s were over")


def slow_with_two_warps(build: Build, folder: Path, written: Path) -> None:
    """Compile a build in a child process, which imports this module."""
    if build.kernel.options["num_warps"] == 2:
        time.sleep(600)
    compile_build(build, folder, written)


@pytest.fixture
def slow_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the compiler never come back with 2 warps."""
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", python_path(tests / "pipeline", tests))
    monkeypatch.setattr(builds, "_compile_build", slow_with_two_warps)


@pytest.mark.slow
@pytest.mark.usefixtures("slow_compiler")
def test_one_long_compilation_does_not_take_all(attempt: Attempt, workers: Workers) -> None:
    workers(lambda warps: answer_of(WON, warps))
    said: list[str] = []
    record = attempt("num_warps=2", "num_warps=8", seconds=24.0, said=said.append)
    assert outcomes(record) == {"num_warps=2": "not measured", "num_warps=8": "faster"}
    assert record.tried[0].refusal.startswith("it did not compile within 6")
    assert record.ended == "all"
    assert f"num_warps=2 is not measured: {record.tried[0].refusal}" in said


def test_a_launch_without_its_machine_code_is_not_tried(attempt: Attempt, scale_launch: Path) -> None:
    shutil.rmtree(scale_launch / "build")
    edit(scale_launch, lambda values: [values["files"].pop(name) for name in [*values["files"]] if "build/" in name])
    assert headline(attempt()) == "scale was not tried, because its machine code was not saved"


@pytest.mark.slow
def test_a_launch_that_is_too_long_for_the_time_is_not_timed(attempt: Attempt, workers: Workers) -> None:
    def answer(warps: int) -> TaskResult:
        assert warps == 0
        return TaskResult(edit=TimedEdit(clean_ns=3e9, clean=Resources()))

    workers(answer)
    record = attempt("num_warps=8", seconds=60.0)
    assert (record.tried[0].outcome, record.tried[0].refusal) == ("not measured", "12 pairs of launches take 72 s")


def test_text_that_makes_another_kernel_is_refused(attempt: Attempt, scale_launch: Path, workers: Workers) -> None:
    (ptx,) = (scale_launch / "build").glob("*.ptx")
    ptx.write_text(ptx.read_text().replace("mul.f32", "add.f32").replace("mul.", "add."))
    reseal(scale_launch)
    processes = workers(lambda warps: answer_of(WON, warps))
    record = attempt("num_warps=8", "program_order=reversed")
    assert processes.asked == [[0]]
    assert {one.outcome for one in record.tried} == {"refused"}
    assert all("compiles to a different kernel" in one.refusal for one in record.tried)


def test_kernels_of_other_names_are_not_tried(tmp_path: Path, scale_launch: Path) -> None:
    with pytest.raises(KprofError):
        try_edits(Workspace.begin(tmp_path / "ws"), {"v": scale_launch}, Report(()), TryChoice("nope"), lambda _: None)
