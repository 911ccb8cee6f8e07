"""Kernels, and what the fake GPU computes in place of each.

The more that ``n`` is, the longer each scope takes: by it, a launch is known in a capture.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
import triton
import triton.language as tl

_LEAST_CYCLES = 10_000


@triton.jit(do_not_specialize=["n"])
def scale(x_ptr, out_ptr, n):
    """out = n * x, an element for each program."""
    pid = tl.program_id(0)
    tl.store(out_ptr + pid, tl.load(x_ptr + pid) * n)


@triton.jit(do_not_specialize=["n"])
def power(x_ptr, out_ptr, n):
    """out = x to the n."""
    pid = tl.program_id(0)
    x = tl.load(x_ptr + pid)
    result = 1.0
    for _ in range(n):
        result = result * x
    tl.store(out_ptr + pid, result)


@triton.jit(do_not_specialize=["n"])
def blocks(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = n * x, BLOCK elements for each program."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + places) * n)


@triton.autotune(
    [triton.Config({}, num_warps=warps, num_stages=stages) for warps in (4, 8) for stages in (2, 4)], key=[]
)
@triton.jit(do_not_specialize=["n"])
def tuned(x_ptr, out_ptr, n):
    """out = x + n."""
    pid = tl.program_id(0)
    tl.store(out_ptr + pid, tl.load(x_ptr + pid) + n)


@triton.jit(noinline=True)
def clamped_sum(a, b):
    if a > 1000.0:
        return a
    return a + b


@triton.jit
def total(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """out = the sum of x. With records Proton cannot lower it: no helper of two blocks is inlined in a reduction."""
    tl.store(out_ptr, tl.reduce(tl.load(x_ptr + tl.arange(0, BLOCK)), 0, clamped_sum))


@triton.jit(do_not_specialize=["n"])
def follow(table_ptr, out_ptr, n):
    """out = the value at the address to which ``n`` addresses lead, the first of them in the table."""
    address = tl.load(table_ptr)
    for _ in range(1, n):
        address = tl.load(address.to(tl.pointer_type(tl.int64)))
    pid = tl.program_id(0)
    tl.store(out_ptr + pid, tl.load(address.to(tl.pointer_type(tl.float32)) + pid))


def _by_element(compute: Callable[[torch.Tensor, int], torch.Tensor]) -> Callable[..., int]:
    def host_kernel(grid: tuple[int, int, int], x: torch.Tensor, out: torch.Tensor, n: int) -> int:
        out[: grid[0]] = compute(x[: grid[0]], n)
        return cycles_of(n)

    return host_kernel


def _blocks(grid: tuple[int, int, int], x: torch.Tensor, out: torch.Tensor, n: int, BLOCK: int) -> int:
    return _by_element(lambda x, n: x * n)((16, 1, 1), x, out, n)


def _total(grid: tuple[int, int, int], x: torch.Tensor, out: torch.Tensor, BLOCK: int) -> int:
    out[0] = x[:BLOCK].sum()
    return cycles_of(BLOCK)


def _follow(grid: tuple[int, int, int], table: torch.Tensor, out: torch.Tensor, n: int) -> int:
    address = table.data_ptr()
    for _ in range(n):
        address = ctypes.c_int64.from_address(address).value
    ctypes.memmove(out.data_ptr(), address, 4 * grid[0])
    return cycles_of(n)


def cycles_of(n: int) -> int:
    """How long after a record of such a launch the next one comes."""
    return _LEAST_CYCLES + n


def n_of(cycles: int) -> int:
    return cycles - _LEAST_CYCLES


HOST_KERNELS = {
    "scale": _by_element(lambda x, n: x * n),
    "blocks": _blocks,
    "power": _by_element(lambda x, n: x**n),
    "tuned": _by_element(lambda x, n: x + n),
    "total": _total,
    "follow": _follow,
}
