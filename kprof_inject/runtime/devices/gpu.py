"""Whether kernels can be launched here."""

from __future__ import annotations


def has_gpu() -> bool:
    """True if torch sees a device that Triton can launch on."""
    import torch

    return torch.cuda.is_available()
