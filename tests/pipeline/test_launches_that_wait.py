"""Launches that are not measured: those that wait for other processes, and those of small kernels."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest
from programs.child import REPO
from replacing import replace
from snapshots import check

from kprof_inject.capture.capture_files import KERNELS_FOLDER, KernelRecord, read, read_optional, write
from kprof_inject.capture.measurements import MeasurementsRecord
from kprof_inject.capture.recording import Recording
from kprof_inject.capture.resources import TimingRecord
from kprof_inject.capture.saved_launch import SAVED_LAUNCH_ENDING
from kprof_inject.capture.scopes import RelaunchRecord
from kprof_inject.pipeline import saved_launches
from kprof_inject.pipeline.captured_kernels import CapturedKernel
from kprof_inject.pipeline.saved_launches import measure_run
from kprof_inject.pipeline.workers import WorkerProcess
from kprof_inject.runtime.process_report import read_reports
from kprof_inject.workspace import Workspace

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
    monkeypatch.setattr(saved_launches, "_captured_kernels", lambda workspace, capture: kernels)
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
def test_small_kernels_say_why_they_have_no_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    (kernel,) = captured(tmp_path / "capture", 1, ENDS)
    measured = [kernel] if share == 1.0 else []
    monkeypatch.setattr(saved_launches, "_captured_kernels", lambda workspace, capture: measured)
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
    assert (record and (record.not_counted, record.not_sampled)) == (None if measured else (said, said))
