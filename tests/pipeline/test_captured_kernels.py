"""Machine code is added to a capture, and what cannot be compiled costs nothing else."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest
from programs.child import REPO

from kprof_inject.capture.capture_files import KERNELS_FOLDER, KernelRecord, read
from kprof_inject.machine_code.instructions import Instruction, MachineFunction
from kprof_inject.pipeline import captured_kernels
from kprof_inject.pipeline.captured_kernels import CapturedKernel, kernels_examined
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


def test_what_is_found_is_saved_and_what_fails_is_said(
    kernel: CapturedKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = MachineFunction("matmul_kernel", (Instruction(0, "EXIT", "", line=3),))
    monkeypatch.setattr(captured_kernels, "loaded_driver", object)
    monkeypatch.setattr(captured_kernels, "machine_code_of", lambda module, options: [code])
    files, said = saved(kernel, tmp_path)
    assert files == {"machine_code.json"}
    assert read(kernel.folder, MachineFunction) == code
    (message,) = said  # the workspace has no kernel with records
    assert message.startswith("moves.json of matmul_kernel is missing: ")


def test_a_bug_of_ours_costs_the_machine_code_alone(
    kernel: CapturedKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(module: object, options: object) -> None:
        raise ValueError("no such scoreboard")

    monkeypatch.setattr(captured_kernels, "loaded_driver", object)
    monkeypatch.setattr(captured_kernels, "machine_code_of", fail)
    files, said = saved(kernel, tmp_path)
    assert files == set()
    assert "machine_code.json of matmul_kernel is missing: ValueError: no such scoreboard" in said


def test_without_a_driver_nothing_is_compiled(
    kernel: CapturedKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured_kernels, "loaded_driver", lambda: None)
    assert saved(kernel, tmp_path) == (set(), [])
