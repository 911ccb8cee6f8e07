"""Bounds by virtual removal, end to end: from a finding to what a launch without its operations wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_gpu.gpu import REDUCED_NS
from fake_gpu.repeating import OwnProcessHere, own_process_here
from launch_files import edit, reseal
from removal_kernels import DIVIDED, kernel

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.edits import Bound, EditsRecord, MeasuredGain
from kprof_inject.capture.saved_launch import read_saved_launch
from kprof_inject.pipeline import bounds, edit_trials
from kprof_inject.pipeline.edit_trials import TryChoice, try_edits
from kprof_inject.pipeline.removal_choice import removals_for
from kprof_inject.pipeline.saved_launches import adopt
from kprof_inject.report.tried_edits import bound_text
from kprof_inject.runtime.experiments.tasks import Task, TaskResult, TimeRemovals
from kprof_inject.ttgir.nodes import Module
from kprof_inject.workspace import Workspace

pytestmark = pytest.mark.triton


def analysis_with(*rules: str, variant: str = "", lines: tuple[int, ...] = (), **figures: float) -> Any:
    """An analysis with a finding by each rule, on these lines."""
    findings = [Finding(rule, None, 0.25, "text", "advice", dict(figures), lines=lines) for rule in rules]
    return SimpleNamespace(
        launch=SimpleNamespace(kernel=SimpleNamespace(program_variant=variant)),
        duration_ns=20_000,
        findings=findings,
        limit=None,
        slopes=None,
        executed=Unjudged("no capture", ""),
    )


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OwnProcessHere]:
    with own_process_here(tmp_path) as process:
        yield process


@pytest.fixture
def attempt(
    tmp_path: Path, scale_launch: Path, process: OwnProcessHere, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., EditsRecord]:
    asked: list[Task] = []

    def do_here(tasks: Sequence[Task], *_: Any) -> list[TaskResult]:
        asked.extend(tasks)
        _, results = process.do(*tasks)
        return [one or TaskResult(refusal="none") for one in results]

    for module in (bounds, edit_trials):
        monkeypatch.setattr(module, "do_tasks", do_here)
    workspace = Workspace.begin(tmp_path / "ws")

    def tried(*rules: str, **choice: Any) -> EditsRecord:
        saved = adopt(workspace, read_saved_launch(scale_launch), lambda _: None)
        analysis = analysis_with(*rules, variant=saved.record.variant)
        launches = {saved.record.variant: scale_launch}
        (record,) = try_edits(workspace, launches, [analysis], TryChoice(seconds=1.0, **choice), "", lambda _: None)
        assert workspace.edits(record.variant) == record
        assert any(isinstance(task, TimeRemovals) for task in asked) == any(one.gain for one in record.bounds)
        return record

    return tried


def test_the_store_of_an_epilogue(attempt: Callable[..., EditsRecord]) -> None:
    (bound,) = attempt("epilogue").bounds
    assert bound.refusal == ""
    assert bound.gain is not None
    # 4 warps take 20,000 - 400 - 30 ns.
    assert bound.gain.won == pytest.approx(REDUCED_NS / 19_570, abs=1e-4)
    assert bound.predicted == 0.25
    text = bound_text(bound)
    assert text.startswith("removing the store at kernels.py:")
    assert text.endswith(" would win at most 20.4 % ± 0.0 (predicted at most 25.0 %)")


def test_nothing_is_removed_without_a_finding_that_names_it(attempt: Callable[..., EditsRecord]) -> None:
    assert attempt("tail").bounds == ()


def test_it_can_be_left_out(attempt: Callable[..., EditsRecord]) -> None:
    assert attempt("epilogue", bounds=False).bounds == ()


def test_text_that_compiles_to_another_kernel_is_refused(
    attempt: Callable[..., EditsRecord], scale_launch: Path
) -> None:
    (ptx,) = (scale_launch / "build").glob("*.ptx")
    ptx.write_text(ptx.read_text().replace("mul.f32", "add.f32").replace("mul.", "add."))
    reseal(scale_launch)
    (bound,) = attempt("epilogue").bounds
    assert "compiles to a different kernel" in bound.refusal
    assert bound_text(bound).startswith("no bound for the store at kernels.py:")


def test_a_kernel_that_polls_is_left_alone(attempt: Callable[..., EditsRecord], scale_launch: Path) -> None:
    edit(scale_launch, lambda values: values.update(relaunch={"refusal": "", "waits": True}))
    assert attempt("epilogue").bounds == ()


def lines_with(module: Module, *parts: str) -> tuple[int, ...]:
    """The first lines that contain each of these texts."""
    lines = module.text.splitlines()
    return tuple(next(number for number, line in enumerate(lines, 1) if part in line) for part in parts)


def names_of(module: Module, rule: str, *parts: str) -> list[list[str]]:
    analysis = analysis_with(rule, lines=lines_with(module, *parts))
    return [[one.name for one in removal.operations] for removal in removals_for(module, analysis)]


@pytest.mark.parametrize(
    ("rule", "parts", "expected"),
    [
        ("loop-invariant", ["%g =", "%y ="], [["tt.load", "arith.divf"]]),
        ("reduction-in-loop", ["%part ="], [["tt.reduce"]]),
        ("special-functions", ["%y ="], [["arith.divf"]]),
        ("uncoalesced", ["%value =", "tt.store %out_at"], [["tt.load", "tt.store"]]),
        ("epilogue", [], [["tt.store"]]),
        ("exposed-loads", ["%value =", "%g ="], [["scf.for"]]),
        ("not-pipelined", ["%sum ="], [["scf.for"]]),
        ("exposed-loads", ["tt.store %out,"], []),
        ("loop-invariant", ["%places ="], []),
        ("loop-invariant", [], []),
        ("tail", [], []),
    ],
)
def test_operations_that_a_finding_concerns(rule: str, parts: list[str], expected: list[list[str]]) -> None:
    assert names_of(kernel(DIVIDED), rule, *parts) == expected


def test_lines_of_another_text_remove_nothing() -> None:
    assert removals_for(kernel(DIVIDED), analysis_with("loop-invariant", lines=(10_000,))) == []


@pytest.mark.parametrize(
    ("slope", "lines", "expected"),
    [(0.5, (18, 20), 0.2), (-0.1, (18, 20), 0.0), (0.5, (1, 3), None)],
)
def test_a_causal_experiment_gives_the_lower_bound(
    slope: float, lines: tuple[int, int], expected: float | None
) -> None:
    place = SimpleNamespace(
        scope=SimpleNamespace(lines=lines), response=SimpleNamespace(slope=SimpleNamespace(low=slope))
    )
    module = kernel(DIVIDED)
    analysis = analysis_with("loop-invariant", lines=lines_with(module, "%g =", "%y ="), time_share=0.4)
    analysis.slopes = SimpleNamespace(places=[place])
    (removal,) = removals_for(module, analysis)
    assert removal.low == (pytest.approx(expected) if expected is not None else None)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"gain": (0.20, 0.21, 0.22)}, "removing it would win at most 21.0 % ± 1.0"),
        ({"gain": (0.20, 0.21, 0.22), "low": 0.08}, "removing it would win between 8.0 % and 21.0 % ± 1.0"),
        ({"gain": (-0.03, -0.02, -0.01)}, "removing it would win nothing (-2.0 % ± 1.0)"),
        ({"refusal": "the compiler also removed it"}, "no bound for it, because the compiler also removed it"),
    ],
)
def test_bounds_in_words(fields: dict[str, Any], expected: str) -> None:
    if "gain" in fields:
        low, won, high = fields["gain"]
        fields = {**fields, "gain": MeasuredGain(won=won, low=low, high=high, pairs=100)}
    assert bound_text(Bound(removed="it", **fields)) == expected
