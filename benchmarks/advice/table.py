"""CTAs that each begin by computing the same table. The edit computes it once, before the kernel, and loads it."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from case import FLOAT, HALF, Case, Pair, Result, by_name, normal

FLAW = "table"
KEYWORDS = ("out of the kernel", "outside the kernel", "before the launch", "precompute", "once for all ctas")


@triton.jit
def store_power(signal_ptr, out_ptr, real, imaginary, HOP, SIZE: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    frames, samples, bins = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, SIZE), tl.arange(0, BINS)
    x = tl.load(signal_ptr + frames[:, None] * HOP + samples[None, :])
    a, b = tl.dot(x, real), tl.dot(x, imaginary)
    tl.store(out_ptr + frames[:, None] * BINS + bins[None, :], a * a + b * b)


@triton.jit
def spectrogram_flawed(signal_ptr, out_ptr, HOP, SIZE: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the power of the first BINS frequencies of BLOCK frames."""
    samples, bins = tl.arange(0, SIZE), tl.arange(0, BINS)
    angles = (samples[:, None] * bins[None, :] % SIZE).to(tl.float32) * (6.283185307 / SIZE)
    real, imaginary = tl.cos(angles).to(tl.float16), tl.sin(angles).to(tl.float16)
    store_power(signal_ptr, out_ptr, real, imaginary, HOP, SIZE, BINS, BLOCK)


@triton.jit
def spectrogram_edited(
    signal_ptr, real_ptr, imaginary_ptr, out_ptr, HOP, SIZE: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr
):
    """Load the cosines and sines."""
    entries = tl.arange(0, SIZE)[:, None] * BINS + tl.arange(0, BINS)[None, :]
    real, imaginary = tl.load(real_ptr + entries), tl.load(imaginary_ptr + entries)
    store_power(signal_ptr, out_ptr, real, imaginary, HOP, SIZE, BINS, BLOCK)


@triton.jit
def apply_window(x_ptr, out_ptr, window, FRAMES, SIZE: tl.constexpr):
    places = tl.program_id(0) * FRAMES * SIZE + tl.arange(0, SIZE)
    for frame in range(0, FRAMES):
        x = tl.load(x_ptr + places + frame * SIZE)
        tl.store(out_ptr + places + frame * SIZE, (x * window).to(tl.float16))


@triton.jit
def kaiser_flawed(x_ptr, out_ptr, beta, FRAMES, SIZE: tl.constexpr, POINTS: tl.constexpr):
    """Multiply frames by a Kaiser window, whose Bessel functions are integrals over POINTS angles."""
    distance = (2 * tl.arange(0, SIZE) + 1).to(tl.float32) / SIZE - 1
    argument = beta * tl.sqrt(1 - distance * distance)
    window, peak = tl.zeros((SIZE,), tl.float32), 0.0
    for point in range(0, POINTS):
        cosine = tl.cos((point + 0.5) * (3.14159265 / POINTS))
        window += tl.exp(argument * cosine)
        peak += tl.exp(beta * cosine)
    apply_window(x_ptr, out_ptr, window / peak, FRAMES, SIZE)


@triton.jit
def kaiser_edited(x_ptr, window_ptr, out_ptr, FRAMES, SIZE: tl.constexpr):
    """Load the window."""
    apply_window(x_ptr, out_ptr, tl.load(window_ptr + tl.arange(0, SIZE)), FRAMES, SIZE)


@triton.jit
def apply_taps(x_ptr, out_ptr, taps, TILES, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns = tl.program_id(0) * TILES * BLOCK + tl.arange(0, BLOCK), tl.arange(0, SIZE)
    for tile in range(0, TILES):
        places = (rows + tile * BLOCK)[:, None] * SIZE + columns[None, :]
        tl.store(out_ptr + places, tl.dot(tl.load(x_ptr + places), taps).to(tl.float16))


@triton.jit
def blur_flawed(x_ptr, out_ptr, width, TILES, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Blur image rows of SIZE pixels by a Gaussian, which is integrated over each pixel."""
    pixels = tl.arange(0, SIZE)
    distance = (pixels[:, None] - pixels[None, :]).to(tl.float32)
    taps = 0.5 * (tl.erf((distance + 0.5) / width) - tl.erf((distance - 0.5) / width))
    apply_taps(x_ptr, out_ptr, taps.to(tl.float16), TILES, SIZE, BLOCK)


@triton.jit
def blur_edited(x_ptr, taps_ptr, out_ptr, TILES, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Load the integrals."""
    pixels = tl.arange(0, SIZE)
    taps = tl.load(taps_ptr + pixels[:, None] * SIZE + pixels[None, :])
    apply_taps(x_ptr, out_ptr, taps, TILES, SIZE, BLOCK)


def spectrogram(device: str, small: bool) -> Pair:
    size, bins, block, hop = 256, 32, 64, 128
    ctas = 2 if small else 2112
    frames = ctas * block
    signal = normal(device, frames * hop + size, dtype=HALF) * 0.1
    angles = torch.arange(size, device=device)[:, None] * torch.arange(bins, device=device) % size * (math.tau / size)
    real, imaginary = angles.cos().to(HALF), angles.sin().to(HALF)
    flawed_out, edited_out = (torch.empty((frames, bins), device=device) for _ in range(2))

    def flawed() -> Result:
        spectrogram_flawed[(ctas,)](signal, flawed_out, hop, size, bins, block, num_warps=8)
        return flawed_out

    def edited() -> Result:
        spectrogram_edited[(ctas,)](signal, real, imaginary, edited_out, hop, size, bins, block, num_warps=8)
        return edited_out

    return flawed, edited


def kaiser(device: str, small: bool) -> Pair:
    size, points, beta = 1024, 256, 8.0
    frames, ctas = (2, 2) if small else (16, 1056)
    x = normal(device, ctas * frames, size)
    distance = (2 * torch.arange(size, device=device) + 1) / size - 1
    window = torch.i0(beta * (1 - distance.square()).sqrt()) / torch.i0(torch.tensor(beta, device=device))
    flawed_out, edited_out = (torch.empty((ctas * frames, size), device=device, dtype=HALF) for _ in range(2))

    def flawed() -> Result:
        kaiser_flawed[(ctas,)](x, flawed_out, beta, frames, size, points)
        return flawed_out

    def edited() -> Result:
        kaiser_edited[(ctas,)](x, window, edited_out, frames, size)
        return edited_out

    return flawed, edited


def blur(device: str, small: bool) -> Pair:
    size, block, tiles, width = 128, 64, 2, 3.0
    ctas = 2 if small else 1056
    x = normal(device, ctas * tiles * block, size, dtype=HALF)
    pixels = torch.arange(size, device=device, dtype=FLOAT)
    distance = pixels[:, None] - pixels
    taps = (0.5 * (((distance + 0.5) / width).erf() - ((distance - 0.5) / width).erf())).to(HALF)
    flawed_out, edited_out = (torch.empty_like(x) for _ in range(2))

    def flawed() -> Result:
        blur_flawed[(ctas,)](x, flawed_out, width, tiles, size, block, num_warps=8)
        return flawed_out

    def edited() -> Result:
        blur_edited[(ctas,)](x, taps, edited_out, tiles, size, block, num_warps=8)
        return edited_out

    return flawed, edited


CASES = by_name(
    Case("spectrogram", FLAW, spectrogram, KEYWORDS, relative=1e-2, absolute=1e-2),
    Case("kaiser", FLAW, kaiser, KEYWORDS, relative=1e-2, absolute=1e-3),
    Case("blur", FLAW, blur, KEYWORDS, relative=1e-2, absolute=2e-3),
)
