"""What variants of one kernel are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from known_launch import known_launch
from replacing import replace

from kprof_inject.capture.model import Kernel
from kprof_inject.kernel_names import kernel_names, without_inner_types


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return known_launch(tmp_path).launch.kernel


def variant(kernel: Kernel, name: str, variant: str, **metadata: Any) -> Kernel:
    return replace(kernel, name=name, variant=variant, metadata=metadata)


def test_a_single_variant_has_the_kernels_name(kernel: Kernel) -> None:
    add = variant(kernel, "add", "add-0", num_stages=2)
    # Of another process, too.
    again = replace(add, folder=add.folder / "other")
    mul = variant(kernel, "mul", "mul-0", num_stages=3)
    assert kernel_names([add, again, mul]) == {"add-0": "add", "mul-0": "mul"}


def test_variants_are_told_apart_by_what_an_autotuner_varied(kernel: Kernel) -> None:
    two = variant(kernel, "add", "add-0", num_stages=2, num_warps=4)
    three = variant(kernel, "add", "add-1", num_stages=3, num_warps=4)
    assert kernel_names([two, three]) == {"add-0": "add-0 (num_stages 2)", "add-1": "add-1 (num_stages 3)"}


def test_variants_of_which_nothing_is_known_are_called_as_their_folders(kernel: Kernel) -> None:
    known, unknown = variant(kernel, "add", "add-0", maxnreg=128), variant(kernel, "add", "add-1")
    assert kernel_names([known, unknown]) == {"add-0": "add-0 (maxnreg 128)", "add-1": "add-1"}
    assert kernel_names([replace(unknown, variant="add-2"), unknown]) == {"add-2": "add-2", "add-1": "add-1"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("matmul_kernel", "matmul_kernel"),
        ("sm80_xmma_gemm_f32f32_cublas", "sm80_xmma_gemm_f32f32_cublas"),
        (
            "at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MaxNanFunctor<float> > >",
            "at::native::reduce_kernel<512, 1, ReduceOp>",
        ),
        (
            "at::native::unrolled<at::native::copy(at::Iterator&)::{lambda()#3}::operator()() const, std::array<char*, "
            "2ul>, 4, Calculator<1, unsigned int> >",
            "at::native::unrolled<copy, array, 4, …>",
        ),
        (
            "void at::native::(anonymous namespace)::fill<4, at::(anonymous namespace)::Fill<long>, (at::Mode)1>(int, "
            "at::(anonymous namespace)::Fill<long>)",
            "at::native::fill<4, Fill, 1>",
        ),
        ("void <unnamed>::count(long const*, int)", "count"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("axpy<float>", "axpy<float>"),
        ("operator<", "operator<"),
    ],
)
def test_the_types_of_a_kernel_of_cpp_are_short(name: str, shown: str) -> None:
    assert without_inner_types(name) == shown
