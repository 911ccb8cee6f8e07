"""What an experiment does with a kernel, and what it never does to the program."""

from __future__ import annotations

import re
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_gpu.device import FakeDevice
from fake_gpu.gpu import FakeGpu, Launch, with_elements
from fake_gpu.kernels import scale
from fake_runs import FakeRuns
from snapshots import check

from kprof_inject.analysis.causal.slopes import kernel_slopes
from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.pipeline.causal_runs import CausalChoice, prepare
from kprof_inject.pipeline.insertion import insert_kernels, write_insertions
from kprof_inject.runtime.experiments import delayed_kernel, kernel_experiment, relaunch
from kprof_inject.runtime.launch.launch_choice import NO_REPLAYS, REPLAYS, parse_launches
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.workspace import Workspace

CHOICE = CausalChoice(parse_launches("first"), REPLAYS, kernel="scale")


@pytest.fixture(scope="module")
def prepared_once(planned_once: FakeRuns, tmp_path_factory: pytest.TempPathFactory) -> FakeRuns:
    """The kernel ``scale`` with delays before its load and its store. Not to be changed."""
    folder = tmp_path_factory.mktemp("prepared")
    place = shutil.copytree(planned_once.workspace, folder / "workspace", ignore=shutil.ignore_patterns("captures"))
    workspace = Workspace.open(Path(place))
    selectors = parse_selectors(["scale/parts"])
    kernels = insert_kernels(workspace, selectors)
    write_insertions(workspace, kernels)
    prepare(workspace, kernels, selectors, None, CHOICE, lambda _: None)
    return FakeRuns(folder, Path(place))


@pytest.fixture
def runs(prepared_once: FakeRuns, tmp_path: Path) -> FakeRuns:
    return FakeRuns(tmp_path, Path(shutil.copytree(prepared_once.workspace, tmp_path / "workspace")))


def test_all_is_done_at_one_launch_and_the_program_sees_none_of_it(runs: FakeRuns) -> None:
    with runs.delaying() as run:
        run.launch()
        ran = len(run.gpu.ran)
        run.launch(4)
    assert len(run.gpu.ran) == ran + 1, "the experiment is over"
    (found,) = run.experiments()
    assert {one.delay_cycles for one in found.delays} == {0, 64, 192, 576, 1728}
    assert all(len(one.ns) >= 5 for one in found.delays)
    assert found.replayed


