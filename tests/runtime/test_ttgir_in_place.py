"""TTGIR that the program puts in place is recorded as it is; TTGIR that it no longer compiles is left alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_gpu.captured import launches_in, scopes_of, states_in
from fake_runs import FakeRuns
from programs.child import Ended, run_child

from kprof_inject.insertion import insert_kernels, write_insertions
from kprof_inject.runtime.compiling.compiler import put_in_place
from kprof_inject.workspace import DumpedKernel, Workspace

pytestmark = pytest.mark.triton

ONE, TWO = "= arith.constant 1.000000e+00", "= arith.constant 2.000000e+00"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def power_of(runs: FakeRuns) -> tuple[Workspace, DumpedKernel]:
    workspace = Workspace(runs.workspace)
    return workspace, next(kernel for kernel in workspace.kernels() if kernel.name == "power")


def dumped_while_overridden(workspace: Workspace, kernel: DumpedKernel) -> None:
    edit(kernel.ttgir_path, ONE, TWO)
    write_insertions(workspace, insert_kernels(workspace, ()))


def edited_with_records(workspace: Workspace, kernel: DumpedKernel) -> None:
    edit(workspace.override_path(kernel), ONE, TWO)


@pytest.mark.parametrize("change", [dumped_while_overridden, edited_with_records], ids=lambda one: one.__name__)
def test_what_the_program_does_not_compile_now_is_neither_recorded_nor_saved(
    fake_runs: FakeRuns, change: Callable[[Workspace, DumpedKernel], None]
) -> None:
    change(*power_of(fake_runs))
    with fake_runs.here(saved=fake_runs.all_launches()) as run:
        run.launch_power(3)
    assert run.ran() == [("power", False)]
    ((state, _),) = run.states().items()
    assert state[:2] == ("power", "left alone") and state[2].startswith("its TTGIR in the workspace is not what")
    is_saved = change is edited_with_records  # what ``kernels`` has is the program's
    assert len(list((fake_runs.folder / "launches").glob("*"))) == is_saved


def test_other_folders_in_locations_are_no_other_code(fake_runs: FakeRuns) -> None:
    workspace, kernel = power_of(fake_runs)
    edit(kernel.ttgir_path, "fake_gpu/kernels.py", "elsewhere/kernels.py")
    write_insertions(workspace, insert_kernels(workspace, ()))
    with fake_runs.here() as run:
        run.launch_power(3)
    assert run.ran() == [("power", True)]


PROGRAM = """
from fake_gpu.program import gpu  # isort: skip  (before Triton)
import sys
import torch
import triton
from fake_gpu.kernels import power

triton.knobs.compilation.store_binary_only = sys.argv[1] == "binary"
x, out = torch.arange(1, 17, dtype=torch.float32), torch.zeros(16)
for n in range(3):
    if sys.argv[1] == "files":
        for path in sys.argv[2:]:
            triton.compile(path)[(16, 1, 1)](x, out, n)
    else:
        power[(16,)](x, out, n, **({"ir_override": sys.argv[2]} if sys.argv[1] == "option" else {}))
print(out.tolist())
"""


def ttgir_in_place(runs: FakeRuns) -> Path:
    """The kernel's TTGIR with another constant, in a folder of overrides."""
    _, kernel = power_of(runs)
    ttgir = runs.folder / "mine" / kernel.info.override_key / "power.ttgir"
    ttgir.parent.mkdir(parents=True)
    ttgir.write_text(kernel.ttgir().replace(ONE, TWO))
    return ttgir


def own(runs: FakeRuns, step: str, *words: str | Path, env: dict[str, str] | None = None) -> Ended:
    """Dump or profile ``PROGRAM`` to a workspace of its own."""
    (runs.folder / "program.py").write_text(PROGRAM)
    options = ["--replay", "none"] if step == "profile" else []
    return runs.kprof(step, "-o", runs.folder / "own", *options, "--", "program.py", *words, env=env)


def overriding(path: Path) -> dict[str, str]:
    return {"TRITON_KERNEL_OVERRIDE": "1", "TRITON_OVERRIDE_DIR": str(path.parents[1])}


@pytest.mark.parametrize("way", ["option", "environment", "files"])
def test_ttgir_that_the_program_puts_in_place_is_recorded(fake_runs: FakeRuns, way: str) -> None:
    ttgir = ttgir_in_place(fake_runs)
    ended = own(fake_runs, "profile", way, ttgir, env=overriding(ttgir) if way == "environment" else None)
    workspace = Workspace(fake_runs.folder / "own")
    (kernel,) = workspace.kernels()
    assert TWO in kernel.ttgir() and TWO in workspace.override_path(kernel).read_text()
    (launch,) = launches_in(workspace.last_capture_folder())
    assert set(scopes_of(launch)) == {"func", "loop[0]", "iter[0]"}, ended.stderr
    assert f"power: the program puts its TTGIR in place: {ttgir}" in ended.stderr
    assert f"TTGIR: the program's own, {ttgir.name}" in fake_runs.kprof("report", workspace.folder, "-v").stdout


@pytest.mark.parametrize("text", [None, b"\xff"], ids=["whole", "bytes"])
def test_ttgir_that_triton_ignores_is_not_said_to_be_in_place(fake_runs: FakeRuns, text: bytes | None) -> None:
    """Triton looks for overrides only if it compiles, and has the kernel in the program's cache."""
    ttgir = ttgir_in_place(fake_runs)
    if text is not None:
        ttgir.write_bytes(text)
    (fake_runs.folder / "program.py").write_text(PROGRAM)
    run_child([sys.executable, "program.py", "environment"], fake_runs.folder, env=fake_runs.environment())
    ended = own(fake_runs, "profile", "environment", env=overriding(ttgir))
    workspace = Workspace(fake_runs.folder / "own")
    (kernel,) = workspace.kernels()
    assert TWO not in kernel.ttgir()
    assert len(launches_in(workspace.last_capture_folder())) == 1
    assert "in place" not in ended.stderr and put_in_place(kernel) == ""


def test_what_is_not_made_of_ttgir_is_left_alone(fake_runs: FakeRuns) -> None:
    ptx = ttgir_in_place(fake_runs).with_suffix(".ptx")
    ptx.write_bytes((power_of(fake_runs)[1].ttgir_path.parent / "build" / "power.ptx").read_bytes())
    ended = own(fake_runs, "profile", "environment", env=overriding(ptx))
    (state,) = states_in(fake_runs.folder / "own" / "reports" / "dump")
    assert state == ("power", "left alone", f"the program replaces what is made of its TTGIR by {ptx}"), ended.stderr


def test_a_dump_has_kernels_from_files_too(fake_runs: FakeRuns) -> None:
    ttgir = ttgir_in_place(fake_runs)
    ended = own(fake_runs, "dump", "files", ttgir)
    (kernel,) = Workspace(fake_runs.folder / "own").kernels()
    assert (kernel.name, kernel.info.signature) == ("power", {"0": "*fp32", "1": "*fp32", "2": "i32"})
    assert f"power: the program puts its code in place: {ttgir}" in ended.stderr and "GPU" not in ended.stderr


def test_a_kernel_without_ttgir_is_left_out_by_its_own_reason(fake_runs: FakeRuns) -> None:
    ended = own(fake_runs, "dump", "binary")
    assert ended.exit_code == 1 and "GPU" not in ended.stderr
    assert "power: Triton keeps no TTGIR of it" in "".join(ended.errors())
