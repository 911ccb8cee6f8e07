"""Kernels with a known flaw, each with a known edit that removes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

Result: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...]
Launch: TypeAlias = Callable[[], Result]
Pair: TypeAlias = tuple[Launch, Launch]

HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32
FP8, INT8, INT = torch.float8_e4m3fn, torch.int8, torch.int32

H100_SMS = 132


@dataclass(frozen=True)
class Case:
    """A kernel with one flaw.

    ``prepare(device, small)`` allocates the inputs and returns the flawed and the edited launch. Each call of them
    launches once and returns the results. Atomics add to the results of earlier launches, so results are compared after
    one launch of each. ``small`` selects sizes for Triton's interpreter.

    Advice leads to the edit if it contains one of ``keywords``, in lower case.
    """

    name: str
    flaw: str
    prepare: Callable[[str, bool], Pair]
    keywords: tuple[str, ...]
    relative: float = 1e-3
    """Relative tolerance of the results."""
    absolute: float = 1e-5
    """Absolute tolerance of the results."""


def by_name(*cases: Case) -> dict[str, Case]:
    """Return cases by their names."""
    return {case.name: case for case in cases}


def normal(device: str, *shape: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    """Return a tensor of normally distributed values."""
    return torch.randn(shape, device=device).to(dtype)


def sm_count(device: str) -> int:
    """Return the number of the device's SMs; that of an H100 for the CPU."""
    if device == "cpu":
        return H100_SMS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
