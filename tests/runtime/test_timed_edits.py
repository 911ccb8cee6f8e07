"""Builds of an edited kernel, timed in a process of ours on the fake GPU, where more warps are faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from fake_gpu.gpu import FakeGpu, Launch, with_elements
from fake_gpu.kernels import cycles_of
from fake_gpu.repeating import WorkerHere, worker_here
from launch_files import edit, read_all, reseal

from kprof_inject.capture.edits import Edit
from kprof_inject.capture.saved_launch import read_saved_launch
from kprof_inject.runtime.compiling.builds import Build, compiled
from kprof_inject.runtime.worker import timed_edits
from kprof_inject.runtime.worker.edit import KernelToEdit
from kprof_inject.runtime.worker.edit_kinds import with_options
from kprof_inject.runtime.worker.paired_launches import LaunchPairs
from kprof_inject.runtime.worker.tasks import TimedEdit, TimeEdit
from kprof_inject.runtime.worker.timed_edits import outputs_of

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


@pytest.fixture
def process(tmp_path: Path) -> Iterator[WorkerHere]:
    with worker_here() as process:
        yield process


def timed(
    process: WorkerHere, launch: Path, builds: Sequence[Path | str], tolerance: float | None = None
) -> list[TimedEdit]:
    tasks = [TimeEdit(launch=str(launch), build=str(build), seconds=0.5, tolerance=tolerance) for build in builds]
    results = process.do(*tasks)
    assert [result.refusal for result in results] == [""] * len(builds)
    return [result.edit for result in results if result.edit is not None]


def test_each_build_is_compared_with_the_unchanged_kernel(
    scale_launch: Path, process: WorkerHere, builds: list[Path]
) -> None:
    results = timed(process, scale_launch, builds)
    # 4 warps take 20,000 - 400 - 30 ns.
    expected = [100 * (warps - 4) / 19_570 for warps in WARPS]
    assert [one.build.gain.won for one in results if one.build.gain] == pytest.approx(expected, abs=1e-4)
    assert [one.build.gain.outcome for one in results if one.build.gain] == ["slower", "faster", "faster"]
    assert {one.build.results for one in results} == {"identical"}
    assert [one.clean_ns for one in results] == pytest.approx([19_570] * 3)
    assert [one.build.resources.registers for one in results if one.build.resources] == [32] * 3


def test_the_unchanged_kernel_warms_up_once(scale_launch: Path, process: WorkerHere, builds: list[Path]) -> None:
    timed(process, scale_launch, ["", ""])
    assert len(process.gpu.ran) == 3 + 1


def test_a_gain_below_one_percent_is_none(scale_launch: Path, process: WorkerHere, builds: list[Path]) -> None:
    process.gpu.longer_ns = 30_000
    results = timed(process, scale_launch, builds)
    outcomes = [one.build.gain.outcome for one in results if one.build.gain]
    assert outcomes == ["slower", "no difference", "faster"]


def disturb(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    """Have kernels of 8 warps leave other results."""
    run_launch = FakeGpu._run

    def disturbed(gpu: FakeGpu, launch: Launch) -> None:
        run_launch(gpu, launch)
        if launch.num_warps == 8:
            with_elements(launch.arguments[1])[15] += by

    monkeypatch.setattr(FakeGpu, "_run", disturbed)


def test_other_results_are_refused(
    scale_launch: Path, process: WorkerHere, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(monkeypatch, 1.0)  # of 48
    results = timed(process, scale_launch, builds)
    assert ["its results differ" in one.build.refusal for one in results] == [False, True, False]
    assert results[1].build.gain is None


@pytest.mark.parametrize(("by", "tolerance"), [(0.001, None), (1.0, 0.05)])
def test_results_may_differ_within_the_tolerance(
    scale_launch: Path,
    process: WorkerHere,
    builds: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    by: float,
    tolerance: float | None,
) -> None:
    disturb(monkeypatch, by)
    results = timed(process, scale_launch, builds, tolerance)
    assert [one.build.results for one in results] == ["identical", "within", "identical"]
    assert results[1].build.difference == pytest.approx(by / 48, rel=0.01)


def test_a_build_that_leaves_results_out_is_noticed_although_they_are_there(
    scale_launch: Path, process: WorkerHere, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that launches a kernel repeatedly has its results in memory when a launch begins."""
    with_results = with_results_before(scale_launch)
    assert outputs_of(read_saved_launch(with_results)) == [1]
    host_kernel = process.gpu.host_kernels["scale"]

    def lazy(grid: tuple[int, int, int], x: torch.Tensor, out: torch.Tensor, n: int) -> int:
        return cycles_of(n)

    run_launch = FakeGpu._run

    def disturbed(gpu: FakeGpu, launch: Launch) -> None:
        kernel = lazy if launch.num_warps == 8 else host_kernel
        gpu.host_kernels = {**gpu.host_kernels, "scale": kernel}
        run_launch(gpu, launch)

    monkeypatch.setattr(FakeGpu, "_run", disturbed)
    results = timed(process, with_results, builds)
    assert ["its results differ" in one.build.refusal for one in results] == [False, True, False]


