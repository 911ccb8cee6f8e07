"""Kernels limited by special functions, with more of them than needed. The edit is an equal form with fewer."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import Case, Pair, Result, by_name, normal

FLAW = "special-functions"
KEYWORDS = ("special function", "exponential", "logarithm", "division", "square root", "mufu")


@triton.jit
def density_flawed(points_ptr, centers_ptr, out_ptr, COUNT, CENTERS, BLOCK: tl.constexpr, OTHERS: tl.constexpr):
    """Estimate a density at BLOCK points as a sum of Gaussians, one exponential for each dimension."""
    rows, others = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, OTHERS)
    point = points_ptr + rows
    x, y, z = tl.load(point)[:, None], tl.load(point + COUNT)[:, None], tl.load(point + 2 * COUNT)[:, None]
    total = tl.zeros((BLOCK, OTHERS), tl.float32)
    for start in range(0, CENTERS, OTHERS):
        center = centers_ptr + start + others
        dx, dy = x - tl.load(center)[None, :], y - tl.load(center + CENTERS)[None, :]
        dz = z - tl.load(center + 2 * CENTERS)[None, :]
        total += tl.exp(-dx * dx) * tl.exp(-dy * dy) * tl.exp(-dz * dz)
    tl.store(out_ptr + rows, tl.sum(total, 1) / CENTERS)


@triton.jit
def density_edited(points_ptr, centers_ptr, out_ptr, COUNT, CENTERS, BLOCK: tl.constexpr, OTHERS: tl.constexpr):
    """Compute one exponential of the sum."""
    rows, others = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, OTHERS)
    point = points_ptr + rows
    x, y, z = tl.load(point)[:, None], tl.load(point + COUNT)[:, None], tl.load(point + 2 * COUNT)[:, None]
    total = tl.zeros((BLOCK, OTHERS), tl.float32)
    for start in range(0, CENTERS, OTHERS):
        center = centers_ptr + start + others
        dx, dy = x - tl.load(center)[None, :], y - tl.load(center + CENTERS)[None, :]
        dz = z - tl.load(center + 2 * CENTERS)[None, :]
        total += tl.exp(-(dx * dx + dy * dy + dz * dz))
    tl.store(out_ptr + rows, tl.sum(total, 1) / CENTERS)


@triton.jit
def ode_flawed(x_ptr, weight_ptr, bias_ptr, out_ptr, STEPS, BLOCK: tl.constexpr):
    """Integrate x' = silu(z) - x * silu'(z) with z = weight * x + bias, with two sigmoids."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, weight, bias = tl.load(x_ptr + places), tl.load(weight_ptr + places), tl.load(bias_ptr + places)
    for _ in range(STEPS):
        z = weight * x + bias
        sigmoid, complement = 1 / (1 + tl.exp(-z)), 1 / (1 + tl.exp(z))
        slope = sigmoid * (1 + z * complement)
        x += 0.01 * (z / (1 + tl.exp(-z)) - x * slope)
    tl.store(out_ptr + places, x)


@triton.jit
def ode_edited(x_ptr, weight_ptr, bias_ptr, out_ptr, STEPS, BLOCK: tl.constexpr):
    """Compute one sigmoid, and the rest from it."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, weight, bias = tl.load(x_ptr + places), tl.load(weight_ptr + places), tl.load(bias_ptr + places)
    for _ in range(STEPS):
        z = weight * x + bias
        sigmoid = 1 / (1 + tl.exp(-z))
        slope = sigmoid * (1 + z * (1 - sigmoid))
        x += 0.01 * (z * sigmoid - x * slope)
    tl.store(out_ptr + places, x)


@triton.jit
def energy_flawed(atoms_ptr, out_ptr, sigma, COUNT, BLOCK: tl.constexpr, OTHERS: tl.constexpr):
    """Sum the Lennard-Jones energies of BLOCK atoms with all, by powers of distances."""
    rows, others = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, OTHERS)
    atom = atoms_ptr + rows
    x, y, z = tl.load(atom)[:, None], tl.load(atom + COUNT)[:, None], tl.load(atom + 2 * COUNT)[:, None]
    total = tl.zeros((BLOCK, OTHERS), tl.float32)
    for start in range(0, COUNT, OTHERS):
        other = atoms_ptr + start + others
        dx, dy = x - tl.load(other)[None, :], y - tl.load(other + COUNT)[None, :]
        dz = z - tl.load(other + 2 * COUNT)[None, :]
        distance = tl.sqrt(dx * dx + dy * dy + dz * dz + 0.25)
        logarithm = tl.log(sigma / distance)
        total += tl.exp(12 * logarithm) - tl.exp(6 * logarithm)
    tl.store(out_ptr + rows, tl.sum(total, 1))


@triton.jit
def energy_edited(atoms_ptr, out_ptr, sigma, COUNT, BLOCK: tl.constexpr, OTHERS: tl.constexpr):
    """Compute the powers by multiplication, from squared distances."""
    rows, others = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, OTHERS)
    atom = atoms_ptr + rows
    x, y, z = tl.load(atom)[:, None], tl.load(atom + COUNT)[:, None], tl.load(atom + 2 * COUNT)[:, None]
    total = tl.zeros((BLOCK, OTHERS), tl.float32)
    for start in range(0, COUNT, OTHERS):
        other = atoms_ptr + start + others
        dx, dy = x - tl.load(other)[None, :], y - tl.load(other + COUNT)[None, :]
        dz = z - tl.load(other + 2 * COUNT)[None, :]
        square = sigma * sigma / (dx * dx + dy * dy + dz * dz + 0.25)
        sixth = square * square * square
        total += sixth * sixth - sixth
    tl.store(out_ptr + rows, tl.sum(total, 1))


def density(device: str, small: bool) -> Pair:
    count, center_count = (256, 128) if small else (264 * 128, 4096)
    points, centers = normal(device, 3, count), normal(device, 3, center_count)
    flawed_out, edited_out = (torch.empty(count, device=device) for _ in range(2))

    def flawed() -> Result:
        density_flawed[(count // 128,)](points, centers, flawed_out, count, center_count, 128, 16, num_warps=8)
        return flawed_out

    def edited() -> Result:
        density_edited[(count // 128,)](points, centers, edited_out, count, center_count, 128, 16, num_warps=8)
        return edited_out

    return flawed, edited


def ode(device: str, small: bool) -> Pair:
    count, steps = (2048, 8) if small else (132 * 16 * 1024, 64)
    x, weight, bias = (normal(device, count) for _ in range(3))
    flawed_out, edited_out = (torch.empty_like(x) for _ in range(2))

    def flawed() -> Result:
        ode_flawed[(count // 1024,)](x, weight, bias, flawed_out, steps, 1024)
        return flawed_out

    def edited() -> Result:
        ode_edited[(count // 1024,)](x, weight, bias, edited_out, steps, 1024)
        return edited_out

    return flawed, edited


def energy(device: str, small: bool) -> Pair:
    count = 256 if small else 132 * 128
    atoms = normal(device, 3, count)
    flawed_out, edited_out = (torch.empty(count, device=device) for _ in range(2))

    def flawed() -> Result:
        energy_flawed[(count // 64,)](atoms, flawed_out, 0.3, count, 64, 32, num_warps=8)
        return flawed_out

    def edited() -> Result:
        energy_edited[(count // 64,)](atoms, edited_out, 0.3, count, 64, 32, num_warps=8)
        return edited_out

    return flawed, edited


CASES = by_name(
    Case("density", FLAW, density, KEYWORDS),
    Case("ode", FLAW, ode, KEYWORDS),
    Case("energy", FLAW, energy, KEYWORDS),
)
