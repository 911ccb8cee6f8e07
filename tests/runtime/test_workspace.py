"""The workspace folder: what may become one, and what its steps find in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kprof_inject.errors import KprofError
from kprof_inject.workspace import DumpedKernel, Workspace

INFO = {"name": "gemm", "override_key": "KEY", "file_name": "gemm_file"}


def with_kernel(folder: Path, variant: str = "gemm-1", name: str = "gemm") -> tuple[Workspace, DumpedKernel]:
    workspace = Workspace.create(folder)
    workspace.write_kernel(variant, {**INFO, "name": name}, "module {}\n", {"/a.py": "x = 1\n"})
    return workspace, workspace.kernel(variant)


def test_a_new_folder_becomes_one_with_its_parents(tmp_path: Path) -> None:
    Workspace.create(tmp_path / "a" / "b")
    assert json.loads((tmp_path / "a" / "b" / "workspace.json").read_text()) == {"version": 1}


def test_an_empty_folder_becomes_one(tmp_path: Path) -> None:
    assert Workspace.create(tmp_path).kernels() == []


def test_a_folder_of_other_things_does_not(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    with pytest.raises(KprofError, match="is not empty and no workspace of kprof-inject"):
        Workspace.create(tmp_path)
    assert os.listdir(tmp_path) == ["kernels"]


def test_beginning_anew_keeps_captures_and_the_users_files(tmp_path: Path) -> None:
    workspace, kernel = with_kernel(tmp_path)
    workspace.write_plan(kernel, {"scopes": []}, "module {}\n")
    (workspace.new_capture_folder() / "process").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("precious")
    Workspace.create(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["captures", "notes.txt", "workspace.json"]
    assert workspace.last_capture_folder() == tmp_path / "captures" / "001"


def test_kernels_come_ordered_by_name(tmp_path: Path) -> None:
    workspace, _ = with_kernel(tmp_path, "z-1", "alpha")
    workspace.write_kernel("a-2", {**INFO, "name": "beta"}, "", {})
    workspace.write_kernel("a-1", {**INFO, "name": "beta"}, "", {})
    assert [(kernel.name, kernel.variant) for kernel in workspace.kernels()] == [
        ("alpha", "z-1"),
        ("beta", "a-1"),
        ("beta", "a-2"),
    ]


def test_a_kernel_is_read_as_it_was_written(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path)
    workspace.write_kernel("gemm-1", INFO, "module {\r\n}", {"/a.py": "é\r\n"})
    (kernel,) = workspace.kernels()
    assert kernel == DumpedKernel("gemm-1", INFO, tmp_path / "kernels" / "gemm-1" / "kernel.ttgir")
    assert kernel.ttgir() == "module {\r\n}"
    assert workspace.kernel_sources("gemm-1") == {"/a.py": "é\r\n"}


def test_a_kernel_that_was_not_written_to_its_end_is_none(tmp_path: Path) -> None:
    workspace, kernel = with_kernel(tmp_path)
    (kernel.ttgir_path.parent / "kernel.json").unlink()
    assert workspace.kernels() == []


def test_the_override_folder_is_the_variants_own_and_holds_ttgir_alone(tmp_path: Path) -> None:
    workspace, kernel = with_kernel(tmp_path)
    workspace.write_plan(kernel, {"scopes": []}, "module {}\n")
    files = [path.relative_to(tmp_path) for path in workspace.override_folder.rglob("*") if path.is_file()]
    assert files == [Path("override", "gemm-1", "KEY", "gemm_file.ttgir")]


def test_a_plan_stands_until_it_is_cleared(tmp_path: Path) -> None:
    workspace, kernel = with_kernel(tmp_path)
    assert workspace.scope_table("gemm-1") is None
    workspace.write_plan(kernel, {"scopes": []}, "module {}\n")
    assert workspace.scope_table("gemm-1") == {"scopes": []}
    workspace.clear_plans()
    assert workspace.scope_table("gemm-1") is None
    assert not workspace.override_path(kernel).exists()


def test_captures_are_numbered_past_a_thousand(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path)
    assert workspace.new_capture_folder() == tmp_path / "captures" / "001"
    assert workspace.new_capture_folder() == tmp_path / "captures" / "002"  # each is claimed
    for name in ("999", "1000", "notes"):
        (tmp_path / "captures" / name / "process").mkdir(parents=True)
    assert workspace.last_capture_folder() == tmp_path / "captures" / "1000"
    assert workspace.new_capture_folder() == tmp_path / "captures" / "1001"


def test_no_capture_yet_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(KprofError, match="has no capture yet") as refusal:
        Workspace.create(tmp_path).last_capture_folder()
    assert refusal.value.hint == f"make one: kprof-inject run {tmp_path} -- PROG"


def test_reports_begin_empty_each_time(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path)
    (workspace.new_reports_folder("run") / "old.json").write_text("{}")
    assert os.listdir(workspace.new_reports_folder("run")) == []
