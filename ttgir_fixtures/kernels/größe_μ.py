"""A file whose name is not ASCII, as every location says; NVIDIA's assembler takes no such name."""

import triton
import triton.language as tl


@triton.jit
def _breite(x):
    """How far apart the smallest and the largest value are."""
    return tl.max(x, axis=0) - tl.min(x, axis=0)


@triton.jit
def spannweite_kernel(x_ptr, out_ptr, länge, BLOCK: tl.constexpr):
    """The range of each row's values; länge is a multiple of BLOCK."""
    zeile = tl.program_id(0)
    größte = 0.0
    for anfang in range(0, länge, BLOCK):
        x = tl.load(x_ptr + zeile * länge + anfang + tl.arange(0, BLOCK))
        größte = tl.maximum(größte, _breite(x))
    tl.store(out_ptr + zeile, größte)
