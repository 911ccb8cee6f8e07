"""What tells variants of one kernel apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kprof_inject.capture.schema import DumpedKernelRecord, Target
from kprof_inject.kernel_names import differing_facts, facts_in_words
from kprof_inject.workspace import DumpedKernel


def kernel(variant: str, name: str = "matmul", arch: int = 90, constants: Any = None, **options: Any) -> DumpedKernel:
    info = DumpedKernelRecord(
        name=name,
        override_key=name,
        file_name=name,
        target=Target("cuda", arch),
        options={"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "arch": f"sm{arch}"} | options,
        constants=constants or {},
    )
    return DumpedKernel(variant, info, Path(variant))


def words(*kernels: DumpedKernel) -> list[str]:
    found = differing_facts(kernels)
    return [facts_in_words(found[kernel.variant]) for kernel in kernels]


def test_a_kernel_without_namesakes_needs_nothing() -> None:
    assert words(kernel("a"), kernel("b", "softmax", num_warps=8)) == ["", ""]


def test_every_usual_option_that_differs_is_named() -> None:
    kernels = kernel("a"), kernel("b", num_warps=8), kernel("c", "softmax"), kernel("d", num_warps=8, num_stages=4)
    assert words(*kernels) == [
        "num_warps 4, num_stages 3",
        "num_warps 8, num_stages 3",
        "",
        "num_warps 8, num_stages 4",
    ]


def test_an_option_that_is_not_set_is_none() -> None:
    assert words(kernel("a"), kernel("b", maxnreg=128)) == ["maxnreg none", "maxnreg 128"]


def test_constants_and_targets() -> None:
    assert words(kernel("a", constants={"M": "64", "K": "32"}), kernel("b", constants={"M": "128", "K": "32"})) == [
        "M 64",
        "M 128",
    ]
    # The options that follow from a target are not worth a word.
    assert words(kernel("a"), kernel("b", arch=100)) == ["cuda:90", "cuda:100"]


def test_types_of_arguments() -> None:
    half, single = kernel("a"), kernel("b")
    half.info.signature.update({"x": "*fp16", "n": "i32"})
    single.info.signature.update({"x": "*fp32", "n": "constexpr"})
    single.info.constants["n"] = "1"
    assert words(half, single) == ["x *fp16, n i32", "x *fp32, n 1"]


def test_other_options_count_where_the_usual_ones_are_equal() -> None:
    assert words(kernel("a", debug=True), kernel("b", debug=False), kernel("c", num_warps=8, debug=True)) == [
        "num_warps 4, debug True",
        "num_warps 4, debug False",
        "num_warps 8, debug True",
    ]


def test_variants_that_nothing_else_tells_apart_have_their_keys() -> None:
    assert words(kernel("a"), kernel("b"), kernel("c", num_warps=8)) == [
        "num_warps 4, variant a",
        "num_warps 4, variant b",
        "num_warps 8",
    ]
