"""Builds of an edited or delayed kernel, timed in a worker on the fake GPU, where more warps are faster."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_gpu.gpu import FakeGpu, Launch, with_elements
from fake_gpu.kernels import cycles_of
from fake_gpu.repeating import WorkerHere
from launch_files import edit, read_all, reseal
from snapshots import check

from kprof_inject.capture.edits import Edit
from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.saved_launch import read_saved_launch
from kprof_inject.insertion import insert_kernels, write_insertions
from kprof_inject.pipeline.causal_runs import CausalChoice, prepare
from kprof_inject.pipeline.saved_launches import adopt
from kprof_inject.runtime.compiling.builds import Build, compiled
from kprof_inject.runtime.worker import timed_edits, worker
from kprof_inject.runtime.worker.edit import KernelToEdit
from kprof_inject.runtime.worker.edit_kinds import with_options
from kprof_inject.runtime.worker.tasks import TaskResult, TimedEdit, TimeDelays, TimeEdit
from kprof_inject.runtime.worker.timed_edits import outputs_of
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.workspace import Workspace, read_experiments

pytestmark = pytest.mark.triton

WARPS = (2, 8, 16)


@pytest.fixture(scope="module")
def builds(scale_launch_once: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """``scale`` with each number of ``WARPS``."""
    saved = read_saved_launch(scale_launch_once)
    (ttir,) = saved.build_folder.glob("*.ttir")
    kernel = KernelToEdit(saved.kernel, "", ttir.read_text())
    edited = [with_options(kernel, [Edit("num_warps", str(warps))]) for warps in WARPS]
    folder = tmp_path_factory.mktemp("builds")
    made = [Build(one.ttir, one.record, "ttir") for one in edited]
    assert list(compiled(made, folder)) == [None] * len(WARPS)
    return [folder / build.name for build in made]


Timed = Callable[..., list[TimedEdit]]


@pytest.fixture
def timed(scale_launch: Path, process: WorkerHere, builds: list[Path]) -> Timed:
    """Time ``builds``, or others, of the saved launch."""

    def time_all(others: Sequence[Path | str] = builds, tolerance: float | None = None) -> list[TimedEdit]:
        launch = str(scale_launch)
        tasks = [TimeEdit(launch=launch, build=str(build), seconds=0.5, tolerance=tolerance) for build in others]
        results = process.do(*tasks)
        assert [result.refusal for result in results] == [""] * len(tasks)
        return [result.edit for result in results if result.edit is not None]

    return time_all


def refused(results: list[TimedEdit]) -> list[bool]:
    return ["its results differ" in one.build.refusal for one in results]


def test_builds_are_compared_with_the_unchanged(timed: Timed) -> None:
    results = timed()
    # 4 warps take 20,000 - 400 - 30 ns.
    expected = [100 * (warps - 4) / 19_570 for warps in WARPS]
    assert [one.build.gain.won for one in results if one.build.gain] == pytest.approx(expected, abs=1e-4)
    assert [one.build.gain.outcome for one in results if one.build.gain] == ["slower", "faster", "faster"]
    assert {one.build.results for one in results} == {"identical"}
    assert [one.clean_ns for one in results] == pytest.approx([19_570] * 3)
    assert [one.build.resources.registers for one in results if one.build.resources] == [32] * 3


def test_the_unchanged_kernel_warms_up_once(timed: Timed, process: WorkerHere) -> None:
    timed(["", ""])
    assert len(process.gpu.ran) == 3 + 1


def test_a_gain_below_one_percent_is_none(timed: Timed, process: WorkerHere) -> None:
    process.gpu.longer_ns = 30_000
    results = timed()
    outcomes = [one.build.gain.outcome for one in results if one.build.gain]
    assert outcomes == ["slower", "no difference", "faster"]


def after_each_run(monkeypatch: pytest.MonkeyPatch, change: Callable[[Launch], None]) -> None:
    run_launch = FakeGpu._run

    def run(gpu: FakeGpu, launch: Launch) -> None:
        run_launch(gpu, launch)
        change(launch)

    monkeypatch.setattr(FakeGpu, "_run", run)


@pytest.mark.parametrize(
    ("by", "tolerance", "result"), [(1.0, None, ""), (0.001, None, "within"), (1.0, 0.05, "within")]
)
def test_results_may_differ_within_the_tolerance(
    timed: Timed, monkeypatch: pytest.MonkeyPatch, by: float, tolerance: float | None, result: str
) -> None:
    def disturb(launch: Launch) -> None:
        if launch.num_warps == 8:
            with_elements(launch.arguments[1])[15] += by  # to 48

    after_each_run(monkeypatch, disturb)
    results = timed(tolerance=tolerance)
    assert refused(results) == [False, not result, False]
    if result:
        assert [one.build.results for one in results] == ["identical", result, "identical"]
        assert results[1].build.difference == pytest.approx(by / 48, rel=0.01)
    else:
        assert results[1].build.gain is None


def test_left_out_results_are_noticed(
    timed: Timed, scale_launch: Path, process: WorkerHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that launches a kernel repeatedly has its results in memory when a launch begins."""
    with_results_before(scale_launch)
    assert outputs_of(read_saved_launch(scale_launch)) == [1]
    host_kernel = process.gpu.host_kernels["scale"]

    def lazy(grid: tuple[int, int, int], x: torch.Tensor, out: torch.Tensor, n: int) -> int:
        return cycles_of(n)

    run_launch = FakeGpu._run

    def disturbed(gpu: FakeGpu, launch: Launch) -> None:
        kernel = lazy if launch.num_warps == 8 else host_kernel
        gpu.host_kernels = {**gpu.host_kernels, "scale": kernel}
        run_launch(gpu, launch)

    monkeypatch.setattr(FakeGpu, "_run", disturbed)
    results = timed()
    assert refused(results) == [False, True, False]


