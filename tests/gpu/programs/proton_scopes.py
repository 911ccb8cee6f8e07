"""A kernel with scopes of Proton's own language, profiled by stock Proton: ``python proton_scopes.py FOLDER``.

Saves what Proton recorded (``kernel.bin``, its ``host_buffer``), the kernel's TTGIR, and Proton's own trace of it.
"""

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
import triton.profiler as proton
import triton.profiler.language as pl
from triton.profiler.hooks import InstrumentationHook

CTAS, ROUNDS, BLOCK = 6, 5, 1024


@triton.jit
def scopes_kernel(out_ptr, x_ptr, rounds, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    with pl.scope("whole"):
        total = tl.zeros((BLOCK,), tl.float32)
        for number in range(rounds):
            with pl.scope("load"):
                value = tl.load(x_ptr + (pid * rounds + number) * BLOCK + tl.arange(0, BLOCK))
            with pl.scope("work"):
                total += tl.exp(value) * tl.sum(value)
        tl.store(out_ptr + pid * BLOCK + tl.arange(0, BLOCK), total)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pl.enable_semantic("triton")
    x = torch.randn((CTAS, ROUNDS, BLOCK), device="cuda")
    out = torch.empty((CTAS, BLOCK), device="cuda")
    proton.start(str(folder / "proton"), backend="instrumentation", data="trace")
    InstrumentationHook.enable_host_buffer = True
    compiled = scopes_kernel[(CTAS,)](out, x, ROUNDS, BLOCK, num_warps=4)
    torch.cuda.synchronize()
    InstrumentationHook.host_buffer.numpy().tofile(folder / "kernel.bin")
    (folder / "kernel.ttgir").write_text(compiled.asm["ttgir"])
    proton.finalize()


if __name__ == "__main__":
    main()
