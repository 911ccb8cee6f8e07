"""What stands around Triton's compiler: variants, other values of constants, and a workspace that is full."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kprof_inject.capture.edits import WantedValues, combinations
from kprof_inject.runtime.compiling.compiler import call_of, other_values, put_in_place, variant_of, with_room
from kprof_inject.workspace import DumpedKernel, Workspace

pytestmark = pytest.mark.triton

H200 = GPUTarget("cuda", 90, 32)
WORKSPACE = Workspace(Path("ws"))


@dataclass
class Source:
    """As much of Triton's ASTSource as identifies a variant. ``own_options`` are those set on the kernel itself."""

    name: str = "gemm"
    code: str = "0123abcd" * 8
    own_options: dict[str, Any] = field(default_factory=dict)

    def hash(self) -> str:
        return self.code

    def parse_options(self) -> dict[str, Any]:
        return self.own_options


def variant(*, source: Source | None = None, target: GPUTarget = H200, **options: Any) -> DumpedKernel:
    return variant_of(WORKSPACE, source or Source(), target, options or {}, {})


@pytest.mark.parametrize(
    "changed",
    [
        {"num_warps": 8},
        {"num_stages": 4},
        {"num_ctas": 2},
        {"maxnreg": 64},
        {"target": GPUTarget("cuda", 100, 32)},
        {"source": Source(own_options={"num_warps": 8})},
        {"source": Source(code="f" * 64)},
    ],
    ids=["warps", "stages", "CTAs", "registers", "target", "the kernel's own options", "code"],
)
def test_each_of_these_makes_another_variant(changed: dict[str, Any]) -> None:
    assert variant(**changed).variant != variant().variant


def test_options_do_not_change_the_folder_that_triton_looks_in() -> None:
    assert variant(num_warps=8).info.override_key == variant(num_warps=4).info.override_key
    assert variant(source=Source(code="f" * 64)).info.override_key != variant().info.override_key
    assert variant(num_warps=4) == variant(), "a default is the same variant whether given or not"


def test_the_form_of_the_call_does_not_matter() -> None:
    options = {"num_warps": 8}
    by_position = variant_of(WORKSPACE, *call_of(triton.compile, (Source(), H200, options), {}), {})
    named = {"src": Source(), "target": H200, "options": options}
    by_name = variant_of(WORKSPACE, *call_of(triton.compile, (), named), {})
    assert by_position == by_name == variant(num_warps=8)
    assert variant_of(WORKSPACE, *call_of(triton.compile, (Source(), H200, None), {}), {}) == variant()


def test_a_module_from_a_file_is_a_variant_that_the_program_puts_in_place() -> None:
    fixture = Path(__file__).parents[2] / "ttgir_fixtures" / "3.6.0" / "cuda-90" / "matmul.ttgir"
    found = variant_of(WORKSPACE, str(fixture), H200, {}, {})
    assert (found.name, found.info.options["num_warps"], put_in_place(found)) == ("matmul_kernel", 4, str(fixture))
    assert put_in_place(variant()) == ""


@pytest.mark.parametrize(
    ("name", "key", "file_name"),
    [("../a b/<lambda>", ".._a_b__lambda_", "../a b/<lambda>"), ("k" * 300, "k" * 80, "k" * 150)],
)
def test_names_are_fit_for_files_and_cut_as_triton_cuts_them(name: str, key: str, file_name: str) -> None:
    found = variant(source=Source(name=name))
    assert (found.name, found.variant.rpartition("-")[0], found.info.file_name) == (name, key, file_name)


# TTIR with other values of constants

TARGET = GPUTarget("cuda", 90, 32)


@triton.jit
def rows(x_ptr, out_ptr, length, BLOCK: tl.constexpr, IS_EVEN: tl.constexpr, HALF: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None if IS_EVEN else places < length
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=mask) * HALF, mask=mask)


def source(**constants: Any) -> ASTSource:
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "length": "i32", **dict.fromkeys(constants, "constexpr")}
    return ASTSource(rows, signature, constants, {(0,): [["tt.divisibility", 16]]})


GIVEN = {"BLOCK": 256, "IS_EVEN": False, "HALF": 0.5}


def made(**wanted: Any) -> dict[str, str]:
    others = other_values(source(**GIVEN), TARGET, {"num_warps": 8}, wanted)
    return {one.text: one.ttir or one.refusal for one in others}


def test_the_text_is_what_triton_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))  # the user's may have it from another checkout
    found = made(BLOCK=(512,), IS_EVEN=(True,))
    assert list(found) == ["BLOCK=256,IS_EVEN=True", "BLOCK=512,IS_EVEN=False", "BLOCK=512,IS_EVEN=True"]
    for text, values in zip(found.values(), [(256, True), (512, False), (512, True)], strict=True):
        block, is_even = values
        constants = {**GIVEN, "BLOCK": block, "IS_EVEN": is_even}
        assert text == triton.compile(source(**constants), target=TARGET, options={"num_warps": 8}).asm["ttir"]


def test_values_that_triton_refuses() -> None:
    (refusal,) = made(BLOCK=(100,)).values()
    assert refusal.startswith("Triton refuses them: ")


def test_kernels_without_the_constants_have_no_others() -> None:
    assert made(OTHER=(1,)) == {}
    assert made(HALF=(1,)) == {}, "it is no integer"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"A": (2,)}, [{"A": 2}]),
        ({"A": (1,)}, []),
        ({"A": (2,), "C": (5,)}, [{"A": 2}]),
        ({"A": (2,), "B": (True,)}, [{"A": 1, "B": True}, {"A": 2, "B": False}, {"A": 2, "B": True}]),
    ],
)
def test_combinations(wanted: WantedValues, expected: list[dict[str, Any]]) -> None:
    assert combinations(wanted, {"A": 1, "B": False}) == expected


# What stands around Triton's compiler


def test_where_the_workspace_is_full_the_compiler_works_elsewhere(tmp_path: Path) -> None:
    def compile(source: str) -> tuple[str, str]:
        if Path(knobs.cache.dir).parent == tmp_path:
            raise OSError(errno.ENOSPC, "No space left on device")
        return source, knobs.cache.dir

    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path / "cache")
        source, cache = with_room(compile)("kernel")
        assert (source, knobs.cache.dir) == ("kernel", str(tmp_path / "cache"))
    assert not Path(cache).exists()


def test_other_failures_of_the_compiler_are_the_programs() -> None:
    def compile() -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "ptxas")

    with pytest.raises(FileNotFoundError, match="ptxas"):
        with_room(compile)()
