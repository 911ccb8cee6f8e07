"""Delays of a saved launch, timed in a process of ours on the fake GPU: which builds count, which are refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_gpu.gpu import FakeGpu, Launch, with_elements
from fake_gpu.repeating import WorkerHere, worker_here
from snapshots import check

from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.saved_launch import read_saved_launch
from kprof_inject.insertion import insert_kernels, write_insertions
from kprof_inject.pipeline.causal_runs import CausalChoice, prepare
from kprof_inject.pipeline.saved_launches import adopt
from kprof_inject.runtime.worker import delayed_kernel
from kprof_inject.runtime.worker.tasks import TaskResult, TimeDelays
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.workspace import Workspace, read_experiments

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def prepared_once(scale_launch_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with delays before the load and the store of ``scale``. Not to be changed."""
    workspace = Workspace.begin(tmp_path_factory.mktemp("prepared") / "workspace")
    adopt(workspace, read_saved_launch(scale_launch_once))
    selectors = parse_selectors(["scale/parts"])
    kernels = insert_kernels(workspace, selectors)
    write_insertions(workspace, kernels)
    prepare(workspace, kernels, selectors, None, CausalChoice(), lambda _: None)
    return workspace.folder


@pytest.fixture
def workspace(prepared_once: Path, tmp_path: Path) -> Workspace:
    return Workspace(Path(shutil.copytree(prepared_once, tmp_path / "workspace")))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[WorkerHere]:
    with worker_here() as process:
        yield process


def delayed(process: WorkerHere, launch: Path, workspace: Workspace) -> TaskResult:
    (kernel,) = workspace.kernels()
    plan = workspace.delays(kernel.variant)
    assert plan is not None
    task = TimeDelays(
        launch=str(launch),
        plan=plan,
        builds=str(workspace.delayed_builds_folder),
        seconds=0.3,
        folder=str(workspace.folder / "found"),
    )
    (result,) = process.do(task)
    return result


def experiment(process: WorkerHere, launch: Path, workspace: Workspace) -> ExperimentRecord:
    result = delayed(process, launch, workspace)
    assert result.refusal == ""
    ((_, found),) = read_experiments(workspace.folder / "found")
    return found


def test_each_delay_is_timed(scale_launch: Path, process: WorkerHere, workspace: Workspace) -> None:
    found = experiment(process, scale_launch, workspace)
    assert {one.delay_cycles for one in found.delays} == {0, 64, 192, 576, 1728}
    assert all(one.ns for one in found.delays)


def test_an_accumulating_kernel_is_restored_before_each_launch(
    scale_launch: Path, process: WorkerHere, workspace: Workspace
) -> None:
    def accumulate(grid: tuple[int, int, int], x: torch.Tensor, out: torch.Tensor, n: int) -> int:
        out += x * n
        return 100

    process.gpu.host_kernels = {**process.gpu.host_kernels, "scale": accumulate}
    found = experiment(process, scale_launch, workspace)
    assert found.launches == 1
    assert not any(one.refusal for one in found.delays)


def test_a_build_that_computes_something_else_is_left_out(
    scale_launch: Path, process: WorkerHere, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_launch = FakeGpu._run

    def disturbed(gpu: FakeGpu, launch: Launch) -> None:
        run_launch(gpu, launch)
        if any(before == "tt.load" and cycles > 500 for before, cycles in launch.kernel.delays):
            with_elements(launch.arguments[1])[0] += 1

    monkeypatch.setattr(FakeGpu, "_run", disturbed)
    found = experiment(process, scale_launch, workspace)
    refused = {(one.delay_cycles, one.refusal) for one in found.delays if one.refusal}
    (reason,) = {reason for _, reason in refused}
    assert {cycles for cycles, _ in refused} == {576, 1728}
    check("runtime/worker", reason, "results differ")


@pytest.mark.parametrize(("sms", "matters"), [(15, True), (16, False)], ids=["more than a wave", "all at once"])
def test_another_number_of_ctas_on_an_sm_is_another_kernel(
    scale_launch: Path,
    process: WorkerHere,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    sms: int,
    matters: bool,
) -> None:
    """Unless all 16 of them run at once in either."""
    resources = delayed_kernel.resources_of

    def fewer(kernel: Any) -> dict[str, Any]:
        found = resources(kernel)
        return {**found, "ctas_per_sm": 1 if "now, 1728;" in kernel.asm["ptx"] else 2}

    monkeypatch.setattr(delayed_kernel, "resources_of", fewer)
    monkeypatch.setattr(delayed_kernel, "_properties", lambda: {"multiprocessor_count": sms})
    found = experiment(process, scale_launch, workspace)
    refused = {one.refusal for one in found.delays} - {""}
    assert len(refused) == int(matters)
    for refusal in refused:
        check("runtime/worker", refusal, "fewer CTAs on an SM")


def plain_assembly(workspace: Workspace) -> Path:
    """The assembly of the build without a delay."""
    (kernel,) = workspace.kernels()
    plan = workspace.delays(kernel.variant)
    assert plan is not None
    (path,) = (workspace.delayed_builds_folder / plan.plain).glob("*.ptx")
    return path


def test_text_that_compiles_to_another_kernel_is_not_compared(
    scale_launch: Path, process: WorkerHere, workspace: Workspace
) -> None:
    path = plain_assembly(workspace)
    path.write_text(path.read_text().replace("ret;", "nop;"))
    check("runtime/worker", delayed(process, scale_launch, workspace).refusal, "another kernel")
    assert not any(launch.kernel.delays for launch in process.gpu.ran)


@pytest.mark.parametrize(
    ("pattern", "other"), [(r"^\.version .*", ".version 9.9"), (r"\.file(\s+1 )\"", r'.file\1"/elsewhere')]
)
def test_the_assembler_s_version_and_the_source_s_folder_make_no_other_kernel(
    scale_launch: Path, process: WorkerHere, workspace: Workspace, pattern: str, other: str
) -> None:
    path = plain_assembly(workspace)
    text, count = re.subn(pattern, other, path.read_text(), flags=re.MULTILINE)
    assert count == 1
    path.write_text(text)
    assert experiment(process, scale_launch, workspace).delays
