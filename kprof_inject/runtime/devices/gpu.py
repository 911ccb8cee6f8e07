"""Whether kernels can be launched here."""

from __future__ import annotations


def has_gpu() -> bool:
    """True if torch is there and sees a device that Triton can launch on."""
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return torch.cuda.is_available()
