"""One rank of a ``torchrun``: a kernel, a sum over all ranks, and another. Rank i launches 8 (i + 1) CTAs of 4 warps.

With fewer GPUs than ranks they share one, and the sum goes through gloo.
"""

import os

import results
import torch
import torch.distributed as dist
from kernels import BLOCK, decay_kernel, launch, root_kernel

ROUNDS, STEPS = 3, 2000


def main() -> None:
    arguments = results.parser(__doc__).parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    apart = torch.cuda.device_count() >= ranks
    torch.cuda.set_device(rank if apart else 0)
    dist.init_process_group("nccl" if apart else "gloo")
    torch.manual_seed(rank)
    x = torch.randn(8 * (rank + 1) * BLOCK, device="cuda")
    out, end = torch.empty_like(x), torch.empty_like(x)
    for _ in range(ROUNDS):
        launch(decay_kernel, x, out, STEPS)
        total = out.sum(dtype=torch.float64)
        if apart:
            dist.all_reduce(total)
        else:
            on_host = total.cpu()
            dist.all_reduce(on_host)
            total = on_host.cuda()
        launch(root_kernel, out.abs() + total.abs().float(), end, STEPS)
    if arguments.save:
        results.save(f"{arguments.save}.{rank}.npy", out, end)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
