"""What a process says of itself, and what the program raises or drops goes through our code."""

from __future__ import annotations

import ast
import gc
import json
import os
import re
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from snapshots import check

import kprof_inject
from kprof_inject.runtime.launch.triton_wrapping import around_load
from kprof_inject.runtime.process_events import Guarded, let_through
from kprof_inject.runtime.process_report import KernelState, ProcessReport, read_reports


def only_report(folder: Path) -> dict[str, Any]:
    (path,) = folder.iterdir()
    return dict(json.loads(path.read_text()))


def test_a_guarded_failure_is_reported_and_undoes_nothing(tmp_path: Path) -> None:
    report = ProcessReport(str(tmp_path))
    report.add_kernel("gemm-1", "gemm", "dumped")
    with report.guard("saving a kernel"):
        raise KeyError("ttgir")
    with report.guard("nothing"):
        pass
    found = only_report(tmp_path)
    assert found["errors"] == ["saving a kernel: KeyError: 'ttgir'"]
    assert found["kernels"] == {"gemm-1": {"variant": "gemm-1", "name": "gemm", "state": "dumped", "reason": ""}}


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_a_guard_does_not_keep_the_program_from_ending(tmp_path: Path, ending: type[BaseException]) -> None:
    with pytest.raises(ending), ProcessReport(str(tmp_path)).guard("saving a kernel"):
        raise ending


def test_an_unwritable_report_is_one_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    ProcessReport(str(tmp_path / "file")).write()
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("kprof-inject: cannot write this process's report: ")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize("stderr", [lambda: None, lambda: open("/dev/full", "w")], ids=["closed", "full"])  # noqa: SIM115
def test_a_report_that_can_be_neither_written_nor_printed_stops_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: Callable[[], Any]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "stderr", stderr())
    ProcessReport(str(tmp_path / "file")).add_kernel("scale-1", "scale", "instrumented")


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


# What the program raises or drops goes through our code, and nothing keeps it


class TimeUp(Exception):
    """Error that the handler of the program raises."""


def time_up(*_: object) -> None:
    raise TimeUp


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, time_up)
    yield
    signal.signal(signal.SIGALRM, before)


def alone() -> None:
    signal.raise_signal(signal.SIGALRM)


def as_a_cause() -> None:
    try:
        alone()
    except TimeUp as error:
        raise ValueError("does not compile") from error


def hidden() -> None:
    """As Triton's compiler wraps each error."""
    try:
        alone()
    except TimeUp:
        raise ValueError("does not compile") from None


def fault() -> None:
    raise ValueError("ours")


def caught(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 (as ours is)
        let_through(error)


@pytest.mark.parametrize("work", [alone, as_a_cause, hidden])
def test_what_a_handler_raised_reaches_the_program(work: Callable[[], None]) -> None:
    with pytest.raises(TimeUp):
        caught(work)


def test_a_fault_of_ours_does_not() -> None:
    caught(fault)


def test_nor_does_what_the_program_has_caught_already() -> None:
    try:
        alone()
    except TimeUp:
        caught(fault)


# Nothing of ours keeps what the program has dropped

RUNTIME = Path(kprof_inject.__file__).parent / "runtime"


def suppressing(tree: ast.AST) -> list[str]:
    """The generators that are made context managers, and catch what is raised inside without raising again."""
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    managers = [one for one in functions if any("contextmanager" in ast.unparse(mark) for mark in one.decorator_list)]
    return [one.name for one in managers if any(map(_suppresses, ast.walk(one)))]


def _suppresses(block: ast.AST) -> bool:
    if not isinstance(block, ast.Try):
        return False
    yields = any(isinstance(one, ast.Yield) for part in block.body for one in ast.walk(part))
    return yields and any(not isinstance(one.body[-1], ast.Raise) for one in block.handlers)


def test_no_generator_catches_what_a_launch_raises() -> None:
    """From Python 3.12 on, its frame would be in a cycle with the exception, and lead to the program's frames."""
    found = {path.name: suppressing(ast.parse(path.read_text())) for path in RUNTIME.rglob("*.py")}
    assert {name: names for name, names in found.items() if names} == {}
    example = (
        "@contextmanager\ndef guard():\n    try:\n        yield\n    except Exception as error:\n        note(error)\n"
    )
    assert suppressing(ast.parse(example)) == ["guard"]


class Tensor:
    pass


def test_what_is_guarded_is_kept_by_nothing() -> None:
    seen = []

    def launch() -> weakref.ref[Tensor]:
        tensor = Tensor()
        with Guarded(lambda error: seen.append(str(error))):
            fail(tensor)
        return weakref.ref(tensor)

    gc.disable()
    try:
        assert launch()() is None
    finally:
        gc.enable()
    assert seen == ["a fault"]


def fail(tensor: Tensor) -> None:
    raise ValueError("a fault")


def test_a_kernel_that_is_never_loaded_goes_when_the_program_drops_it() -> None:
    class Kernel:
        pass

    kernel = Kernel()
    around_load(kernel, lambda kernel, load: load())
    kept = weakref.ref(kernel)
    del kernel
    assert kept() is None


def test_a_program_finds_out_what_execve_takes_as_by_itself() -> None:
    words = "from kprof_inject.runtime import process_events", "process_events.watch_for_the_end()"
    program = f"import os; {'; '.join(words)}; assert os.execve in os.supports_fd"
    subprocess.run([sys.executable, "-c", program], check=True)
