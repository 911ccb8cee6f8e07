"""When the timers of a host's GPUs are compared, and what is saved."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from ranks import BEGIN_NS, Timer, save_process

from kprof_inject.capture.peer_clocks import PEER_CLOCKS_FILE, PeerClocksRecord, PeerReading, read_peer_clocks
from kprof_inject.capture.reader import read_capture
from kprof_inject.errors import KprofError
from kprof_inject.pipeline import peer_clocks
from kprof_inject.pipeline.peer_clocks import clocks_before, save_peer_clocks
from kprof_inject.workspace import Workspace

BEFORE, AFTER = (
    PeerReading(reference="GPU-1", device="GPU-2", reference_ns=ns, device_ns=ns + 5, error_ns=500) for ns in (10, 20)
)
TORCHRUN = ("torchrun", "--nproc-per-node", "2", "program.py")


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Has the GPUs of each comparison."""
    found: list[set[str]] = []

    def readings(uuids: Collection[str] = ()) -> tuple[PeerReading, ...]:
        found.append({*uuids})
        return (AFTER,)

    monkeypatch.setattr(peer_clocks, "_readings", readings)
    return found


def save(folder: Path, uuids: Sequence[str]) -> None:
    for rank, uuid in enumerate(uuids):
        timer = Timer()
        save_process(
            folder, str(rank), [(timer, BEGIN_NS)], [timer.reading(BEGIN_NS)], rank=rank, pid=rank, device_uuids=[uuid]
        )


@pytest.mark.parametrize(
    "program", [TORCHRUN, ("python", "-m", "torch.distributed.run", "x.py"), ("mpirun", "-n", "2", "x")]
)
def test_before_a_launcher_of_several_processes_they_are_compared(
    tmp_path: Path, compared: list[set[str]], program: tuple[str, ...]
) -> None:
    assert clocks_before(Workspace.begin(tmp_path / "ws"), program) == (AFTER,)
    assert compared == [set()]


def test_before_another_program_they_are_only_after_a_capture_of_several_gpus(
    tmp_path: Path, compared: list[set[str]]
) -> None:
    workspace = Workspace.begin(tmp_path / "ws")
    assert clocks_before(workspace, ("program.py",)) == ()
    save(workspace.new_capture_folder(), ["GPU-1"])
    assert clocks_before(workspace, ("program.py",)) == ()
    save(workspace.new_capture_folder(), ["GPU-1", "GPU-2"])
    assert not compared
    assert clocks_before(workspace, ("program.py",)) == (AFTER,)
    assert compared == [{"GPU-1", "GPU-2"}]


def test_readings_from_before_and_after_are_in_the_capture(tmp_path: Path, compared: list[set[str]]) -> None:
    save(tmp_path, ["GPU-1", "GPU-2"])
    save_peer_clocks(tmp_path, (BEFORE,))
    assert compared == [{"GPU-1", "GPU-2"}]
    assert read_peer_clocks(tmp_path) == (BEFORE, AFTER)
    assert {launch.origin.peer_readings for launch in read_capture(tmp_path).launches} == {(BEFORE, AFTER)}


def test_of_a_single_gpu_nothing_is_compared(tmp_path: Path, compared: list[set[str]]) -> None:
    save(tmp_path, ["GPU-1", "GPU-1"])
    save_peer_clocks(tmp_path, (BEFORE,))
    assert not compared
    assert not (tmp_path / PEER_CLOCKS_FILE).exists()


@pytest.mark.parametrize("text", [b"{", b'{"readings":[{}]}'])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, text: bytes) -> None:
    save(tmp_path, ["GPU-1", "GPU-2"])
    (tmp_path / PEER_CLOCKS_FILE).write_bytes(text)
    with pytest.raises(KprofError, match=PEER_CLOCKS_FILE):
        read_capture(tmp_path)


@pytest.mark.parametrize(
    "answer",
    [
        subprocess.CalledProcessError(1, "python"),
        subprocess.TimeoutExpired("python", 1),
        OSError("no python"),
        subprocess.CompletedProcess("", 0, b"not JSON"),
    ],
)
def test_a_comparison_that_fails_leaves_a_run_as_it_is(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    def run(*arguments: Any, **options: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(subprocess, "run", run)
    assert peer_clocks._readings() == ()


def test_without_a_gpu_the_process_finds_nothing() -> None:
    assert peer_clocks._readings() == PeerClocksRecord(readings=()).readings
