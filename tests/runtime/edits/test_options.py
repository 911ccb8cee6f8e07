"""Edits of compile options and of the compiler's environment: which values are proposed, set and refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton
from edited_kernels import H100, kernel_to_edit
from fake_gpu.kernels import power
from loops_in_ttir import SUM
from triton import knobs
from triton.compiler import ASTSource

from kprof_inject.capture.edits import Edit
from kprof_inject.capture.resources import Resources
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.builds import Build, assembly_in, code_lines, compile_text, compiled
from kprof_inject.runtime.worker.edit import EditRefused, KernelToEdit
from kprof_inject.runtime.worker.edit_kinds import KINDS, parse_edits, with_options

LOOP = "scf.for"


@pytest.mark.parametrize(
    ("kind", "options", "more", "fewer"),
    [
        ("num_stages", {"num_stages": 1}, ["2", "3"], []),
        ("num_stages", {"num_stages": 3}, ["4", "5"], ["2", "1"]),
        ("num_stages", {"num_stages": 6}, [], ["5", "4"]),
        ("num_warps", {"num_warps": 1}, ["2", "4", "8", "16"], []),
        ("num_warps", {"num_warps": 8}, ["16"], ["4", "2"]),
        ("env", {}, ["DISABLE_LLVM_OPT=disable-lsr"], []),
    ],
)
def test_values_next_to_the_present_one(kind: str, options: dict[str, int], more: list[str], fewer: list[str]) -> None:
    kernel = kernel_to_edit("", LOOP, **options)
    assert list(KINDS[kind].more(kernel)) == more
    assert list(KINDS[kind].fewer(kernel)) == fewer


def test_without_a_loop_there_is_nothing_to_pipeline() -> None:
    kernel = kernel_to_edit("", "arith.addi", num_stages=3)
    assert [*KINDS["num_stages"].more(kernel), *KINDS["num_stages"].fewer(kernel)] == []


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "warps", "wanted"),
    [
        (128, 0, 8, ["80"]),  # 2 CTAs of 65536 registers; 3 with 80: 10 times 256 for each of 24 warps
        (255, 0, 4, ["168"]),
        (32, 0, 4, []),  # 16 CTAs by the number of warps
        (128, 200_000, 8, []),  # one CTA, by its shared memory
    ],
)
def test_registers_with_which_a_cta_more_fits(registers: int, shared_bytes: int, warps: int, wanted: list[str]) -> None:
    kernel = kernel_to_edit("", LOOP, Resources(registers=registers, shared_bytes=shared_bytes), num_warps=warps)
    assert list(KINDS["maxnreg"].fewer(kernel)) == wanted


@pytest.mark.triton
def test_an_option_is_set_and_the_ttir_compiled_again() -> None:
    edited = with_options(kernel_to_edit("", LOOP), [Edit("num_warps", "8"), Edit("num_stages", "2")])
    assert (edited.record.options["num_warps"], edited.record.options["num_stages"]) == (8, 2)
    assert edited.stage == "ttir"
    switched = with_options(kernel_to_edit("", LOOP), [Edit("env", "DISABLE_LLVM_OPT=disable-lsr")])
    assert switched.record.environment == {"DISABLE_LLVM_OPT": "disable-lsr"}


@pytest.mark.parametrize(
    ("kernel", "edit", "reason"),
    [
        (kernel_to_edit("", LOOP), "num_warps=3", "power of two"),
        (kernel_to_edit("", LOOP), "num_warps=64", "1 to 32"),
        (kernel_to_edit("", LOOP), "num_stages=many", "1 to 8"),
        (kernel_to_edit("", LOOP), "env=LD_PRELOAD=x.so", "is not DISABLE_LLVM_OPT=disable-lsr"),
        (kernel_to_edit(""), "num_stages=2", "no TTIR"),
        (kernel_to_edit("ttg.warp_specialize", LOOP), "num_warps=8", "warp specialization"),
        (kernel_to_edit("", LOOP, ir_override="x.ttgir"), "num_stages=2", "ir_override"),
    ],
)
def test_refused(kernel: KernelToEdit, edit: str, reason: str) -> None:
    with pytest.raises(EditRefused, match=reason):
        with_options(kernel, parse_edits(edit))


def test_several_edits_are_told_from_values_with_commas() -> None:
    edits = parse_edits("num_warps=8,values=A=1,B=2,num_stages=4")
    assert [str(edit) for edit in edits] == ["num_warps=8", "values=A=1,B=2", "num_stages=4"]


@pytest.mark.parametrize("text", ["num_warp=8", "num_warps", "num_warps=", "num_warps=8,num_warps=4"])
def test_what_is_no_edit_is_a_usage_error(text: str) -> None:
    with pytest.raises(KprofError) as caught:
        parse_edits(text)
    assert caught.value.exit_code == 2
    assert caught.value.hint


@pytest.fixture(scope="module")
def from_source(tmp_path_factory: pytest.TempPathFactory) -> KernelToEdit:
    """The kernel ``power``, as a program compiles it, with its TTIR."""
    source = ASTSource(power, {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"})
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path_factory.mktemp("cache"))
        made = triton.compile(source, target=H100)
    return kernel_to_edit(made.asm["ttgir"], made.asm["ttir"])


@pytest.mark.triton
@pytest.mark.parametrize("edit", ["num_warps=8", "num_stages=1", "maxnreg=64"])
def test_edited_options_become_machine_code(from_source: KernelToEdit, edit: str, tmp_path: Path) -> None:
    """Not in this process: LLVM keeps a switch until its process ends."""
    kernel = with_options(from_source, parse_edits(edit))
    build = Build(kernel.ttir, kernel.record, "ttir")
    assert list(compiled([build], tmp_path)) == [None]
    (cubin,) = (tmp_path / build.name).glob("*.cubin")
    assert cubin.read_bytes()[:4] == b"\x7fELF"
    assert (".maxnreg 64" in assembly_in(tmp_path / build.name)) == (edit == "maxnreg=64")


@pytest.mark.triton
def test_a_switch_alters_its_own_build_alone(tmp_path: Path) -> None:
    plain = kernel_to_edit("", SUM)
    switched = with_options(plain, [Edit("env", "DISABLE_LLVM_OPT=disable-lsr")])
    records = [plain.record, switched.record] * 2
    # Different texts, so that each is compiled.
    builds = [Build(f"{plain.ttir}\n// {number}", record, "ttir") for number, record in enumerate(records)]
    (tmp_path / "alone").mkdir()
    compile_text(plain.ttir, plain.record, tmp_path / "alone", "ttir")
    assert list(compiled(builds, tmp_path)) == [None] * 4
    codes = [code_lines(assembly_in(tmp_path / build.name)) for build in builds]
    assert codes[0] == codes[2] == code_lines(assembly_in(tmp_path / "alone"))
    assert codes[1] == codes[3] != codes[0]
