"""Grids with a few CTAs more than the SMs run at once. The edit launches a multiple of the SMs.

All three kernels loop over tiles, so only the grid differs. The norm is limited by DRAM, with eight CTAs on each SM, so
its edit gains little.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import BFLOAT, Case, Launch, Pair, Result, by_name, normal, sm_count

FLAW = "partial-wave"
KEYWORDS = ("multiple of", "last wave", "divide evenly", "number of sms")


@triton.jit
def mandelbrot_kernel(out_ptr, TILES, WIDTH, STEPS, BLOCK: tl.constexpr):
    """Count the steps that each pixel stays in the circle of radius 2."""
    for tile in range(tl.program_id(0), TILES, tl.num_programs(0)):
        pixels = tile * BLOCK + tl.arange(0, BLOCK)
        real = (pixels % WIDTH).to(tl.float32) * (3.0 / WIDTH) - 2.0
        imaginary = (pixels // WIDTH).to(tl.float32) * (3.0 / WIDTH) - 1.5
        x, y = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
        count = tl.zeros((BLOCK,), tl.int32)
        for _ in range(STEPS):
            new_x = x * x - y * y + real
            y = 2 * x * y + imaginary
            x = new_x
            count += (x * x + y * y < 4).to(tl.int32)
        tl.store(out_ptr + pixels, count.to(tl.int16))


@triton.jit
def rms_norm_kernel(x_ptr, residual_ptr, weight_ptr, sum_ptr, out_ptr, ROWS, COLUMNS: tl.constexpr):
    """Add the residual and normalize by the root mean square."""
    columns = tl.arange(0, COLUMNS)
    weight = tl.load(weight_ptr + columns).to(tl.float32)
    for row in range(tl.program_id(0), ROWS, tl.num_programs(0)):
        places = row * COLUMNS + columns
        x = tl.load(x_ptr + places).to(tl.float32) + tl.load(residual_ptr + places).to(tl.float32)
        tl.store(sum_ptr + places, x.to(tl.bfloat16))
        scale = tl.rsqrt(tl.sum(x * x, 0) / COLUMNS + 1e-6)
        tl.store(out_ptr + places, (x * scale * weight).to(tl.bfloat16))


@triton.jit
def nearest_hit_kernel(rays_ptr, spheres_ptr, out_ptr, TILES, SPHERES, BLOCK: tl.constexpr):
    """Find the first sphere on each ray from the origin; ``spheres`` has rows of x, y, z and squared radius."""
    count = TILES * BLOCK
    for tile in range(tl.program_id(0), TILES, tl.num_programs(0)):
        rays = tile * BLOCK + tl.arange(0, BLOCK)
        ray = rays_ptr + rays
        dx, dy, dz = tl.load(ray), tl.load(ray + count), tl.load(ray + 2 * count)
        nearest = tl.full((BLOCK,), 1e30, tl.float32)
        for number in range(SPHERES):
            sphere = spheres_ptr + number
            x, y, z = tl.load(sphere), tl.load(sphere + SPHERES), tl.load(sphere + 2 * SPHERES)
            along = dx * x + dy * y + dz * z
            gap = along * along - (x * x + y * y + z * z - tl.load(sphere + 3 * SPHERES))
            distance = along - tl.sqrt(tl.maximum(gap, 0.0))
            is_hit = (gap > 0) & (distance > 0)
            nearest = tl.where(is_hit, tl.minimum(nearest, distance), nearest)
        tl.store(out_ptr + rays, nearest)


def mandelbrot(device: str, small: bool) -> Pair:
    # Divisible by both grids.
    tiles, flawed_grid, edited_grid = (12, 4, 3) if small else (9504, 144, sm_count(device))
    block, steps = 2048, 32

    def launcher(grid: int) -> Launch:
        out = torch.empty(tiles * block, device=device, dtype=torch.int16)

        def launch() -> Result:
            mandelbrot_kernel[(grid,)](out, tiles, 4096, steps, block, num_warps=16)
            return out

        return launch

    return launcher(flawed_grid), launcher(edited_grid)


def rms_norm(device: str, small: bool) -> Pair:
    rows, columns = (20, 1024) if small else (1066 * 32, 1024)
    flawed_grid, edited_grid = (5, 4) if small else (8 * 132 + 10, 8 * sm_count(device))
    x, residual = (normal(device, rows, columns, dtype=BFLOAT) for _ in range(2))
    weight = normal(device, columns, dtype=BFLOAT)

    def launcher(grid: int) -> Launch:
        total, out = torch.empty_like(x), torch.empty_like(x)

        def launch() -> Result:
            rms_norm_kernel[(grid,)](x, residual, weight, total, out, rows, columns, num_warps=8)
            return total, out

        return launch

    return launcher(flawed_grid), launcher(edited_grid)


def nearest_hit(device: str, small: bool) -> Pair:
    block = 1024
    tiles, spheres = (6, 4) if small else (274 * 24, 48)
    flawed_grid, edited_grid = (5, 4) if small else (2 * 132 + 10, 2 * sm_count(device))
    rays = torch.nn.functional.normalize(normal(device, 3, tiles * block), dim=0)
    centers, radii = normal(device, 3, spheres) * 5, torch.rand(1, spheres, device=device)
    data = torch.cat([centers, radii.square()])

    def launcher(grid: int) -> Launch:
        out = torch.empty(tiles * block, device=device)

        def launch() -> Result:
            nearest_hit_kernel[(grid,)](rays, data, out, tiles, spheres, block, num_warps=16)
            return out

        return launch

    return launcher(flawed_grid), launcher(edited_grid)


CASES = by_name(
    Case("mandelbrot", FLAW, mandelbrot, KEYWORDS),
    Case("rms-norm", FLAW, rms_norm, KEYWORDS, relative=1e-2, absolute=1e-2),
    Case("nearest-hit", FLAW, nearest_hit, KEYWORDS),
)
