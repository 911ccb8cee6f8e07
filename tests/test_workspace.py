"""The workspace folder: what may become one, and what its steps find in it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from snapshots import check

from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.workspace import DumpedKernel, Workspace
from kprof_inject.workspace_folder import held, where_to_look

INFO = DumpedKernelRecord(name="gemm", override_key="KEY", file_name="gemm_file")


def with_kernel(folder: Path, variant: str = "gemm-1", name: str = "gemm") -> tuple[Workspace, DumpedKernel]:
    workspace = Workspace.create(folder)
    workspace.write_kernel(variant, replace(INFO, name=name), "module {}\n", {"/a.py": "x = 1\n"})
    return workspace, workspace.kernel(variant)


def test_an_older_one_is_refused_and_made_anew_without_its_experiments(tmp_path: Path) -> None:
    for name in ("captures/001", "experiments/001", "edits/gemm"):
        (Workspace.create(tmp_path).folder / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    (tmp_path / "workspace.json").write_text('{"version": 1}')
    with pytest.raises(KprofError, match="was made by an older kprof-inject\nhint: profile again"):
        Workspace.open(tmp_path)
    Workspace.create(tmp_path)
    assert sorted(os.listdir(Workspace.open(tmp_path).folder)) == ["captures", "workspace.json"]


def test_a_folder_of_other_things_does_not(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    with pytest.raises(KprofError, match="is neither empty nor ") as refused:
        Workspace.create(tmp_path)
    check("workspace/refusals", str(refused.value), "a folder of other things")
    assert os.listdir(tmp_path) == ["kernels"]


def test_beginning_anew_keeps_captures_and_the_users_files(tmp_path: Path) -> None:
    workspace, kernel = with_kernel(tmp_path)
    workspace.write_plan(kernel, {"scopes": []}, "module {}\n")
    (workspace.new_capture_folder() / "process").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("precious")
    Workspace.create(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["captures", "notes.txt", "workspace.json"]
    assert workspace.last_capture_folder() == tmp_path / "captures" / "001"


def test_what_steps_made_is_put_back_where_making_it_anew_fails(tmp_path: Path) -> None:
    workspace, kernel = with_kernel(tmp_path)
    workspace.write_plan(kernel, {"scopes": []}, "module {}\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KprofError), workspace.results_replaced():
        assert workspace.kernels() == [] and not workspace.plans_folder.exists()
        with_kernel(tmp_path, "other-1", "other")
        raise KprofError("failed")
    assert sorted(tmp_path.rglob("*")) == before
    with workspace.results_replaced():
        workspace.write_kernel("other-1", INFO, "module {}\n", {})
    assert [kernel.variant for kernel in workspace.kernels()] == ["other-1"]
    assert sorted(os.listdir(tmp_path)) == ["kernels", "workspace.json"]


def test_a_kernel_is_read_as_it_was_written(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path)
    workspace.write_kernel("gemm-1", INFO, "module {\r\n}", {"/a.py": "é\r\n"})
    (kernel,) = workspace.kernels()
    assert kernel == DumpedKernel("gemm-1", INFO, tmp_path / "kernels" / "gemm-1" / "kernel.ttgir")
    assert kernel.ttgir() == "module {\r\n}"
    assert workspace.kernel_sources("gemm-1") == {"/a.py": "é\r\n"}
    (kernel.ttgir_path.parent / "kernel.json").unlink()  # as if it had not been written to its end
    assert workspace.kernels() == []


def test_a_plan_stands_until_it_is_cleared_in_the_variants_own_override_folder(tmp_path: Path) -> None:
    workspace, kernel = with_kernel(tmp_path)
    assert workspace.scope_table("gemm-1") is None
    workspace.write_plan(kernel, {"scopes": []}, "module {}\n")
    assert workspace.scope_table("gemm-1") == ScopeTable()
    files = [path.relative_to(tmp_path) for path in workspace.override_folder.rglob("*") if path.is_file()]
    assert files == [Path("override", "gemm-1", "KEY", "gemm_file.ttgir")]
    workspace.clear_plans()
    assert workspace.scope_table("gemm-1") is None
    assert not workspace.override_path(kernel).exists()


def test_a_kernel_has_the_plan_with_its_scopes(tmp_path: Path) -> None:
    workspace, kernel = with_kernel(tmp_path)
    for number, name in enumerate(("gemm-1", "gemm-1-func-loop", "gemm-1-func")):
        planned = dataclasses.replace(kernel, variant=name)
        workspace.write_plan(planned, {"scopes": [], "most_records": number}, "module {}\n")
        assert workspace.planned_with(kernel, ScopeTable(scopes=(), most_records=number)) == planned
    assert workspace.planned_with(kernel, ScopeTable(scopes=(), most_records=9)) == kernel


def test_captures_are_numbered_past_a_thousand_and_empty_ones_are_none(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path)
    with pytest.raises(KprofError, match="has no capture yet") as refusal:
        workspace.last_capture_folder()
    check("workspace/refusals", str(refusal.value), "no capture yet")
    first, second = workspace.new_capture_folder(), workspace.new_capture_folder()  # each is claimed
    assert (first, second) == (tmp_path / "captures" / "001", tmp_path / "captures" / "002")
    (first / "process").mkdir()
    assert workspace.last_capture_folder() == first
    for folder in (first, second):
        workspace.forget_if_empty(folder)
    assert os.listdir(tmp_path / "captures") == ["001"]
    for name in ("999", "1000", "notes"):
        (tmp_path / "captures" / name / "process").mkdir(parents=True)
    assert workspace.last_capture_folder() == tmp_path / "captures" / "1000"
    assert workspace.new_capture_folder() == tmp_path / "captures" / "1001"


def test_a_cache_is_of_one_process(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path)
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name in (f"run-{ended.pid}", f"run-{os.getppid()}", "run-", f"dump-{ended.pid}"):
        (tmp_path / "cache" / name / "triton").mkdir(parents=True)
    ours = workspace.new_cache_folder("run")
    (ours / "triton").mkdir(parents=True)
    assert workspace.new_cache_folder("run") == ours
    assert not ours.exists()
    assert sorted(os.listdir(tmp_path / "cache")) == [f"run-{os.getppid()}"]


def fail(message: str) -> None:
    pytest.fail(message)


def test_two_cannot_hold_one_workspace(tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    with held(folder, fail):
        Workspace.create(folder)
        with pytest.raises(KprofError) as refusal, held(folder, fail):
            pass
        assert refusal.value.what.startswith(f"{folder} is in use by process {os.getpid()} ")
        assert " since 2" in refusal.value.what
        assert "pytest" in refusal.value.what  # the command
        check("workspace/refusals", refusal.value.hint, "in use")
        with held(tmp_path / "another", fail):
            pass
    with held(folder, fail):
        pass


def test_what_the_holder_starts_does_not_hold_it(tmp_path: Path) -> None:
    lock = str(tmp_path / "workspace.lock")

    def is_held_by(process: int) -> bool:
        return lock in {os.path.realpath(path) for path in Path("/proc", str(process), "fd").iterdir()}

    with held(tmp_path, fail), subprocess.Popen(["sleep", "20"], close_fds=False) as started:
        assert is_held_by(os.getpid())
        while is_held_by(started.pid):  # until it is the other program's
            time.sleep(0.001)
        started.kill()
        fork = os.fork()
        if fork == 0:
            os._exit(is_held_by(os.getpid()))
        assert os.waitpid(fork, 0)[1] == 0


def test_a_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from kprof_inject.workspace_folder import held\n"
        "with held(Path(sys.argv[1]), print):\n print('holds it', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"holds it\n"
        with pytest.raises(KprofError, match=f"in use by process {holder.pid} "), held(tmp_path, fail):
            pass
        holder.kill()
    with held(tmp_path, fail):
        pass


def test_what_is_missing_is_sought_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    how = where_to_look(Path("mine"))
    check("workspace/where_to_look", how, "mine")
    workspace = Workspace.create(Path("kprof_out"))
    assert where_to_look(Path("mine")) == f"did you mean kprof_out? {how}"
    assert where_to_look(Path("kprof_ot")).startswith("did you mean kprof_out? make one: ")
    check("workspace/where_to_look", where_to_look(Path("k.ttgir")), "k.ttgir")
    workspace.new_capture_folder()
    missing = where_to_look(Path("kprof_out/captures/002"))
    assert missing.startswith("did you mean kprof_out/captures/001?")
    check("workspace/where_to_look", missing, "kprof_out/captures/002")


@pytest.mark.parametrize(
    ("field", "name"), [("override_key", "../../outside"), ("file_name", "/tmp/outside"), ("file_name", "..")]
)
def test_a_name_that_leads_out_of_the_workspace_is_refused(tmp_path: Path, field: str, name: str) -> None:
    workspace, kernel = with_kernel(tmp_path)
    path = kernel.ttgir_path.parent / "kernel.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: name}))
    with pytest.raises(KprofError, match=rf"kernel\.json: \$\.{field}: expected "):
        workspace.kernels()


@pytest.mark.parametrize("name", ["kernels", "cache/run", "workspace.lock", "edits/v/override/k/k.ttgir"])
def test_a_folder_that_leads_out_of_the_workspace_is_refused(tmp_path: Path, name: str) -> None:
    workspace = Workspace.create(tmp_path / "ws").folder
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / name).parent.mkdir(exist_ok=True, parents=True)
    (workspace / name).symlink_to(outside)
    for begin in (Workspace.open, Workspace.create):
        with pytest.raises(KprofError, match=f"{name} is a symbolic link"):
            begin(workspace)
    with pytest.raises(KprofError, match=f"{name} is a symbolic link"), held(workspace, fail):
        pass
    assert list(outside.iterdir()) == []
