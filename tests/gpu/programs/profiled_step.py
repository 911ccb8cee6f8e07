"""Training steps under ``torch.profiler``: three kernels of ours, one of Inductor's, and some of torch's own. Each rank
writes its trace to ``torch_trace.RANK.json`` in the current folder."""

import os

import results
import torch
import torch.distributed as dist
from kernels import BLOCK, counted_kernel, decay_kernel, launch, root_kernel
from torch.profiler import ProfilerActivity, profile

STEPS, LENGTH = 4, 2000


@torch.compile
def fused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x) * y + 1.0


def step(x, out, end, counts):
    launch(decay_kernel, x, out, LENGTH)
    launch(root_kernel, out.abs(), end, LENGTH)
    counted_kernel[(x.numel() // BLOCK,)](x, out, counts, BLOCK=BLOCK, num_warps=4)
    return fused(out, end)


def main() -> None:
    arguments = results.parser(__doc__).parse_args()
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.cuda.set_device(rank if torch.cuda.device_count() >= ranks else 0)
    if ranks > 1:
        dist.init_process_group("nccl" if torch.cuda.device_count() >= ranks else "gloo")
    torch.manual_seed(rank)
    x = torch.randn(64 * BLOCK, device="cuda")
    out, end = torch.empty_like(x), torch.empty_like(x)
    counts = torch.tensor([LENGTH], device="cuda")
    result = step(x, out, end, counts)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        for _ in range(STEPS):
            result = step(x, out, end, counts)
        torch.cuda.synchronize()
    prof.export_chrome_trace(f"torch_trace.{rank}.json")
    if arguments.save:
        results.save(arguments.save if ranks == 1 else f"{arguments.save}.{rank}.npy", out, end, result)
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
