"""``run`` on the fake GPU: what a record costs is measured once, kept for the user, and saved in the capture."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import triton
from fake_gpu.kernels import RECORD_CYCLES
from fake_runs import LAUNCHES, FakeRuns
from programs.child import Ended, fake_gpu_path
from replacing import replace
from snapshots import check
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kprof_inject.calibration_process import BUFFER_BYTES
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.record_costs import CostKey, RecordCost, read_costs
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.insertion import insert_module, view_of
from kprof_inject.runtime import calibration_kernel
from kprof_inject.runtime.compiling.instrumentation import lower
from kprof_inject.runtime.versions import installed_version
from kprof_inject.workspace import Workspace

TESTS = LAUNCHES.parents[1]
MEASURING = "kprof-inject: measuring the record cost"
MEASURED = RecordCost(float(RECORD_CYCLES), float(RECORD_CYCLES), 0.0, "measured")
EXIT_CODE = 3
OPTIONS = {"num_warps": calibration_kernel.NUM_WARPS}
RECORD_BYTES = 8


@pytest.fixture
def runs(fake_runs: FakeRuns) -> FakeRuns:
    """A workspace in which nothing was measured yet."""
    shutil.rmtree(Workspace(fake_runs.workspace).calibration_folder)
    return fake_runs


def in_cache(runs: FakeRuns) -> Path:
    """Return the file with the costs in the cache of the user."""
    return runs.folder / "home" / ".cache" / "kprof-inject" / "record_costs.json"


def run(runs: FakeRuns, *options: str, gpu: bool = True) -> Ended:
    """A run of the program that ends with ``EXIT_CODE``; after it there is the fake GPU, or none."""
    path = fake_gpu_path(*([TESTS / "fake_gpu" / "startup"] if gpu else []))
    ended = replace(runs, path=path).kprof("run", runs.workspace, "--no-replay", *options, LAUNCHES, "exit")
    assert ended.exit_code == EXIT_CODE, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended


def said(ended: Ended) -> list[str]:
    """What was said after the program's end, but for what comes next."""
    *lines, following = ended.stderr.splitlines()
    assert following.startswith("kprof-inject: next: kprof-inject report ")
    (captured,) = [number for number, line in enumerate(lines) if "captured to" in line]
    # Each measurement prints one line.
    return [MEASURING if line.startswith(f"{MEASURING} on Fake H200, ") else line for line in lines[captured + 1 :]]


def costs(runs: FakeRuns) -> set[RecordCost | None]:
    """Those of all kernels of the last capture."""
    return {launch.kernel.record_cost for launch in read_capture(runs.capture).launches}


def saved(runs: FakeRuns) -> dict[str, Any]:
    values = json.loads((runs.capture / "record_costs.json").read_text())
    return {name: value for name, value in values.items() if name != "crc32"}  # which is of the run, too


def test_a_record_s_cost_is_measured_once_for_a_user_and_mode(runs: FakeRuns) -> None:
    folder, path = Workspace(runs.workspace).calibration_folder, in_cache(runs)
    # It tries whatever is there.
    path.parent.mkdir(parents=True)
    path.write_text('{"costs": [{}]}')
    assert said(run(runs)) == [MEASURING]
    assert costs(runs) == {MEASURED}
    assert len(read_costs(path)) == 1
    first = saved(runs)

    shutil.rmtree(folder / "run")
    assert said(run(runs, "--buffer-bytes", "4096")) == []
    assert (costs(runs), saved(runs)) == ({MEASURED}, first)
    assert not (folder / "run").exists()

    assert said(run(runs, "--clock", "32", "--warps", "1,3", "--sched-stores")) == [MEASURING]
    assert costs(runs) == {MEASURED}
    mode = Mode("global", clock_bits=32, warps=(0,), sched_stores=True)
    keys = [CostKey.of("Fake H200", triton.__version__, one) for one in (Mode("global"), mode)]
    assert list(read_costs(path)) == keys
    assert list(read_costs(runs.capture / "record_costs.json")) == keys[1:]

    # Another workspace of the user's has it, too.
    shutil.rmtree(folder)
    assert said(run(runs)) == []
    assert {path.name for path in runs.folder.iterdir()} == {"home", "workspace"}
    assert [path for path in (runs.folder / "home").rglob("*") if path.is_file()] == [path]


def test_without_a_cache_a_cost_is_kept_in_the_workspace(runs: FakeRuns) -> None:
    (runs.folder / "home").mkdir(exist_ok=True)
    (runs.folder / "home" / ".cache").write_text("no folder\n")
    assert said(run(runs)) == [MEASURING]
    assert said(run(runs)) == []
    assert costs(runs) == {MEASURED}


def test_a_run_is_as_good_without(runs: FakeRuns) -> None:
    ended = run(runs, gpu=False)
    assert said(ended)[0] == MEASURING
    check("runtime/calibration", "\n".join(ended.stderr.splitlines()[-3:-1]), "no GPU")
    assert costs(runs) == {None}
    assert not (runs.capture / "record_costs.json").exists()


