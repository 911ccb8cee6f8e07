"""``dump``: what it saves, what of the program it leaves untouched, and which folders it takes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import triton
from command_line import CommandLine
from programs.child import CROSS_COMPILE, ENDING, PROGRAMS, Ended, run_python
from snapshots import check


def saved_kernels(workspace: Path) -> list[dict[str, Any]]:
    """The kernel.json of each variant, by kernel and warps."""
    found = [json.loads(path.read_text()) for path in workspace.glob("kernels/*/kernel.json")]
    return sorted(found, key=lambda info: (info["name"], info["options"]["num_warps"]))


def progress(ended: Ended) -> list[str]:
    return [line for line in ended.stderr.splitlines() if line.startswith("kprof-inject: ")]


@pytest.mark.triton
def test_every_variant_is_saved(dumped_once: Path) -> None:
    variants = sorted(os.listdir(dumped_once / "kernels"))
    assert [name.rpartition("-")[0] for name in variants] == ["accumulate", "accumulate", "scale"]
    for variant in variants:
        folder = dumped_once / "kernels" / variant
        assert sorted(os.listdir(folder)) == ["build", "kernel.json", "kernel.ttgir", "sources.json"]
        name = variant.rpartition("-")[0]
        kinds = {path.suffix for path in (folder / "build").iterdir() if path.stem == name}
        assert kinds >= {".json", ".cubin", ".ptx", ".ttir", ".ttgir"}


@pytest.mark.triton
def test_variants_that_differ_in_warps_alone_are_kept_apart(dumped_once: Path) -> None:
    warps = {}
    for path in dumped_once.glob("kernels/accumulate-*/kernel.ttgir"):
        info = json.loads((path.parent / "kernel.json").read_text())
        warps[info["options"]["num_warps"]] = path
        assert f'"ttg.num-warps" = {info["options"]["num_warps"]} : i32' in path.read_text()
    assert sorted(warps) == [4, 8]
    # Triton itself does not tell them apart.
    assert len({info["override_key"] for info in saved_kernels(dumped_once) if info["name"] == "accumulate"}) == 1


@pytest.mark.triton
def test_what_is_known_of_a_kernel(dumped_once: Path) -> None:
    info = saved_kernels(dumped_once)[-1]
    assert info["name"] == info["file_name"] == info["metadata"]["name"] == "scale"
    assert info["target"] == {"backend": "cuda", "arch": 90, "warp_size": 32}
    assert info["metadata"]["profile_scratch_size"] == 0
    assert info["triton_version"] == triton.__version__


@pytest.mark.triton
def test_the_sources_that_a_kernel_came_from_are_saved(dumped_once: Path) -> None:
    (path,) = dumped_once.glob("kernels/scale-*/sources.json")
    file = PROGRAMS / "kernels.py"
    assert json.loads(path.read_text()) == {str(file): file.read_text()}


def test_a_notebooks_cell_is_a_source(kprof: CommandLine) -> None:
    head = "import triton\nimport triton.language as tl\n"
    cell = f"{head}@triton.jit\ndef cell(x_ptr, out_ptr, n):\n    tl.store(out_ptr, n)\n"
    kprof.write(
        "notebook.py",
        "import linecache, sys\n"
        f"sys.path.insert(0, {str(PROGRAMS)!r})\n"
        "from kernels import compile_for_h200\n"
        f"cell, names = {cell!r}, {{}}\n"
        "linecache.cache['/ipykernel/1.py'] = (len(cell), None, cell.splitlines(True), '/ipykernel/1.py')\n"
        "exec(compile(cell, '/ipykernel/1.py', 'exec'), names)\n"
        "compile_for_h200(names['cell'], 4)\n",
    )

    assert kprof("dump", "notebook.py").exit_code == 0
    (path,) = kprof.folder.glob("kprof_out/kernels/cell-*/sources.json")
    assert json.loads(path.read_text()) == {"/ipykernel/1.py": cell}


def test_dumping_anew_saves_only_what_matches_and_forgets_what_steps_made_before(
    kprof: CommandLine, workspace: Path
) -> None:
    assert kprof("insert", "workspace").exit_code == 0
    ended = kprof("dump", "-o", "workspace", "--kernel", "s*e", "--", CROSS_COMPILE)
    assert ended.exit_code == 0
    assert progress(ended)[0] == "kprof-inject: dumped 1 kernel to workspace"
    assert " scale (cuda:90) workspace/kernels/scale-" in progress(ended)[1]
    assert [info["name"] for info in saved_kernels(workspace)] == ["scale"]
    assert not list(workspace.glob("plans/*"))
    assert not list(workspace.glob("override/*"))


def test_no_kernel_that_matches_is_an_error(kprof: CommandLine) -> None:
    ended = kprof("dump", "--kernel", "nope*", CROSS_COMPILE)
    assert ended.exit_code == 1
    check("cli/dump", ended.stderr, "nope*")


@pytest.mark.parametrize("program", [[ENDING], ["--", sys.executable, ENDING]], ids=["prog.py", "-- python prog.py"])
def test_the_programs_own_flags_reach_it(kprof: CommandLine, program: list[str | Path]) -> None:
    ended = kprof("dump", "-o", "ws", *program, "--flag", "-o", "x", "--", "--help", "0")
    assert ended.stdout == "--flag -o x -- --help 0"
    assert ended.exit_code == 0
    assert sorted(os.listdir(kprof.folder)) == ["home", "ws"]


def test_output_and_exit_code_are_the_programs_own(kprof: CommandLine) -> None:
    plain = run_python(ENDING, "a b", "é", "7", folder=kprof.folder)
    dumped = kprof("dump", ENDING, "a b", "é", "7")
    kprof("insert", "kprof_out")
    ran = kprof("run", "kprof_out", ENDING, "a b", "é", "7")
    assert plain == Ended(7, "a b é 7", "begins\nends\n")
    assert (dumped.exit_code, dumped.stdout) == (7, "a b é 7")
    assert (ran.exit_code, ran.stdout) == (7, "a b é 7")
    # What we say comes after the program's own messages.
    assert dumped.stderr.startswith("begins\nends\nkprof-inject: ")
    assert ran.stderr.startswith("begins\nends\nerror: ")
    assert [info["name"] for info in saved_kernels(kprof.folder / "kprof_out")] == ["scale"]


def test_a_folder_of_other_things_is_refused(kprof: CommandLine) -> None:
    kprof.write("notes.txt", "precious")
    ended = kprof("dump", "-o", ".", "--", ENDING, "0")
    assert (ended.exit_code, ended.stdout) == (1, "")
    check("cli/dump", ended.stderr, "notes.txt")
    assert sorted(os.listdir(kprof.folder)) == ["home", "notes.txt"]


@pytest.mark.parametrize(
    "command", [["insert", "old"], ["run", "old", CROSS_COMPILE], ["trace", "old"]], ids=["insert", "run", "trace"]
)
def test_a_workspace_of_another_version_is_refused(kprof: CommandLine, command: list[str | Path]) -> None:
    (kprof.folder / "old").mkdir()
    kprof.write("old/workspace.json", '{"version": 1}')
    ended = kprof(*command)
    assert (ended.exit_code, ended.stdout) == (1, "")
    check("cli/dump", ended.stderr, "another version")


@pytest.mark.parametrize("damaged", ["", '{"version": 1', "[]"])
def test_a_damaged_workspace_is_refused(kprof: CommandLine, damaged: str) -> None:
    (kprof.folder / "ws").mkdir()
    kprof.write("ws/workspace.json", damaged)
    ended = kprof("insert", "ws")
    assert ended.exit_code == 1
    assert ended.stderr.startswith("error: ws/workspace.json: ")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("damaged", ["{", "{}"])
def test_a_damaged_kernel_is_refused(kprof: CommandLine, workspace: Path, damaged: str) -> None:
    (path,) = workspace.glob("kernels/scale-*/kernel.json")
    path.write_text(damaged)
    ended = kprof("insert", workspace)
    assert ended.exit_code == 1
    assert ended.stderr.startswith(f"error: {path}: ")
    assert "Traceback" not in ended.stderr
