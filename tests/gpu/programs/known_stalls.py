"""A kernel whose loops wait for one thing each: loads, special functions, fixed latencies, and barriers."""

import torch
import triton
import triton.language as tl


@triton.jit
def stalls_kernel(table, out, rounds, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    index = lane
    for _ in range(rounds):
        index = tl.load(table + index)
    value = index.to(tl.float32) * 1e-6
    for _ in range(rounds):
        value = tl.exp2(value)
        value = 1.0 / (1.0 + value)
    factor = value + 1.0
    for _ in range(rounds):
        value = value * factor + 0.5
    for _ in range(rounds):
        tl.debug_barrier()
    tl.store(out + tl.program_id(0) * BLOCK + lane, value)


def main() -> None:
    """Launch it on one CTA of each SM."""
    ctas, block = 132, 256
    table = torch.randint(0, 1 << 22, (1 << 22,), device="cuda", dtype=torch.int32)
    out = torch.empty(ctas * block, device="cuda")
    for _ in range(5):
        stalls_kernel[(ctas,)](table, out, 400, block, num_warps=8)
    torch.cuda.synchronize()
    print(float(out.nan_to_num().abs().max()) > 0)


main()
