"""Names beyond ASCII: of a helper, of parameters and of values, and in a string."""

import triton
import triton.language as tl


@triton.jit
def _größter(x):
    """The largest value."""
    return tl.max(x, axis=0)


@triton.jit
def normalisiere_kernel(x_ptr, out_ptr, μ_ptr, σ_ptr, länge, BLOCK: tl.constexpr):
    """Subtract μ and divide by σ, and keep the largest of what comes out; BLOCK is at least länge."""
    zeile = tl.program_id(0)
    spalten = tl.arange(0, BLOCK)
    maske = spalten < länge
    x = tl.load(x_ptr + zeile * länge + spalten, mask=maske, other=0.0)
    μ = tl.sum(x, axis=0) / länge
    Δ = tl.where(maske, x - μ, 0.0)
    σ = tl.sqrt(tl.sum(Δ * Δ, axis=0) / länge)
    tl.device_assert(σ > 0, "σ ≤ 0: «Streuung»")
    tl.store(out_ptr + zeile * länge + spalten, Δ / σ, mask=maske)
    tl.store(μ_ptr + zeile, μ)
    tl.store(σ_ptr + zeile, _größter(Δ / σ))
