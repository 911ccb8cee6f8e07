"""Six kernels to compare: how each is compiled for an H100, and how it is launched. Only launching needs a GPU.

    python kernels.py NAME... [--launches N]

Four are examples. The two others are a column sum, whose loads are pipelined without a dot, and a grouped matmul on
single precision, which takes the tensor cores' smaller instructions. Those with dots, and the column sum, have at most
one CTA for each SM: one that takes longer makes the launch longer.
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
class Call:
    """What one launch takes: all arguments that are not constant, by name. ``out`` is the one that it writes."""

    grid: tuple[int, ...]
    values: Mapping[str, Any]
    out: str


@dataclass(frozen=True)
class Kernel:
    """``signature`` has the types of the arguments that are not constant, ``:16`` behind those that 16 divides.
    ``call`` makes them on the GPU."""

    function: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    call: Callable[[], Call]
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

    def signature_order(self) -> list[str]:
        """The arguments that are not constant, as the compiled function takes them."""
        return [name for name in self.function.arg_names if name in self.signature]

    def launcher(self) -> Callable[[], object]:
        """Launches it as programs do."""
        call = self.call()
        return lambda: self.function[call.grid](**call.values, **self.constants, **self.options)

    def line(self, code: str) -> int:
        """The number of the first line of its file that reads so."""
        lines = Path(self.function.fn.__code__.co_filename).read_text().splitlines()
        return 1 + next(at for at, line in enumerate(lines) if line.partition("#")[0].strip() == code)


def _halves(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def _singles(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda")


def _matmul() -> Call:
    m, n, k = 1024, 2048, 4096
    matrices = {"a_ptr": _halves(m, k), "b_ptr": _halves(k, n), "c_ptr": _halves(m, n)}
    strides = {"stride_am": k, "stride_bk": n, "stride_cm": n}
    return Call((m // 128 * (n // 128),), {**matrices, "M": m, "N": n, "K": k, **strides}, "c_ptr")


def _attention() -> Call:
    heads, length, dims = 8, 2048, 64
    tensors = {name: _halves(heads, length, dims) for name in ("q_ptr", "k_ptr", "v_ptr", "out_ptr")}
    sizes = {"stride_head": length * dims, "stride_row": dims, "seq_len": length}
    return Call((length // 128, heads), {**tensors, **sizes, "scale": dims**-0.5}, "out_ptr")


def _softmax() -> Call:
    rows, columns = 8192, 2048
    programs = 4 * torch.cuda.get_device_properties("cuda").multi_processor_count
    matrices = {"x_ptr": _halves(rows, columns), "out_ptr": _halves(rows, columns)}
    return Call((programs,), {**matrices, "rows": rows, "columns": columns, "stride_row": columns}, "out_ptr")


def _layer_norm() -> Call:
    rows, columns = 2048, 4096
    matrices = {"x_ptr": _halves(rows, columns), "out_ptr": _halves(rows, columns)}
    vectors = {"weight_ptr": _singles(columns), "bias_ptr": _singles(columns)}
    sizes = {"columns": columns, "stride_row": columns, "epsilon": 1e-5}
    return Call((rows,), {**matrices, **vectors, **sizes}, "out_ptr")


def _column_sums() -> Call:
    rows, columns = 2048, 16384
    arrays = {"x_ptr": _singles(rows, columns), "out_ptr": _singles(columns)}
    return Call((columns // 128,), {**arrays, "rows": rows, "columns": columns}, "out_ptr")


def _grouped_matmul() -> Call:
    groups, m, n, k = 8, 32, 1024, 2048
    arrays = {"a_ptr": _singles(groups, m, k), "b_ptr": _singles(groups, k, n), "c_ptr": _singles(groups, m, n)}
    depths = torch.tensor([k - 128 * group for group in range(groups)], device="cuda", dtype=torch.int32)
    return Call((n // 64, groups), {**arrays, "depths_ptr": depths, "N": n, "K": k}, "c_ptr")


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
    "layer_norm": Kernel(
        example("layer_norm").layer_norm_kernel,
        _of("*fp16:16", "x_ptr", "out_ptr")
        | _of("*fp32:16", "weight_ptr", "bias_ptr")
        | _of("i32:16", "columns", "stride_row")
        | {"epsilon": "fp32"},
        {"BLOCK": 1024, "EVEN": True},
        _layer_norm,
    ),
    "column_sums": Kernel(
        column_sums_kernel,
        _of("*fp32:16", "x_ptr", "out_ptr") | _of("i32:16", "rows", "columns"),
        {"ROWS": 16, "COLUMNS": 128, "STAGES": 3},
        _column_sums,
    ),
    "grouped_matmul": Kernel(
        grouped_matmul_kernel,
        _of("*fp32:16", "a_ptr", "b_ptr", "c_ptr") | _of("i32:16", "N", "K") | {"depths_ptr": "*i32:16"},
        {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "PRECISION": "tf32"},
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
        launch = KERNELS[name].launcher()
        for _ in range(options.launches):
            launch()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
