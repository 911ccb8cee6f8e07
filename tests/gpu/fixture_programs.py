"""Launches kernels of ttgir_fixtures/kernels and saves their results: ``python fixture_programs.py OUT.npz``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ttgir_fixtures" / "kernels"))


def marked_matmul() -> torch.Tensor:
    """256 CTAs of 4 warps; 32 iterations."""
    from marked_matmul import marked_matmul_kernel

    size, k = 2048, 2048
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=torch.float16)
    marked_matmul_kernel[(size // 128, size // 128)](
        a, b, c, size, size, k, k, size, size, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, num_warps=4, num_stages=3
    )
    return c


def marked_attention() -> torch.Tensor:
    """8 by 16 CTAs of 4 warps; CTA i of a head has 2 i iterations without a mask, then 2 with one."""
    from marked_attention import marked_attention_kernel

    heads, rows, dim = 16, 1024, 64
    q, k, v = (torch.randn(heads, rows, dim, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    marked_attention_kernel[(rows // 128, heads)](
        q, k, v, out, rows * dim, dim, dim**-0.5, BLOCK_M=128, BLOCK_N=64, HEAD_DIM=dim, num_warps=4, num_stages=3
    )
    return out


def ragged(lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of these lengths, and where each begins."""
    offsets = torch.nn.functional.pad(torch.cumsum(lengths, 0), (1, 0)).to(torch.int32)
    return torch.randn(int(offsets[-1]), device="cuda"), offsets


def noinline_in_loop() -> torch.Tensor:
    """64 CTAs of 4 warps; each calls the helper 5 times."""
    from noinline_in_loop import segment_energy_kernel

    x, offsets = ragged(torch.randint(1, 512, (320,), device="cuda", dtype=torch.int32))
    out = torch.zeros(320, device="cuda")
    segment_energy_kernel[(64,)](x, offsets, out, 5, 320, BLOCK=512, num_warps=4)
    return out


def early_return() -> torch.Tensor:
    """128 CTAs of 4 warps: every second row is empty and returns at once, the others have 3 iterations."""
    from early_return import ragged_mean_kernel

    x, offsets = ragged(torch.tensor([0, 1200] * 64, device="cuda"))
    out = torch.full((128,), -1.0, device="cuda")
    ragged_mean_kernel[(128,)](x, offsets, out, BLOCK=512, num_warps=4)
    return out


def while_condition() -> torch.Tensor:
    """40 CTAs of 4 warps; the result's last 40 numbers are each CTA's number of steps."""
    from while_condition import cube_root_kernel

    x = torch.rand(40 * 256, device="cuda") * 1000
    out, steps = torch.empty_like(x), torch.zeros(40, device="cuda", dtype=torch.int32)
    tolerance = torch.tensor([1e-3], device="cuda")
    cube_root_kernel[(40,)](x, out, tolerance, steps, x.numel(), 60, BLOCK=256, num_warps=4)
    return torch.cat([out, steps.to(torch.float32)])


PROGRAMS = (marked_matmul, marked_attention, noinline_in_loop, early_return, while_condition)

if __name__ == "__main__":
    torch.manual_seed(0)
    np.savez(sys.argv[1], **{program.__name__: program().cpu().numpy() for program in PROGRAMS})
