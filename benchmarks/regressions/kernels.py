"""Five kernels to change: how each is compiled for an H100, and how it is launched. Only launching needs a GPU.

    python kernels.py NAME... [--launches N]

Three are examples. The two others are a column sum, whose loads are pipelined without a dot, and a grouped matmul on
single precision, which takes the tensor cores' smaller instructions. Each has at most one CTA for each SM, but for the
softmax, so that a CTA that takes longer makes the launch longer.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HOPPER = GPUTarget("cuda", 90, 32)


@triton.jit
def column_sums_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr):
    inner = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x_ptrs = x_ptr + tl.arange(0, ROWS)[:, None] * columns + inner[None, :]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for _ in tl.range(0, rows, ROWS, num_stages=STAGES):
        x = tl.load(x_ptrs)
        total = total * 0.5 + x
        x_ptrs += ROWS * columns
    tl.store(out_ptr + inner, tl.sum(total, axis=0))


@triton.jit
def grouped_matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    depths_ptr,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """BLOCK_M rows of each group, which are as deep as ``depths_ptr`` says."""
    group = tl.program_id(1)
    depth = tl.load(depths_ptr + group)
    rows, inner = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    a_ptrs = a_ptr + group * BLOCK_M * K + rows[:, None] * K + inner[None, :]
    b_ptrs = b_ptr + group * K * N + inner[:, None] * N + columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, depth, BLOCK_K):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    tl.store(c_ptr + group * BLOCK_M * N + rows[:, None] * N + columns[None, :], acc)


@cache
def example(name: str) -> ModuleType:
    path = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"no example {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Kernel:
    """``signature`` has the types of the arguments that are not constant, ``:16`` behind those that 16 divides.
    ``prepare`` makes the arguments on the GPU, and returns what launches it."""

    function: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    prepare: Callable[[], Callable[[], object]]
    options: Mapping[str, Any] = field(default_factory=lambda: {"num_warps": 4, "num_stages": 3})

    def compiled(self, **changed: Any) -> Any:
        """Down to machine code. ``changed`` are constants or options with other values."""
        constants = {name: changed.get(name, value) for name, value in self.constants.items()}
        names = self.function.arg_names
        types = [(name, self.signature.get(name, "constexpr")) for name in names]
        source = triton.compiler.ASTSource(
            self.function,
            {name: kind.removesuffix(":16") for name, kind in types},
            constants,
            {(at,): [["tt.divisibility", 16]] for at, (_, kind) in enumerate(types) if kind.endswith(":16")},
        )
        options = {name: changed.get(name, value) for name, value in self.options.items()}
        return triton.compile(source, target=HOPPER, options=options)

    def line(self, code: str) -> int:
        """The number of the first line of its file that reads so."""
        lines = Path(self.function.fn.__code__.co_filename).read_text().splitlines()
        return 1 + next(at for at, line in enumerate(lines) if line.partition("#")[0].strip() == code)


def _halves(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def _matmul() -> Callable[[], object]:
    a, b = _halves(1024, 4096), _halves(4096, 2048)
    return lambda: example("matmul").matmul(a, b)


def _attention() -> Callable[[], object]:
    q, k, v = (_halves(1, 8, 2048, 64) for _ in range(3))
    return lambda: example("attention").attention(q, k, v, False)


def _softmax() -> Callable[[], object]:
    x = _halves(8192, 2048)
    return lambda: example("softmax").softmax(x)


COLUMN_SUMS = {"ROWS": 16, "COLUMNS": 128, "STAGES": 3}


def _column_sums() -> Callable[[], object]:
    rows, columns = 2048, 128 * COLUMN_SUMS["COLUMNS"]
    x, out = torch.randn(rows, columns, device="cuda"), torch.empty(columns, device="cuda")
    return lambda: column_sums_kernel[(128,)](x, out, rows, columns, **COLUMN_SUMS, num_warps=4, num_stages=3)


GROUPED = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "PRECISION": "tf32"}


def _grouped_matmul() -> Callable[[], object]:
    groups, n, k = 8, 1024, 2048
    a, b = (torch.randn(groups, *shape, device="cuda") for shape in ((32, k), (k, n)))
    c = torch.empty(groups, 32, n, device="cuda")
    depths = torch.tensor([k - 128 * group for group in range(groups)], device="cuda", dtype=torch.int32)
    grid = (n // 64, groups)
    return lambda: grouped_matmul_kernel[grid](a, b, c, depths, n, k, **GROUPED, num_warps=4, num_stages=3)


def _of(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


KERNELS = {
    "matmul": Kernel(
        example("matmul").matmul_kernel,
        _of("*fp16:16", "a_ptr", "b_ptr", "c_ptr")
        | _of("i32:16", "M", "N", "K", "stride_am", "stride_bk", "stride_cm"),
        {"stride_ak": 1, "stride_bn": 1, "stride_cn": 1}
        | {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "EVEN_K": True},
        _matmul,
    ),
    "attention": Kernel(
        example("attention").attention_kernel,
        _of("*fp16:16", "q_ptr", "k_ptr", "v_ptr", "out_ptr")
        | _of("i32:16", "stride_head", "stride_row", "seq_len")
        | {"scale": "fp32"},
        {"CAUSAL": False, "BLOCK_M": 128, "BLOCK_N": 64, "HEAD_DIM": 64},
        _attention,
    ),
    "softmax": Kernel(
        example("softmax").softmax_kernel,
        _of("*fp16:16", "x_ptr", "out_ptr") | _of("i32:16", "rows", "columns", "stride_row"),
        {"BLOCK": 2048},
        _softmax,
    ),
    "column_sums": Kernel(
        column_sums_kernel,
        _of("*fp32:16", "x_ptr", "out_ptr") | _of("i32:16", "rows", "columns"),
        COLUMN_SUMS,
        _column_sums,
    ),
    "grouped_matmul": Kernel(
        grouped_matmul_kernel,
        _of("*fp32:16", "a_ptr", "b_ptr", "c_ptr") | _of("i32:16", "N", "K") | {"depths_ptr": "*i32:16"},
        GROUPED,
        _grouped_matmul,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*KERNELS, []], metavar="NAME", default=[])
    parser.add_argument("--launches", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    for name in options.names or KERNELS:
        launch = KERNELS[name].prepare()
        for _ in range(options.launches):
            launch()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
