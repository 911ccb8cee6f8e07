"""Launches kernels too seldom to time them; ``--way`` says how. All of it is what a program does once: no benchmark."""

import results
import torch
import triton
import triton.language as tl
from kernels import BLOCK, decay_kernel, launch, root_kernel

CTAS, STEPS = 256, 400


@triton.jit
def in_place_kernel(x_ptr, BLOCK: tl.constexpr):
    """x is replaced by its softmax: another launch would do it to the result."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    x = tl.exp(x - tl.max(x, 0))
    tl.store(x_ptr + offsets, x / tl.sum(x, 0))


@triton.jit
def counting_kernel(x_ptr, sum_ptr, BLOCK: tl.constexpr):
    """Adds to what is there."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(sum_ptr + offsets % 64, (tl.load(x_ptr + offsets) * 8).to(tl.int32))


@triton.jit
def locking_kernel(x_ptr, sum_ptr, lock_ptr, BLOCK: tl.constexpr):
    """One program after the other adds a whole block, as in the tutorial's layer norm."""
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    where = sum_ptr + tl.arange(0, BLOCK)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(where, tl.load(where) + (x * 8).to(tl.int32))
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def flagged_kernel(x_ptr, out_ptr, done_ptr, steps, BLOCK: tl.constexpr):
    """Does nothing where it has been already."""
    pid = tl.program_id(0)
    if tl.load(done_ptr + pid) == 0:
        offsets = pid * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets)
        for _ in range(steps):
            x = x * 0.999 + 0.001
        tl.store(out_ptr + offsets, x)
        tl.store(done_ptr + pid, 1)


@triton.jit
def pointers_kernel(table_ptr, BLOCK: tl.constexpr):
    """Copies from where the table's first entry leads to where its second one does."""
    x_ptr = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    out_ptr = tl.load(table_ptr + 1).to(tl.pointer_type(tl.float32))
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def descriptor_kernel(x, out, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    out.store([pid * BLOCK], x.load([pid * BLOCK]) * 2.0)


tuned_kernel = triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 2, 4)], key=[])(decay_kernel)


def once(x, out):
    launch(decay_kernel, x, out, STEPS)
    return [out]


def thrice(x, out):
    for steps in (STEPS, 2 * STEPS, 3 * STEPS):
        launch(decay_kernel, x, out, steps)
    return [out]


def graph(x, out):
    """Without a launch before: the graph is the first to see the kernels."""
    x.abs_()
    captured, middle = torch.cuda.CUDAGraph(), torch.zeros_like(x)
    for kernel in (decay_kernel, root_kernel):  # compiled and loaded, and no launch
        kernel.warmup(x, out, STEPS, BLOCK=BLOCK, grid=(CTAS,), num_warps=4)._init_handles()
    with torch.cuda.graph(captured):
        launch(decay_kernel, x, middle, STEPS)
        launch(root_kernel, middle, out, STEPS)
    x.mul_(2)
    for _ in range(3):
        captured.replay()
    return [out, middle]


def warmed_graph(x, out):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        launch(decay_kernel, x, out, STEPS)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out.mul_(2)
        launch(decay_kernel, x, out, STEPS)
    captured.replay()
    return [out]


def autotuned(x, out):
    tuned_kernel[(CTAS,)](x, out, STEPS, BLOCK=BLOCK)
    return [out]


def inductor(x, out):
    compiled = torch.compile(lambda x: torch.softmax(x.view(CTAS, BLOCK), 1).sin())
    return [compiled(x)]


def in_place(x, out):
    in_place_kernel[(CTAS,)](x, BLOCK=BLOCK)
    return [x]


def counting(x, out):
    total = torch.zeros(64, device="cuda", dtype=torch.int32)
    counting_kernel[(CTAS,)](x, total, BLOCK=BLOCK)
    return [total]


def locking(x, out):
    total, lock = torch.zeros(BLOCK, device="cuda", dtype=torch.int32), torch.zeros(1, device="cuda", dtype=torch.int32)
    locking_kernel[(CTAS,)](x, total, lock, BLOCK=BLOCK)
    return [total]


def flagged(x, out):
    done = torch.zeros(CTAS, device="cuda", dtype=torch.int32)
    flagged_kernel[(CTAS,)](x, out, done, STEPS, BLOCK=BLOCK)
    return [out]


def pointers(x, out):
    table = torch.tensor([x.data_ptr(), out.data_ptr()], device="cuda")
    pointers_kernel[(CTAS,)](table, BLOCK=BLOCK)
    return [out]


def descriptor(x, out):
    from triton.tools.tensor_descriptor import TensorDescriptor

    sides = [TensorDescriptor(tensor, [tensor.numel()], [1], [BLOCK // 2]) for tensor in (x, out)]
    descriptor_kernel[(2 * CTAS,)](*sides, BLOCK=BLOCK // 2)
    return [out]


def view(x, out):
    """The kernel gets the middle of a larger tensor."""
    larger = torch.arange(4 * x.numel(), device="cuda", dtype=torch.float32)
    launch(decay_kernel, x, larger[x.numel() : 2 * x.numel()], STEPS)
    return [larger]


def full(x, out):
    """There is no room to save what it is given."""
    hog = torch.empty(int(0.6 * torch.cuda.mem_get_info()[0]), device="cuda", dtype=torch.uint8)
    part = hog[: 4 * x.numel()].view(torch.float32)
    launch(decay_kernel, x, part, STEPS)
    return [part]


def self_timed(x, out):
    start = torch.cuda.Event(enable_timing=True)
    start.record()
    launch(decay_kernel, x, out, STEPS)
    return [out]


WAYS = (
    once, thrice, graph, warmed_graph, autotuned, inductor, in_place, counting, locking, flagged, pointers, descriptor,
    view, full, self_timed,
)  # fmt: skip


def main():
    parser = results.parser(__doc__)
    parser.add_argument("--way", required=True, choices=[way.__name__ for way in WAYS])
    arguments = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(CTAS * BLOCK, device="cuda")
    found = globals()[arguments.way](x, torch.zeros_like(x))
    torch.cuda.synchronize()
    print(f"torch took {torch.cuda.max_memory_allocated()} bytes of {torch.cuda.max_memory_reserved()}")
    results.save(arguments.save, *found)


if __name__ == "__main__":
    main()