def test_a_place_that_cannot_be_written_to_is_told(runs: FakeRuns) -> None:
    Workspace(runs.workspace).calibration_folder.write_text("no folder\n")
    *_, last = said(run(runs))
    assert last.startswith("kprof-inject: cannot save the record cost: ")
    assert costs(runs) == {None}


@dataclass
class Devices:
    """Some that are only named; ``chosen`` is the one that was selected."""

    all_names: list[str]
    all_uuids: list[str]
    chosen: int = -1

    def names(self) -> list[str]:
        return self.all_names

    def uuids(self) -> list[str]:
        return self.all_uuids

    def selected(self, device: int) -> AbstractContextManager[None]:
        self.chosen = device
        return nullcontext()


class NoKernel:
    def __getitem__(self, grid: Sequence[int]) -> Any:
        return lambda *arguments, **options: None


@pytest.mark.parametrize(
    ("name", "uuid", "index"),
    [("H200", "u2", 2), ("H200", "", 1), ("H200", "u7", 1), ("H200", "u0", 1), ("A100", "u0", 0)],
)
def test_the_device_is_found_by_its_uuid_else_by_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, uuid: str, index: int
) -> None:
    devices = Devices(["A100", "H200", "H200"], ["u0", "u1", "u2"])
    monkeypatch.setattr(calibration_kernel, "devices_of_process", lambda: devices)
    monkeypatch.setattr(calibration_kernel, "calibration_kernel", NoKernel())
    active = SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32))
    monkeypatch.setattr(calibration_kernel, "driver", SimpleNamespace(active=active))
    calibration_kernel.launch_on(name, uuid)
    assert devices.chosen == index


def test_a_device_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_kernel, "devices_of_process", lambda: Devices(["A100"], ["u0"]))
    with pytest.raises(KprofError, match="no H200 is visible"):
        calibration_kernel.launch_on("H200", "u1")


TARGETS = [GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)]
STRAIGHT = [f'{kind} "straight_{number}"' for number in range(8) for kind in ("start", "end")]
LOOP = [f'{kind} "loop_{number}"' for number in range(2) for kind in ("start", "end")]
CHAIN = "elementwise_inline_asm"
WORK = [
    *('start "work_0"', CHAIN, 'end "work_0"', CHAIN),
    *('start "work_1"', CHAIN, CHAIN, 'end "work_1"', CHAIN, CHAIN),
    *('start "work_2"', 'end "work_2"'),
]


def with_records(target: GPUTarget) -> str:
    """The kernel's TTGIR with its records."""
    kernel = calibration_kernel.calibration_kernel
    signature, values = {"rounds": "i32", "BACKEND": "constexpr"}, {"BACKEND": target.backend}
    with knobs.compilation.scope():
        # A cached one may name the source file of another checkout.
        knobs.compilation.always_compile = True
        compiled = triton.compile(ASTSource(kernel, signature, values, {}), target=target, options=OPTIONS)
    file = str(inspect.getsourcefile(kernel.fn))
    return insert_module(view_of(compiled.asm["ttgir"], "k.ttgir", {file: Path(file).read_text()}), ()).text


def operation(line: str) -> str:
    """Its name without the dialect; a record's with all that it says."""
    words = re.sub(r"^\s*%\w+ = ", "", line).split()
    return " ".join(words[1:]) if words[0] == "proton.record" else words[0].split(".")[-1]


@pytest.mark.triton
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.backend)
def test_nothing_but_work_stands_between_the_records_of_the_kernel(target: GPUTarget) -> None:
    """Of what the compiler keeps, other than barriers and the begins of loops."""
    body = [operation(line) for line in with_records(target).splitlines() if line.strip()]
    body = body[body.index(STRAIGHT[0]) : body.index('end "around"')]
    first_loop = [*STRAIGHT, "barrier", 'start "around"', "for", *LOOP, "barrier", "}"]
    assert body == [*first_loop, "sitofp", "for", *WORK, "barrier", "yield", "}"]


MODES = [Mode(), Mode(clock_bits=32), Mode(sched_stores=True)]
if "cuda" in installed_version().global_buffer_on:
    MODES.append(Mode("global"))


@pytest.mark.triton
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_each_chain_is_there_once_and_between_its_records(mode: Mode) -> None:
    text = with_records(TARGETS[0])
    made = lower(text, TARGETS[0], OPTIONS, replace(mode, buffer_bytes=BUFFER_BYTES))
    stretches = re.split(r"%clock(?:_lo|64)?;", made.assembly)
    chains = [stretch.count("fma.rn.f32") / calibration_kernel.CHAIN_LENGTH for stretch in stretches]
    # Around all of it stand the records of the kernel's body.
    before, last = 1 + len(STRAIGHT) + 1 + len(LOOP), [0, 0, 0]
    assert chains == [0] * (before + 1) + [1, 1, 2, 2, 0] + last


def test_all_records_of_the_kernel_have_room() -> None:
    in_loops = sum(len([one for one in loop if one != CHAIN]) for loop in (LOOP, WORK))
    records = 2 + len(STRAIGHT) + 2 + calibration_kernel.ROUNDS * in_loops
    assert records <= BUFFER_BYTES // calibration_kernel.NUM_WARPS // RECORD_BYTES
