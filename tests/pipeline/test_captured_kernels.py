"""Machine code and integers are added to a capture; which launches are not measured."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from shutil import copytree
from typing import Any, cast

import numpy as np
import pytest
from programs.child import REPO
from replacing import replace
from snapshots import check

from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.capture.capture_files import KERNELS_FOLDER, KernelRecord, LaunchRecord, read, read_optional, write
from kprof_inject.capture.measurements import LoadedIntegersRecord, MeasurementsRecord
from kprof_inject.capture.recording import Recording
from kprof_inject.capture.resources import TimingRecord
from kprof_inject.capture.saved_launch import (
    MEMORY_FILE,
    SAVED_LAUNCH_ENDING,
    MemoryRecord,
    SavedLaunch,
    SavedLaunchRecord,
)
from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.capture.scopes import RelaunchRecord, ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.machine_code.instructions import Instruction, MachineFunction
from kprof_inject.pipeline import captured_kernels, saved_launches
from kprof_inject.pipeline import captured_kernels as module_under_test
from kprof_inject.pipeline.captured_kernels import CapturedKernel, kernels_examined, loaded_integers
from kprof_inject.pipeline.saved_launches import measure_run
from kprof_inject.pipeline.workers import WorkerProcess
from kprof_inject.runtime.process_report import read_reports
from kprof_inject.workspace import Workspace

PROCESS = REPO / "tests/captures/matmul"


@pytest.fixture
def kernel(tmp_path: Path) -> CapturedKernel:
    copytree(PROCESS, tmp_path / "capture")
    (folder,) = (tmp_path / "capture").glob(f"*/{KERNELS_FOLDER}/*")
    return CapturedKernel(folder, read(folder, KernelRecord), None)


def saved(kernel: CapturedKernel, tmp_path: Path) -> tuple[set[str], list[str]]:
    said: list[str] = []
    with kernels_examined(Workspace.create(tmp_path / "workspace"), [kernel], said.append):
        pass
    return {file for file in ("machine_code.json", "moves.json") if (kernel.folder / file).exists()}, said


def test_what_is_found_is_saved(kernel: CapturedKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = MachineFunction("matmul_kernel", (Instruction(0, "EXIT", "", line=3),))
    monkeypatch.setattr(captured_kernels, "loaded_driver", object)
    monkeypatch.setattr(captured_kernels, "machine_code_of", lambda module, options: [code])
    files, said = saved(kernel, tmp_path)
    assert files == {"machine_code.json"}
    assert read(kernel.folder, MachineFunction) == code
    (message,) = said  # the workspace has no kernel with records
    assert message.startswith("moves.json of matmul_kernel is missing: ")


def test_bugs_cost_machine_code_alone(kernel: CapturedKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: object, options: object) -> None:
        raise ValueError("no such scoreboard")

    monkeypatch.setattr(captured_kernels, "loaded_driver", object)
    monkeypatch.setattr(captured_kernels, "machine_code_of", fail)
    files, said = saved(kernel, tmp_path)
    assert files == set()
    assert "machine_code.json of matmul_kernel is missing: ValueError: no such scoreboard" in said


def test_no_driver_compiles_nothing(kernel: CapturedKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured_kernels, "loaded_driver", lambda: None)
    assert saved(kernel, tmp_path) == (set(), [])


# Integers that decide what a kernel executes are taken from the memory of a saved launch

INDICES, VALUES, OUT = 1 << 20, 1 << 21, 1 << 22
# Each CTA copies the 32 floats of the row that its index names.
GATHER = """module {
  tt.func public @gather(%i: !tt.ptr<i32>, %v: !tt.ptr<f32>, %o: !tt.ptr<f32>) {
    %c32 = arith.constant 32 : i32
    %x = tt.get_program_id x : i32
    %i_a = tt.addptr %i, %x : !tt.ptr<i32>, i32
    %row = tt.load %i_a : !tt.ptr<i32>
    %from = arith.muli %row, %c32 : i32
    %r = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32, #l>
    %from_s = tt.splat %from : i32 -> tensor<32xi32, #l>
    %from_o = arith.addi %from_s, %r : tensor<32xi32, #l>
    %v_s = tt.splat %v : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>, #l>
    %v_a = tt.addptr %v_s, %from_o : tensor<32x!tt.ptr<f32>, #l>, tensor<32xi32, #l>
    %value = tt.load %v_a : tensor<32x!tt.ptr<f32>, #l>
    %to = arith.muli %x, %c32 : i32
    %to_s = tt.splat %to : i32 -> tensor<32xi32, #l>
    %to_o = arith.addi %to_s, %r : tensor<32xi32, #l>
    %o_s = tt.splat %o : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>, #l>
    %o_a = tt.addptr %o_s, %to_o : tensor<32x!tt.ptr<f32>, #l>, tensor<32xi32, #l>
    tt.store %o_a, %value : tensor<32x!tt.ptr<f32>, #l>
    tt.return
  }
}
"""
ROWS = np.array([3, 1, 3, 3], "<i4")
ARGUMENTS = (INDICES, VALUES, OUT)


def saved_launch(folder: Path, tables: Mapping[int, bytes], changed: tuple[int, ...] = ()) -> SavedLaunch:
    memory, offset = [], 0
    for address, data in tables.items():
        before, after = f"{address:016x}", f"{address + (address in changed):016x}"
        crc32 = (zlib.crc32(data),)
        place = {"address": address, "size_bytes": len(data), "offset": offset}
        memory.append(MemoryRecord(**place, chunk_crc32=crc32, before=before, after=after))
        offset += len(data)
    (folder / MEMORY_FILE).write_bytes(b"".join(tables.values()))
    record = SavedLaunchRecord(
        name="gather", variant="gather-1", index=0, grid=(4, 1, 1), arguments=(), memory=tuple(memory), files={}
    )
    return SavedLaunch(folder, record, cast(DumpedKernelRecord, None))


def launch(ctas: int = 4) -> LaunchRecord:
    known: dict[str, Any] = dict.fromkeys(("index", "device", "stream", "host_ns", "buffer_bytes"), 1)
    return LaunchRecord(variant="gather-1", grid=(ctas, 1, 1), file="launch.bin", arguments=ARGUMENTS, **known)


def touched_bytes(record: LoadedIntegersRecord | None) -> list[int | None]:
    """Return the bytes that each access touches."""
    ran = evaluated(GATHER, "gather.ttgir", (4, 1, 1), ARGUMENTS, ScopeTable(), record)
    ranges = [one.access.touched() for one in ran.operations if one.access]
    return [None if one is None else one.size_bytes for one in ranges]


def test_the_rows_that_a_gather_reads_are_known(tmp_path: Path) -> None:
    tables = {INDICES: ROWS.tobytes() + bytes(48), VALUES: bytes(4096)}
    record = loaded_integers(GATHER, saved_launch(tmp_path, tables), launch())
    assert record is not None
    assert (record.starts, record.sizes, record.memory) == ((INDICES,), (16,), ROWS.tobytes())
    assert record.is_of((4, 1, 1), ARGUMENTS)
    assert not record.is_of((5, 1, 1), ARGUMENTS)
    # Two rows of 128 bytes, each read once.
    assert touched_bytes(record) == [16, 256, 512]
    assert touched_bytes(None) == [16, None, 512]


def test_other_memory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the launch changes, what was not saved, and what no table or a large one is."""
    tables = {INDICES: ROWS.tobytes(), VALUES: bytes(4096)}
    assert loaded_integers(GATHER, saved_launch(tmp_path, tables, changed=(INDICES,)), launch()) is None
    saved = saved_launch(tmp_path, {INDICES: ROWS.tobytes()})
    assert loaded_integers(GATHER, saved, launch(5)) is None
    assert loaded_integers(GATHER.replace("muli %row, %c32", "muli %x, %c32"), saved, launch()) is None
    monkeypatch.setattr(module_under_test, "MAX_LOADED_BYTES", 15)
    assert loaded_integers(GATHER, saved, launch()) is None


