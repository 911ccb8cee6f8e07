"""Add up a vector of each rank, on all ranks: every GPU reads its peers' memory, between two meetings of all ranks.

    torchrun --nproc-per-node 2 examples/all_reduce.py

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

BLOCK = 8192


@triton.jit
def pass_time(ns):
    """Return after ``ns`` nanoseconds."""
    return tl.inline_asm_elementwise(
        """{
        .reg .u64 %begin<1>, %now<1>; .reg .pred %on<1>;
        mov.u64 %begin0, %globaltimer;
        again: mov.u64 %now0, %globaltimer;
        sub.u64 %now0, %now0, %begin0;
        setp.lt.u64 %on0, %now0, $1;
        @%on0 bra again;
        mov.u64 $0, %now0;
        }""",
        "=l,l",
        [ns],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )


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


@triton.jit(do_not_specialize=["rank", "number", "late_ns", "late_cta"])
def all_reduce_kernel(
    vector_tables, flag_tables, out_ptr, size, rank, number, late_ns, late_cta, RANKS: tl.constexpr, BLOCK: tl.constexpr
):
    meet(flag_tables, rank, number, RANKS)
    cta = tl.program_id(0)
    if late_ns > 0 and (late_cta < 0) | (cta == late_cta):
        pass_time(late_ns.to(tl.int64))
    offsets = cta * BLOCK + tl.arange(0, BLOCK)
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


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1 << 19, help="numbers of a vector (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="launches (%(default)s)")
    parser.add_argument("--late-rank", type=int, default=-1, metavar="RANK", help="make this rank late")
    parser.add_argument("--late-cta", type=int, default=-1, metavar="CTA", help="only this CTA of it")
    parser.add_argument("--late-us", type=float, default=20.0, metavar="US", help="by this much (%(default)s)")
    arguments = parser.parse_args()
    if min(arguments.size, arguments.repeat) < 1:
        parser.error("--size and --repeat must be at least 1")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("all_reduce: no CUDA device found", file=sys.stderr)
        return 1
    if "RANK" not in os.environ:
        print("all_reduce: run it with torchrun --nproc-per-node 2", file=sys.stderr)
        return 1
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    ctas = triton.cdiv(arguments.size, BLOCK)
    if ctas > torch.cuda.get_device_properties().multi_processor_count:
        print(
            "all_reduce: a CTA that waits for others needs all of them on the GPU: make --size smaller", file=sys.stderr
        )
        return 1

    vector, vectors, kept = shared(arguments.size, torch.float32)
    _, flags, kept_flags = shared(ctas * ranks, torch.int32)
    out = torch.empty_like(vector)
    late_ns = round(1e3 * arguments.late_us) if rank == arguments.late_rank else 0
    for number in range(arguments.repeat):
        generator = torch.Generator(device="cuda").manual_seed(rank + ranks * number)
        vector.copy_(torch.randint(1000, (arguments.size,), device="cuda", generator=generator))
        all_reduce_kernel[(ctas,)](
            vectors, flags, out, arguments.size, rank, 2 * number + 1, late_ns, arguments.late_cta, ranks, BLOCK
        )
        torch.cuda.synchronize()

    expected = torch.zeros_like(out)
    for peer in range(ranks):
        generator = torch.Generator(device="cuda").manual_seed(peer + ranks * (arguments.repeat - 1))
        expected += torch.randint(1000, (arguments.size,), device="cuda", generator=generator)
    is_right = torch.equal(out, expected)
    digest = hashlib.sha256(out.cpu().numpy().tobytes()).hexdigest()
    print(f"all_reduce rank {rank} of {ranks}, {arguments.size} float32: sha256 {digest}", flush=True)
    if not is_right:
        print(f"all_reduce: rank {rank} has a wrong sum", file=sys.stderr)
    dist.barrier()
    del kept, kept_flags
    dist.destroy_process_group()
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