def with_results_before(launch: Path) -> Path:
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
    return launch


def test_a_build_that_does_not_load_is_refused_alone(
    scale_launch: Path, process: WorkerHere, builds: list[Path]
) -> None:
    nothing, other = timed(process, scale_launch, [builds[0] / "nothing", builds[1]])
    assert "it does not load" in nothing.build.refusal
    assert other.build.gain is not None


def test_a_result_of_zero_that_is_left_out_is_noticed(
    scale_launch: Path, process: WorkerHere, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overwritten memory holds nothing that is within the tolerance."""
    data = bytearray(read_all(scale_launch))
    data[:4] = bytes(4)
    (scale_launch / "memory.bin").write_bytes(bytes(data))
    edit(scale_launch, lambda values: [memory.update(before=None, after=None) for memory in values["memory"]])
    reseal(scale_launch)
    run_launch = FakeGpu._run

    def disturbed(gpu: FakeGpu, launch: Launch) -> None:
        out = with_elements(launch.arguments[1])
        before = out[0].clone()
        run_launch(gpu, launch)
        if launch.num_warps == 8:
            out[0] = before

    monkeypatch.setattr(FakeGpu, "_run", disturbed)
    results = timed(process, scale_launch, builds)
    assert ["its results differ" in one.build.refusal for one in results] == [False, True, False]


def test_it_is_known_whether_left_out_results_would_be_noticed(
    scale_launch: Path, process: WorkerHere, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_results = with_results_before(scale_launch)
    (result,) = timed(process, with_results, builds[:1])
    assert result.changes_memory
    monkeypatch.setattr(timed_edits, "outputs_of", lambda saved: [])
    (result,) = timed(process, with_results, builds[:1])
    assert not result.changes_memory


def pairs_of(*times: float) -> LaunchPairs:
    """A hundred pairs, in turn with these times of a launch that takes 100 ns unchanged."""
    pairs = LaunchPairs()
    for number in range(100):
        pairs.add(times[number % len(times)], 100.0, 100.0)
    return pairs


def test_timing_goes_on_while_there_is_no_gain_at_all() -> None:
    """The host may be too slow for the first launches, whose times are then not used."""
    assert timed_edits._unsettled(0.99, [LaunchPairs()]) == [0]
    assert timed_edits._unsettled(0.99, [pairs_of(90.0)]) == []


def test_only_a_build_that_may_be_the_best_is_timed_further() -> None:
    unclear, worse = pairs_of(88.0, 92.0), pairs_of(94.0, 99.0)
    assert timed_edits._unsettled(0.93, [unclear, worse]) == [0]
    assert timed_edits._unsettled(0.87, [unclear, worse]) == []