def test_an_accumulating_kernel_is_restored_before_each_launch(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    def accumulate(grid: tuple[int, int, int], x: torch.Tensor, out: torch.Tensor, n: int) -> int:
        out += x * n
        return 100

    with runs.delaying(seconds=0.3) as run:
        run.gpu.host_kernels = {**run.gpu.host_kernels, "scale": accumulate}
        run.launch()
    (found,) = run.experiments()
    assert found.launches == 1
    assert not any(one.refusal for one in found.delays)


def test_a_build_that_computes_something_else_is_left_out(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    run_launch = FakeGpu._run

    def disturbed(gpu: FakeGpu, launch: Launch) -> None:
        run_launch(gpu, launch)
        if any(before == "tt.load" and cycles > 500 for before, cycles in launch.kernel.delays):
            with_elements(launch.arguments[1])[0] += 1

    monkeypatch.setattr(FakeGpu, "_run", disturbed)
    with runs.delaying(seconds=0.3) as run:
        run.launch()
    (found,) = run.experiments()
    refused = {(one.delay_cycles, one.refusal) for one in found.delays if one.refusal}
    (reason,) = {reason for _, reason in refused}
    assert {cycles for cycles, _ in refused} == {576, 1728}
    check("runtime/experiments", reason, "results differ")


@pytest.mark.parametrize(("sms", "matters"), [(15, True), (16, False)], ids=["more than a wave", "all at once"])
def test_another_number_of_ctas_on_an_sm_is_another_kernel(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, sms: int, matters: bool
) -> None:
    """Unless all 16 of them run at once in either."""
    resources = delayed_kernel.resources_of

    def fewer(kernel: Any) -> dict[str, Any]:
        found = resources(kernel)
        return {**found, "ctas_per_sm": 1 if "now, 1728;" in kernel.asm["ptx"] else 2}

    monkeypatch.setattr(delayed_kernel, "resources_of", fewer)
    monkeypatch.setattr(delayed_kernel, "_properties", lambda: {"multiprocessor_count": sms})
    with runs.delaying(seconds=0.3) as run:
        run.launch()
    (found,) = run.experiments()
    refused = {one.refusal for one in found.delays} - {""}
    assert len(refused) == int(matters)
    for refusal in refused:
        check("runtime/experiments", refusal, "fewer CTAs on an SM")


def test_text_that_compiles_to_another_kernel_is_not_compared(runs: FakeRuns) -> None:
    plan = Workspace(runs.workspace).delays(Path(next(iter((runs.workspace / "delays/kernels").iterdir()))).name)
    assert plan is not None
    for path in (runs.workspace / "delays/builds" / plan.plain).glob("*.ptx"):
        path.write_text(path.read_text().replace("ret;", "nop;"))
    with runs.delaying() as run:
        run.launch()
    (refusal,) = run.refusals()
    check("runtime/experiments", refusal, "another kernel")
    assert not run.delayed()


@pytest.mark.parametrize(
    ("pattern", "other"), [(r"^\.version .*", ".version 9.9"), (r"\.file(\s+1 )\"", r'.file\1"/elsewhere')]
)
def test_the_assembler_s_version_and_the_source_s_folder_make_no_other_kernel(
    runs: FakeRuns, pattern: str, other: str
) -> None:
    plan = Workspace(runs.workspace).delays(Path(next(iter((runs.workspace / "delays/kernels").iterdir()))).name)
    assert plan is not None
    for path in (runs.workspace / "delays/builds" / plan.plain).glob("*.ptx"):
        text, count = re.subn(pattern, other, path.read_text(), flags=re.MULTILINE)
        assert count == 1
        path.write_text(text)
    with runs.delaying(seconds=0.3) as run:
        run.launch()
    assert run.delayed()


def test_what_cannot_be_launched_again_takes_turns(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    def raw(*_: object) -> None:
        raise relaunch.NotReplayable("its arguments are raw pointers")

    monkeypatch.setattr("kprof_inject.runtime.experiments.kernel_experiment.memory_of", raw)
    with runs.delaying() as run:
        for _ in range(200):
            run.launch()
    assert len(run.gpu.ran) == 200
    assert 90 <= run.delayed() <= 100
    (found,) = run.experiments()
    assert not found.replayed
    assert found.ended == "program"
    text = next((runs.workspace / "kernels").glob("scale-*/kernel.ttgir"))
    slopes = kernel_slopes(
        found, evaluated(text.read_text(), str(text), found.grid, found.arguments, ScopeTable(()))
    ).ranked
    assert [place.scope.name.split("@")[0] for place in slopes] == ["stores", "loads"]
    assert slopes[0].response is not None
    assert slopes[0].response.slope.value == pytest.approx(1, abs=0.05)


def test_too_few_launches_say_nothing(runs: FakeRuns) -> None:
    with runs.delaying(replays=NO_REPLAYS) as run:
        for _ in range(2):
            run.launch()
    assert run.refusals() == ["the program launched it too rarely"]
    assert not run.experiments()


def test_other_work_and_other_threads_take_no_turn(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kprof_inject.runtime.experiments.kernel_experiment.memory_of",
        lambda *_: (_ for _ in ()).throw(relaunch.NotReplayable("no")),
    )
    with runs.delaying() as run:
        for _ in range(30):
            run.launch(3)
            run.launch(4)
        thread = threading.Thread(target=run.launch)
        thread.start()
        thread.join()
    delayed = [launch.arguments[2] for launch in run.gpu.ran if launch.kernel.delays]
    assert set(delayed) == {3}


OF_DEVICE = ["borrowed", "copy", "counted", "digest", "hold", "is_capturing", "names", "sm_clock_hz", "timing_mark"]


@pytest.mark.parametrize(
    ("owner", "name"),
    [*((FakeDevice, name) for name in OF_DEVICE), (delayed_kernel, "load"), (kernel_experiment, "write_experiment")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_fault_of_ours_never_reaches_the_program(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    calls = Counter[str]()

    def fail(*_: Any, **__: Any) -> Any:
        calls["failed"] += 1
        raise ValueError("a fault")

    with runs.delaying(seconds=0.3) as run, monkeypatch.context() as broken:
        broken.setattr(owner, name, fail)
        for _ in range(3):
            run.launch()
    assert calls["failed"] > 0


@pytest.mark.parametrize("name", ["hold", "timing_mark", "current_stream", "sm_clock_hz"])
def test_a_fault_of_ours_in_a_turn_never_reaches_the_program(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    calls = Counter[str]()

    def fail(*_: Any, **__: Any) -> Any:
        calls["failed"] += 1
        raise ValueError("a fault")

    with runs.delaying(replays=NO_REPLAYS) as run:
        for _ in range(10):
            run.launch()
        with monkeypatch.context() as broken:
            broken.setattr(FakeDevice, name, fail)
            for _ in range(40):
                run.launch()
    assert calls["failed"] == 1
    assert run.refusals() == ["the experiment failed: a fault"]


def test_a_kernel_in_graphs_alone_is_not_delayed(runs: FakeRuns) -> None:
    x, out = torch.arange(1, 17, dtype=torch.float32), torch.zeros(16)
    with runs.delaying() as run:
        scale.warmup(x, out, 3, grid=(16,))._init_handles()
        with run.gpu.captured() as graph:
            scale[(16,)](x, out, 3)
        graph.replay()
        assert torch.equal(out, 3 * x)
    check("runtime/experiments", "\n".join(run.refusals()), "graphs alone")


def test_a_delayed_launch_that_fails_is_made_without(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = FakeGpu.launch

    def fails_delayed(gpu: FakeGpu, stream: int, one: Launch) -> None:
        if one.kernel.delays:
            raise RuntimeError("out of resources")
        launch(gpu, stream, one)

    monkeypatch.setattr(FakeGpu, "launch", fails_delayed)
    with runs.delaying(replays=NO_REPLAYS) as run:
        for _ in range(10):
            run.launch()
    assert len(run.gpu.ran) == 10
    (refusal,) = run.refusals()
    assert refusal.endswith(" with a delay: out of resources")


@pytest.mark.parametrize("number", [1, 12, 60])
def test_ctrl_c_in_the_midst_reaches_the_program_with_its_memory_as_it_was(runs: FakeRuns, number: int) -> None:
    class Stopped(Exception):
        pass

    def handler(*_: object) -> None:
        raise Stopped

    x, out = torch.arange(1, 17, dtype=torch.float32), torch.full((16,), 7.0)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with runs.delaying(seconds=30.0) as run, pytest.raises(Stopped):
            scale.warmup(x, out, 3, grid=(16,))._init_handles()
            stop_at_launch(run.gpu, number)
            scale[(16,)](x, out, 3)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert torch.equal(out, torch.full((16,), 7.0))
    assert not run.experiments()


def stop_at_launch(gpu: FakeGpu, number: int) -> None:
    """Have the signal arrive in the midst of that launch. Each launch differs, so that no slope is known before."""
    run: Callable[[Launch], None] = gpu._run
    numbers = iter(range(1 << 30))

    def jittering(launch: Launch) -> None:
        run(launch)
        here = next(numbers)
        gpu.now_ns += 997 * here % 9000
        if here == number:
            signal.raise_signal(signal.SIGALRM)

    gpu._run = jittering  # type: ignore[method-assign]
