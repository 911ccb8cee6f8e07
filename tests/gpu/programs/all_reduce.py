"""Add up a vector of each rank, on all ranks: every GPU reads its peers' memory, between two meetings of all ranks.

Ranks may share a GPU, which then runs them in turn.
"""

import argparse
import hashlib
import os
import sys

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch.distributed import _symmetric_memory as symmetric_memory
from torch.multiprocessing.reductions import reduce_tensor

SIZE, BLOCK = 1 << 19, 8192


@triton.jit
def meet(flag_tables, rank, number, RANKS: tl.constexpr):
    """Wait until this CTA of all ranks is here. Each has a flag for each rank, which that rank sets to ``number``."""
    cta = tl.program_id(0)
    tl.debug_barrier()
    for peer in tl.static_range(RANKS):
        flags = tl.load(flag_tables + peer).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(flags + cta * RANKS + rank, number, sem="release", scope="sys")
    own = tl.load(flag_tables + rank).to(tl.pointer_type(tl.int32))
    for peer in tl.static_range(RANKS):
        while tl.atomic_add(own + cta * RANKS + peer, 0, sem="acquire", scope="sys") < number:
            pass
    tl.debug_barrier()


@triton.jit(do_not_specialize=["rank", "number"])
def all_reduce_kernel(
    vector_tables, flag_tables, out_ptr, size, rank, number, RANKS: tl.constexpr, BLOCK: tl.constexpr
):
    meet(flag_tables, rank, number, RANKS)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for peer in tl.static_range(RANKS):
        vector = tl.load(vector_tables + peer).to(tl.pointer_type(tl.float32))
        total += tl.load(vector + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, total, mask=mask)
    # Nobody changes its vector before all have read it.
    meet(flag_tables, rank, number + 1, RANKS)


def shared(size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, list]:
    """Return a zeroed tensor that all ranks reach, a table of its addresses in each, and what keeps them valid."""
    ranks, device = dist.get_world_size(), torch.device("cuda", torch.cuda.current_device())
    if torch.cuda.device_count() >= ranks:
        own = symmetric_memory.empty(size, dtype=dtype, device=device)
        handle = symmetric_memory.rendezvous(own, dist.group.WORLD)
        addresses, kept = list(handle.buffer_ptrs), [handle]
    else:  # torch's symmetric memory has one rank on each GPU
        own = torch.empty(size, dtype=dtype, device=device)
        handles = [None] * ranks
        dist.all_gather_object(handles, reduce_tensor(own))
        kept = [own if rank == dist.get_rank() else make(*parts) for rank, (make, parts) in enumerate(handles)]
        addresses = [tensor.data_ptr() for tensor in kept]
    own.zero_()
    torch.cuda.synchronize()
    dist.barrier()
    return own, torch.tensor(addresses, dtype=torch.int64, device=device), kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    ctas = triton.cdiv(SIZE, BLOCK)  # all of which run at once: each waits for others
    vector, vectors, kept = shared(SIZE, torch.float32)
    _, flags, kept_flags = shared(ctas * ranks, torch.int32)
    out = torch.empty_like(vector)
    for number in range(arguments.repeat):
        generator = torch.Generator(device="cuda").manual_seed(rank + ranks * number)
        vector.copy_(torch.randint(1000, (SIZE,), device="cuda", generator=generator))
        all_reduce_kernel[(ctas,)](vectors, flags, out, SIZE, rank, 2 * number + 1, ranks, BLOCK)
        torch.cuda.synchronize()

    expected = torch.zeros_like(out)
    for peer in range(ranks):
        generator = torch.Generator(device="cuda").manual_seed(peer + ranks * (arguments.repeat - 1))
        expected += torch.randint(1000, (SIZE,), device="cuda", generator=generator)
    is_right = torch.equal(out, expected)
    digest = hashlib.sha256(out.cpu().numpy().tobytes()).hexdigest()
    print(f"all_reduce rank {rank} of {ranks}, {SIZE} float32: sha256 {digest}", flush=True)
    if not is_right:
        print(f"all_reduce: rank {rank} has a wrong sum", file=sys.stderr)
    dist.barrier()
    del kept, kept_flags
    dist.destroy_process_group()
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
