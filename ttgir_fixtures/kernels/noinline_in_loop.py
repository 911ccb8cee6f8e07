"""A `tt.call` inside an `scf.for`: the helper stays a function and is called in every iteration."""

import triton
import triton.language as tl


@triton.jit(noinline=True)
def _segment_energy(x_ptr, begin, end, BLOCK: tl.constexpr):
    """Sum of squares of x[begin:end], which is at most BLOCK long."""
    positions = begin + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + positions, mask=positions < end, other=0.0)
    return tl.sum(x * x, axis=0)


@triton.jit
def segment_energy_kernel(x_ptr, offsets_ptr, out_ptr, segments_per_program, n_segments, BLOCK: tl.constexpr):
    """Energy of each of segments_per_program segments; segment i is x[offsets[i] : offsets[i + 1]]."""
    first = tl.program_id(0) * segments_per_program
    last = min(first + segments_per_program, n_segments)
    for segment in range(first, last):
        begin = tl.load(offsets_ptr + segment)
        end = tl.load(offsets_ptr + segment + 1)
        tl.store(out_ptr + segment, _segment_energy(x_ptr, begin, end, BLOCK))
