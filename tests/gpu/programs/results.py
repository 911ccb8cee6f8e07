"""What all programs here have in common: they save their results, so that two runs can be compared bit by bit."""

import argparse

import numpy as np
import torch


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--save", metavar="FILE", help="write the results there, as .npy")
    return made


def save(path: str | None, *tensors: torch.Tensor) -> None:
    """Write all tensors, one behind the other."""
    values = np.concatenate([tensor.detach().float().cpu().numpy().ravel() for tensor in tensors])
    if path:
        np.save(path, values)
