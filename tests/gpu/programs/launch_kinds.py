"""Launches that a saved launch must hold, of other kinds than seldom.py has: pointers behind pointers, addresses,
descriptors that the kernel makes, clusters, scalars and more.

Each kernel is launched a few times; the program prints nothing of its own but a checksum of all results.
"""

import torch
import triton
import triton.language as tl

N = 1 << 16
BLOCK = 1024


@triton.jit
def scalars_kernel(
    out, flag, i8, i32, i64, u64, half, single, double, nothing, pair, other: tl.constexpr, BLOCK: tl.constexpr
):
    """Use a scalar of each type, a tuple, None and a constant."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(pair[0] + offsets) * pair[1]
    if flag:
        value += i8 + i32 + (i64 % 1000003) + (u64 % 1000003)
    if nothing is not None:
        value += 1e9
    value += half + single + double.to(tl.float32) + other
    tl.store(out + offsets, value)


@triton.jit
def nested_table_kernel(tables, out, BLOCK: tl.constexpr):
    """Follow a pointer to a table of pointers."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    table = tl.load(tables).to(tl.pointer_type(tl.int64))
    pointer = tl.load(table + 1).to(tl.pointer_type(tl.float32))
    tl.store(out + offsets, tl.load(pointer + offsets) + 1)


@triton.jit
def address_kernel(address, out, BLOCK: tl.constexpr):
    """Read from an address that is an integer argument."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pointer = address.to(tl.pointer_type(tl.float32))
    tl.store(out + offsets, tl.load(pointer + offsets) * 2)


@triton.jit
def device_descriptor_kernel(source, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    """Copy a tile with descriptors that the kernel makes."""
    a = tl.make_tensor_descriptor(source, [rows, columns], [columns, 1], [M, N])
    b = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [M, N])
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    b.store([row, column], a.load([row, column]) * 3)


@triton.jit
def barrier_kernel(x, arrived, out, CTAS: tl.constexpr, BLOCK: tl.constexpr):
    """Wait until all CTAs have arrived, then read what another one wrote."""
    number = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    tl.store(x + number * BLOCK + offsets, offsets + number)
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="release")
    while tl.atomic_add(arrived, 0, sem="acquire") < CTAS:
        pass
    other = (number + 1) % CTAS
    tl.store(out + number * BLOCK + offsets, tl.load(x + other * BLOCK + offsets, cache_modifier=".cg"))


@triton.jit
def matmul_kernel(a, b, out, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Multiply two tiles."""
    rows, columns, ks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, K, BLOCK_K):
        x = tl.load(a + rows[:, None] * K + k + ks[None, :])
        y = tl.load(b + (k + ks)[:, None] * N + columns[None, :])
        total = tl.dot(x, y, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


@triton.jit
def graph_kernel(x, out, BLOCK: tl.constexpr):
    """Add one; launched in a CUDA graph alone."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) + 1)


@triton.jit
def empty_kernel(x, nothing, out, count, BLOCK: tl.constexpr):
    """Get an empty tensor as an argument."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets) + tl.load(nothing + offsets, mask=offsets < count, other=0.0)
    tl.store(out + offsets, value)


def main() -> None:
    torch.manual_seed(0)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    x, y, z = (torch.randn(N, device="cuda") for _ in range(3))
    outs = []

    def out(*shape, dtype=torch.float32):
        outs.append(torch.zeros(shape or (N,), device="cuda", dtype=dtype))
        return outs[-1]

    grid = (N // BLOCK,)
    result = out()
    for _ in range(3):
        scalars_kernel[grid](
            result, True, -7, 1 << 20, -(1 << 40), (1 << 63) + 5, 0.5, 1.25,
            1e-3, None, (x, 2.0), 3, BLOCK,
        )  # fmt: skip
    table = torch.tensor([x.data_ptr(), y.data_ptr(), z.data_ptr()], device="cuda")
    tables = torch.tensor([table.data_ptr()], device="cuda")
    nested_out, address_out = out(), out()
    matrix = torch.randn(256, 256, device="cuda", dtype=torch.float16)
    device_out = out(256, 256, dtype=torch.float16)
    barrier_x, barrier_out = out(16, BLOCK), out(16, BLOCK)
    a, b = torch.randn(64, 256, device="cuda", dtype=torch.float16), torch.randn(256, 64, device="cuda").half()
    cluster_out, pdl_out, empty_out = out(64, 64), out(), out()
    for _ in range(3):
        nested_table_kernel[grid](tables, nested_out, BLOCK)
        address_kernel[grid](x.data_ptr(), address_out, BLOCK)
        device_descriptor_kernel[(4, 4)](matrix, device_out, 256, 256, 64, 64)
        arrived = torch.zeros(1, device="cuda", dtype=torch.int32)
        barrier_kernel[(16,)](barrier_x, arrived, barrier_out, 16, BLOCK, launch_cooperative_grid=True)
        matmul_kernel[(1,)](a, b, cluster_out, 256, 64, 64, 64, num_ctas=2)
        graph_kernel[grid](x, pdl_out, BLOCK, launch_pdl=True, num_warps=8)
        empty_kernel[grid](x, torch.empty(0, device="cuda"), empty_out, 0, BLOCK)
    graph_out = out()
    graph_kernel.warmup(x, graph_out, BLOCK, grid=grid)._init_handles()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph_kernel[grid](x, graph_out, BLOCK)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    print("checksum", sum(float(t.double().sum()) for t in outs))


if __name__ == "__main__":
    main()