def test_damaged_memory_is_an_error(tmp_path: Path) -> None:
    saved = saved_launch(tmp_path, {INDICES: ROWS.tobytes()})
    (tmp_path / MEMORY_FILE).write_bytes(bytes(16))
    with pytest.raises(KprofError, match="is damaged"):
        loaded_integers(GATHER, saved, launch())


# Launches that are not measured

POLLS, ENDS = RelaunchRecord(waits=True), RelaunchRecord()


def captured(folder: Path, processes: int, relaunch: RelaunchRecord) -> list[CapturedKernel]:
    """A kernel of which each process of a capture has saved a launch."""
    kernels = []
    for number in range(processes):
        (source,) = (one for one in (REPO / "tests/captures/matmul").iterdir() if one.is_dir())
        (kernel,) = (Path(copytree(source, folder / str(number))) / KERNELS_FOLDER).iterdir()
        record = read(kernel, KernelRecord)
        table = replace(record.scopes, relaunch=relaunch)
        record = replace(record, scopes=table, program_variant="v")
        write(kernel, record)
        kernels.append(CapturedKernel(kernel, record, folder / f"v{SAVED_LAUNCH_ENDING}"))
    return kernels


@pytest.mark.parametrize(
    ("processes", "relaunch", "times", "are_repeated"),
    [
        (2, POLLS, None, False),
        (2, POLLS, 0, False),
        (1, POLLS, None, True),
        (2, ENDS, None, True),
        (2, POLLS, 50, True),
    ],
)
def test_a_kernel_that_polls_is_not_repeated_where_several_processes_run_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: int,
    relaunch: RelaunchRecord,
    times: int | None,
    are_repeated: bool,
) -> None:
    kernels = captured(tmp_path / "capture", processes, relaunch)
    measured: list[CapturedKernel] = []
    monkeypatch.setattr(saved_launches, "is_saved_launch", lambda path: True)
    monkeypatch.setattr(saved_launches, "_measure", lambda workspace, found, *_: measured.extend(found))
    said: list[str] = []
    choice = Recording(replay=times)
    (tmp_path / "reports").mkdir()
    workspace, reports = Workspace.create(tmp_path / "ws"), read_reports(tmp_path / "reports")
    measure_run(workspace, tmp_path / "capture", reports, choice, said.append, WorkerProcess())
    assert [kernel.launch is not None for kernel in measured] == [are_repeated] * processes
    timings = [read_optional(kernel.folder, TimingRecord) for kernel in kernels]
    if are_repeated:
        assert said == []
    else:
        check("pipeline/launches_that_wait", "\n".join(said), "two processes")
        assert all(timing and "polls memory" in (timing.not_replayed or "") for timing in timings)


@pytest.mark.parametrize("share", [0.004, 1.0])
def test_small_kernels_say_why_no_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    (kernel,) = captured(tmp_path / "capture", 1, ENDS)
    monkeypatch.setattr(saved_launches, "_measure", lambda *_: None)
    monkeypatch.setattr(saved_launches, "_shares_of_time", lambda workspace: {"v": share})
    (tmp_path / "reports").mkdir()
    reports = read_reports(tmp_path / "reports")
    workspace = Workspace.create(tmp_path / "ws")
    measure_run(
        workspace, tmp_path / "capture", reports, Recording(counters="default"), lambda _: None, WorkerProcess()
    )
    record = read_optional(kernel.folder, MeasurementsRecord)
    said = f"it takes 0.4 % of the kernels' time; profile --kernel {kernel.record.name} measures it"
    assert (record and (record.not_counted, record.not_sampled)) == (None if share == 1.0 else (said, said))
