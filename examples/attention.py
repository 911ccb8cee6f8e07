"""Attention on the GPU, forward pass: two matrix products and the softmax between them in one kernel.

The comments that begin with `kprof:` say what kprof-inject times unless it is told otherwise.
"""

import argparse
import hashlib
import sys

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N = 128, 64


@triton.jit
def _attn_inner(
    acc,
    row_sum,
    row_max,
    q,
    k_ptrs,
    v_ptrs,
    stride_row,
    rows,
    start,
    stop,
    qk_scale,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Fold keys and values [start, stop) into the running output, sum and maximum, and return all three.

    MASKED hides keys that come after the query; without it, every key in the range is visible.
    """
    for start_n in range(start, stop, BLOCK_N):  # kprof: iter keys
        k = tl.load(k_ptrs + start_n * stride_row)  # kprof: load_k
        scores = tl.dot(q, k) * qk_scale  # kprof: qk
        # kprof: begin softmax
        if MASKED:
            keys = start_n + tl.arange(0, BLOCK_N)
            scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_max[:, None])
        correction = tl.exp2(row_max - new_max)
        row_sum = row_sum * correction + tl.sum(weights, axis=1)
        # kprof: end softmax
        v = tl.load(v_ptrs + start_n * stride_row)  # kprof: load_v
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None])  # kprof: pv
        row_max = new_max
    return acc, row_sum, row_max


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    stride_head,
    stride_row,
    seq_len,
    scale,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """Flash attention, forward: program (i, h) computes the i-th block of BLOCK_M query rows of head h.

    All four tensors are (heads, seq_len, HEAD_DIM) with the same strides; seq_len is a multiple of both
    block sizes, and BLOCK_M one of BLOCK_N.
    """
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * stride_head
    rows = start_m + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, HEAD_DIM)
    offsets = rows[:, None] * stride_row + dims[None, :]
    k_ptrs = k_ptr + head + columns[None, :] * stride_row + dims[:, None]
    v_ptrs = v_ptr + head + columns[:, None] * stride_row + dims[None, :]

    acc = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
    row_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    row_max = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    qk_scale = scale * 1.4426950408889634  # log2(e): exp2 is the fast one
    q = tl.load(q_ptr + head + offsets)

    # Keys before this block of rows are visible to every row of it; only the diagonal needs the mask.
    stop = start_m if CAUSAL else seq_len
    acc, row_sum, row_max = _attn_inner(
        acc, row_sum, row_max, q, k_ptrs, v_ptrs, stride_row, rows, 0, stop, qk_scale, BLOCK_N, False
    )
    if CAUSAL:
        stop = start_m + BLOCK_M
        acc, row_sum, row_max = _attn_inner(
            acc, row_sum, row_max, q, k_ptrs, v_ptrs, stride_row, rows, start_m, stop, qk_scale, BLOCK_N, True
        )

    out = acc / row_sum[:, None]
    tl.store(out_ptr + head + offsets, out.to(out_ptr.dtype.element_ty))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """softmax(q @ k.T / sqrt(dim)) @ v, for contiguous (batch, heads, seq, dim) tensors.

    seq is a multiple of BLOCK_M and dim a power of two, at least 16. With causal, no query sees a later key.
    """
    batch, heads, seq, dim = q.shape
    out = torch.empty_like(q)
    attention_kernel[(seq // BLOCK_M, batch * heads)](
        q,
        k,
        v,
        out,
        q.stride(1),
        q.stride(2),
        seq,
        dim**-0.5,
        CAUSAL=causal,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        HEAD_DIM=dim,
        num_warps=4 if dim <= 64 else 8,  # four spill the wider accumulator
        num_stages=3,
    )
    return out


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=2, help="sequences (%(default)s)")
    parser.add_argument("--heads", type=int, default=8, help="heads of each (%(default)s)")
    parser.add_argument("--seq", type=int, default=1024, help=f"a multiple of {BLOCK_M} (%(default)s)")
    parser.add_argument("--dim", type=int, default=64, choices=(16, 32, 64, 128), help="of a head")
    parser.add_argument("--causal", action="store_true", help="hide from each query the keys after it")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="launches (%(default)s)")
    parser.add_argument("--save", metavar="FILE", help="write the result there with torch.save")
    arguments = parser.parse_args()
    if min(arguments.batch, arguments.heads, arguments.seq, arguments.repeat) < 1:
        parser.error("--batch, --heads, --seq and --repeat must be at least 1")
    if arguments.seq % BLOCK_M:
        parser.error(f"--seq must be a multiple of {BLOCK_M}")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("attention: no CUDA device found", file=sys.stderr)
        return 1

    torch.manual_seed(0)
    shape = (arguments.batch, arguments.heads, arguments.seq, arguments.dim)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
    for _ in range(arguments.repeat):
        out = attention(q, k, v, arguments.causal)

    expected = torch.nn.functional.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), is_causal=arguments.causal
    )
    error = (out.float() - expected).abs().max().item()
    # The last bit of half precision at the largest value, twice over: the weights are rounded, then the sum.
    limit = expected.abs().max().item() * 2**-9
    result = out.cpu()
    digest = hashlib.sha256(result.numpy().tobytes()).hexdigest()
    name = "attention (causal)" if arguments.causal else "attention"
    size = "x".join(map(str, shape))
    print(f"{name} {size} float16: max abs error {error:.3g}, sha256 {digest}")
    if arguments.save:
        torch.save(result, arguments.save)
    if not error <= limit:
        print(f"attention: the error is larger than {limit:.3g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