def with_results_before(launch: Path) -> None:
    """Make the results of a launch what its memory has before it."""
    import numpy as np

    data = bytearray(read_all(launch))
    x = np.frombuffer(bytes(data[:64]), dtype=np.float32)
    data[64:128] = (3 * x).astype(np.float32).tobytes()
    path = launch / "memory.bin"
    path.write_bytes(bytes(data))

    def change(values: dict[str, list[dict[str, object]]]) -> None:
        values["memory"][1]["before"] = values["memory"][1]["after"]

    edit(launch, change)
    reseal(launch)


def test_what_does_not_load_is_refused_alone(timed: Timed, builds: list[Path]) -> None:
    nothing, other = timed([builds[0] / "nothing", builds[1]])
    assert "it does not load" in nothing.build.refusal
    assert other.build.gain is not None


def test_it_is_known_if_that_is_noticed(
    timed: Timed, scale_launch: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_results_before(scale_launch)
    (result,) = timed(builds[:1])
    assert result.changes_memory
    monkeypatch.setattr(timed_edits, "outputs_of", lambda saved: [])
    (result,) = timed(builds[:1])
    assert not result.changes_memory


# Delays of a saved launch, timed in a process of ours on the fake GPU


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


Delays = Callable[[], TaskResult]


@pytest.fixture
def time_delays(scale_launch: Path, process: WorkerHere, workspace: Workspace) -> Delays:
    """Time the delays of the workspace."""

    def task_result() -> TaskResult:
        (kernel,) = workspace.kernels()
        plan = workspace.delays(kernel.variant)
        assert plan is not None
        builds, folder = str(workspace.delayed_builds_folder), str(workspace.folder / "found")
        (result,) = process.do(
            TimeDelays(launch=str(scale_launch), plan=plan, builds=builds, seconds=0.3, folder=folder)
        )
        return result

    return task_result


def experiment(time_delays: Delays, workspace: Workspace) -> ExperimentRecord:
    assert time_delays().refusal == ""
    ((_, found),) = read_experiments(workspace.folder / "found")
    return found


def test_each_delay_is_timed(time_delays: Delays, workspace: Workspace) -> None:
    found = experiment(time_delays, workspace)
    assert {one.delay_cycles for one in found.delays} == {0, 64, 192, 576, 1728}
    assert all(one.ns for one in found.delays)


def test_accumulating_kernels_are_restored(time_delays: Delays, workspace: Workspace, process: WorkerHere) -> None:
    def accumulate(grid: tuple[int, int, int], x: torch.Tensor, out: torch.Tensor, n: int) -> int:
        out += x * n
        return 100

    process.gpu.host_kernels = {**process.gpu.host_kernels, "scale": accumulate}
    found = experiment(time_delays, workspace)
    assert found.launches == 1
    assert not any(one.refusal for one in found.delays)


def test_other_results_are_left_out(time_delays: Delays, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def disturb(launch: Launch) -> None:
        if any(before == "tt.load" and cycles > 500 for before, cycles in launch.kernel.delays):
            with_elements(launch.arguments[1])[0] += 1

    after_each_run(monkeypatch, disturb)
    found = experiment(time_delays, workspace)
    refused = {(one.delay_cycles, one.refusal) for one in found.delays if one.refusal}
    (reason,) = {reason for _, reason in refused}
    assert {cycles for cycles, _ in refused} == {576, 1728}
    check("runtime/worker", reason, "results differ")


@pytest.mark.parametrize(("sms", "matters"), [(15, True), (16, False)], ids=["more than a wave", "all at once"])
def test_another_number_of_ctas_is_another_kernel(
    time_delays: Delays, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, sms: int, matters: bool
) -> None:
    """Unless all 16 of them run at once in either."""
    resources = worker.resources_of

    def fewer(kernel: Any) -> dict[str, Any]:
        found = resources(kernel)
        return {**found, "ctas_per_sm": 1 if "now, 1728;" in kernel.asm["ptx"] else 2}

    monkeypatch.setattr(worker, "resources_of", fewer)
    monkeypatch.setattr(worker, "_properties", lambda: {"multiprocessor_count": sms})
    found = experiment(time_delays, workspace)
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


def test_text_of_another_kernel_is_not_compared(time_delays: Delays, workspace: Workspace, process: WorkerHere) -> None:
    path = plain_assembly(workspace)
    path.write_text(path.read_text().replace("ret;", "nop;"))
    check("runtime/worker", time_delays().refusal, "another kernel")
    assert not any(launch.kernel.delays for launch in process.gpu.ran)


@pytest.mark.parametrize(
    ("pattern", "other"), [(r"^\.version .*", ".version 9.9"), (r"\.file(\s+1 )\"", r'.file\1"/elsewhere')]
)
def test_version_and_folder_do_not_count(time_delays: Delays, workspace: Workspace, pattern: str, other: str) -> None:
    path = plain_assembly(workspace)
    text, count = re.subn(pattern, other, path.read_text(), flags=re.MULTILINE)
    assert count == 1
    path.write_text(text)
    assert experiment(time_delays, workspace).delays
