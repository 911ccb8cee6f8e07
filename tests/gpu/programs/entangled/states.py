"""What a program leaves in its own process, as lines of its stdout: two runs are compared by them."""

import hashlib

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    """out = x * factor, drawn 20 times towards 1."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask) * factor
    for _ in range(20):
        x = x * 0.999 + 0.001
    tl.store(out_ptr + offsets, x, mask=mask)


def scale(x, factor=2.0, out=None):
    out = torch.empty_like(x) if out is None else out
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), factor, BLOCK=1024)
    return out


def show(**results):
    """Print digests of results and random states, and the allocator's statistics."""
    torch.cuda.synchronize()
    for name, value in results.items():
        tensors = value if isinstance(value, (list, tuple)) else [value]
        print(name, *(digest(one) if isinstance(one, torch.Tensor) else one for one in tensors))
    print("random", digest(torch.get_rng_state()), digest(torch.cuda.get_rng_state()))
    for name, value in sorted(torch.cuda.memory_stats().items()):
        print(name, value)
    print("errors", torch.cuda.current_stream().query(), torch.cuda.is_current_stream_capturing(), flush=True)


def digest(tensor):
    data = tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(data).hexdigest()[:16]
