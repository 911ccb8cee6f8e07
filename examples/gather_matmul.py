"""Multiply a matrix whose rows are spread over the ranks: each rank needs all rows, and computes while they arrive.

    torchrun --nproc-per-node 2 examples/gather_matmul.py

Some CTAs of each rank copy its rows to its peers, block by block, and set a flag after each. The others wait for the
flag of the rows that their tile needs. Ranks may share a GPU, which then runs them in turn.
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

ROWS, COLUMNS, DEPTH = 128, 128, 64


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
def send(own, tables, flag_tables, block, blocks, k, rank, number, RANKS: tl.constexpr, ROWS: tl.constexpr):
    """Copy a block of this rank's rows to all ranks, and set its flag there."""
    offsets = block * ROWS * k + tl.arange(0, ROWS)[:, None] * k
    for begin in range(0, k, 64):
        part = tl.load(own + offsets + begin + tl.arange(0, 64)[None, :])
        for peer in tl.static_range(RANKS):
            rows = tl.load(tables + peer).to(tl.pointer_type(tl.float16)) + rank * blocks * ROWS * k
            tl.store(rows + offsets + begin + tl.arange(0, 64)[None, :], part)
    tl.debug_barrier()
    for peer in tl.static_range(RANKS):
        flags = tl.load(flag_tables + peer).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(flags + rank * blocks + block, number, sem="release", scope="sys")


@triton.jit
def tile(gathered, b, out, row, column, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    """Multiply one block of rows with one of columns."""
    rows = row * ROWS + tl.arange(0, ROWS)
    columns = column * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for begin in range(0, k, DEPTH):
        depth = begin + tl.arange(0, DEPTH)
        left = tl.load(gathered + rows[:, None] * k + depth[None, :])
        right = tl.load(b + depth[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * n + columns[None, :], total.to(tl.float16))


@triton.jit(do_not_specialize=["rank", "number", "late_ns", "late_block"])
def gather_matmul_kernel(
    own,
    tables,
    flag_tables,
    b,
    out,
    n,
    k,
    blocks,
    rank,
    number,
    late_ns,
    late_block,
    RANKS: tl.constexpr,
    SENDERS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    COPIES: tl.constexpr,
    MULTIPLIES: tl.constexpr,
):
    cta = tl.program_id(0)
    if cta < SENDERS:
        for block in range(cta, blocks if COPIES else 0, SENDERS):
            if late_ns > 0 and block == late_block:
                pass_time(late_ns.to(tl.int64))
            send(own, tables, flag_tables, block, blocks, k, rank, number, RANKS, ROWS)
    else:
        gathered = tl.load(tables + rank).to(tl.pointer_type(tl.float16))
        flags = tl.load(flag_tables + rank).to(tl.pointer_type(tl.int32))
        tiles_of_row = n // COLUMNS
        tiles = RANKS * blocks * tiles_of_row if MULTIPLIES else 0
        for number_of_tile in range(cta - SENDERS, tiles, tl.num_programs(0) - SENDERS):
            # Each rank begins with its own rows, which arrive first.
            row = (number_of_tile // tiles_of_row + rank * blocks) % (RANKS * blocks)
            if COPIES:
                while tl.atomic_add(flags + row, 0, sem="acquire", scope="sys") < number:
                    pass
                tl.debug_barrier()
            tile(gathered, b, out, row, number_of_tile % tiles_of_row, n, k, ROWS, COLUMNS, DEPTH)


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
    parser.add_argument("--blocks", type=int, default=8, help=f"blocks of {ROWS} rows of each rank (%(default)s)")
    # torchrun would take a shorter name for one of its own.
    parser.add_argument(
        "--columns",
        dest="n",
        type=int,
        default=1024,
        help=f"columns of the result, a multiple of {COLUMNS} (%(default)s)",
    )
    parser.add_argument("--k", type=int, default=1024, help=f"columns of the rows, a multiple of {DEPTH} (%(default)s)")
    parser.add_argument("--senders", type=int, default=4, help="CTAs that copy (%(default)s)")
    parser.add_argument("--ctas", type=int, default=64, help="CTAs that multiply (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="launches (%(default)s)")
    parser.add_argument("--only", choices=("copies", "tiles"), help="leave out the tiles, or the copies and waits")
    parser.add_argument("--late-rank", type=int, default=-1, metavar="RANK", help="make this rank late")
    parser.add_argument("--late-block", type=int, default=0, metavar="BLOCK", help="with this block (%(default)s)")
    parser.add_argument("--late-us", type=float, default=20.0, metavar="US", help="by this much (%(default)s)")
    arguments = parser.parse_args()
    if min(arguments.blocks, arguments.n, arguments.k, arguments.senders, arguments.ctas, arguments.repeat) < 1:
        parser.error("sizes and counts must be at least 1")
    if arguments.n % COLUMNS or arguments.k % DEPTH:
        parser.error(f"--columns must be a multiple of {COLUMNS}, --k one of {DEPTH}")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("gather_matmul: no CUDA device found", file=sys.stderr)
        return 1
    if "RANK" not in os.environ:
        print("gather_matmul: run it with torchrun --nproc-per-node 2", file=sys.stderr)
        return 1
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    blocks, n, k = arguments.blocks, arguments.n, arguments.k
    rows, ctas = blocks * ROWS, arguments.senders + arguments.ctas
    if ctas > torch.cuda.get_device_properties().multi_processor_count:
        print("gather_matmul: CTAs that wait need those that copy on the GPU: make --ctas smaller", file=sys.stderr)
        return 1

    gathered, tables, kept = shared(ranks * rows * k, torch.float16)
    _, flags, kept_flags = shared(ranks * blocks, torch.int32)

    def rows_of(peer: int) -> torch.Tensor:
        generator = torch.Generator(device="cuda").manual_seed(peer)
        return torch.randn((rows, k), device="cuda", dtype=torch.float16, generator=generator)

    own = rows_of(rank)
    b = torch.randn(
        (k, n), device="cuda", dtype=torch.float16, generator=torch.Generator(device="cuda").manual_seed(99)
    )
    out = torch.zeros((ranks * rows, n), device="cuda", dtype=torch.float16)
    everything = torch.cat([rows_of(peer) for peer in range(ranks)])
    if arguments.only == "tiles":
        gathered.view(-1, k).copy_(everything)
    late_ns = round(1e3 * arguments.late_us) if rank == arguments.late_rank else 0
    for number in range(1, arguments.repeat + 1):
        gather_matmul_kernel[(ctas,)](
            own, tables, flags, b, out, n, k, blocks, rank, number, late_ns, arguments.late_block,
            ranks, arguments.senders, ROWS, COLUMNS, DEPTH, arguments.only != "tiles", arguments.only != "copies",
            num_warps=8,
        )  # fmt: skip
        torch.cuda.synchronize()
        dist.barrier()  # the next launch overwrites the rows

    is_right = torch.equal(gathered.view(-1, k), everything)
    if arguments.only != "copies":
        is_right &= torch.allclose(out.float(), everything.float() @ b.float(), rtol=2e-3, atol=0.5)
    digest = hashlib.sha256(out.cpu().numpy().tobytes()).hexdigest()
    print(f"gather_matmul rank {rank} of {ranks}, {ranks * rows}x{n}x{k}: sha256 {digest}", flush=True)
    if not is_right:
        print(f"gather_matmul: rank {rank} has a wrong product", file=sys.stderr)
    dist.barrier()
    del kept, kept_flags
    dist.destroy_process_group()
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
