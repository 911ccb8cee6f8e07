"""What a process says of itself, and that saying it never hurts the program."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest
from snapshots import check

from kprof_inject.runtime.compiling.compiler_messages import without_false_alarms
from kprof_inject.runtime.process_report import KernelState, ProcessReport, read_reports


def only_report(folder: Path) -> dict[str, Any]:
    (path,) = folder.iterdir()
    return dict(json.loads(path.read_text()))


def test_a_guarded_failure_is_reported_and_goes_no_further(tmp_path: Path) -> None:
    report = ProcessReport(str(tmp_path))
    with report.guard("saving a kernel"):
        raise KeyError("ttgir")
    with report.guard("nothing"):
        pass
    assert only_report(tmp_path)["errors"] == ["saving a kernel: KeyError: 'ttgir'"]


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_a_guard_does_not_keep_the_program_from_ending(tmp_path: Path, ending: type[BaseException]) -> None:
    with pytest.raises(ending), ProcessReport(str(tmp_path)).guard("saving a kernel"):
        raise ending


def test_a_failure_inside_a_guard_does_not_undo_what_was_reported(tmp_path: Path) -> None:
    report = ProcessReport(str(tmp_path))
    report.add_kernel("gemm-1", "gemm", "dumped")
    with report.guard("saving a kernel"):
        raise OSError("disk full")
    kernel = {"variant": "gemm-1", "name": "gemm", "state": "dumped", "reason": ""}
    assert only_report(tmp_path)["kernels"] == {"gemm-1": kernel}


def test_a_report_that_cannot_be_written_is_one_line_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    ProcessReport(str(tmp_path / "file")).write()
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("kprof-inject: cannot write this process's report: ")
    assert output.err.count("\n") == 1


def full_stream() -> TextIO:
    return open("/dev/full", "w")


@pytest.mark.parametrize("stderr", [lambda: None, full_stream])
def test_a_report_that_can_be_neither_written_nor_told_of_hurts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: Callable[[], Any]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "stderr", stderr())
    ProcessReport(str(tmp_path / "file")).add_kernel("scale-1", "scale", "instrumented")
    with without_false_alarms() as messages:
        os.write(2, b"a message")
        assert messages.take() == b"a message"


def test_a_report_names_its_process_alone(tmp_path: Path) -> None:
    ProcessReport(str(tmp_path)).write()
    ProcessReport(str(tmp_path)).write()
    assert [path.name.split("-")[0] for path in tmp_path.iterdir()] == [str(os.getpid())] * 2


def test_processes_are_read_together(tmp_path: Path) -> None:
    first, second, third = (ProcessReport(str(tmp_path)) for _ in range(3))
    first.note_triton("3.6.0")
    first.add_kernel("gemm-1", "gemm", "instrumented")
    first.add_kernel("gemm-2", "gemm", "left alone", "too large")
    second.note_triton("3.6.0")
    second.note_gpu(False)
    second.add_kernel("gemm-1", "gemm", "instrumented")
    with second.guard("saving a launch"):
        raise OSError("disk full")
    third.note_gpu(True)

    reports = read_reports(tmp_path)
    assert reports.joined
    assert reports.triton_versions == {"3.6.0"}
    assert reports.gpu is True
    assert set(reports.kernels) == {
        KernelState("gemm-1", "gemm", "instrumented", ""),
        KernelState("gemm-2", "gemm", "left alone", "too large"),
    }
    assert len(reports.kernels) == 2
    assert reports.errors == ("saving a launch: OSError: disk full",)


def test_who_launched_and_did_not_come_to_an_end_is_unfinished(tmp_path: Path) -> None:
    ended, killed, running, idle = (ProcessReport(str(tmp_path)) for _ in range(4))
    for report in (ended, killed, running):
        report.note_launches(5, 2)
    idle.write()
    ended.note_end()
    gone = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True)
    path = killed._folder / f"{os.getpid()}-{killed._started_ns}.json"
    path.write_text(path.read_text().replace(str(os.getpid()), gone.stdout.strip()))

    killed_message, running_message = sorted(
        read_reports(tmp_path).unfinished, key=lambda message: "running" in message
    )
    assert "2 of at least 5 launches" in killed_message
    assert f"process {os.getpid()} is still running" in running_message
    said = re.sub(r"\bprocess \d+", "process PID", f"{killed_message}\n{running_message}")
    check("runtime/process_report", said, "unfinished")


def test_a_forked_child_that_had_nothing_to_say_leaves_no_report(tmp_path: Path) -> None:
    report = ProcessReport(str(tmp_path))
    report.write()
    pid = os.fork()
    if pid == 0:
        report.note_end()
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(list(tmp_path.iterdir())) == 1
