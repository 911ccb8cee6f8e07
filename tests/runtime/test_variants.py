"""What tells compiled variants apart, and what does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget

from kprof_inject.runtime.compiling.compiler import call_of, put_in_place, variant_of
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


def test_a_default_is_the_same_variant_whether_given_or_not() -> None:
    given = variant(num_warps=4)
    assert given == variant()
    assert given.info.options["num_warps"] == 4


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


def test_the_key_is_fit_for_a_file_name() -> None:
    odd = variant(source=Source(name="../a b/<lambda>"))
    assert odd.variant.rpartition("-")[0] == ".._a_b__lambda_"
    assert odd.name == "../a b/<lambda>"


def test_names_are_cut_as_triton_cuts_them() -> None:
    long = variant(source=Source(name="k" * 300))
    assert long.name == "k" * 300
    assert long.info.file_name == "k" * 150
    assert long.variant.rpartition("-")[0] == "k" * 80
