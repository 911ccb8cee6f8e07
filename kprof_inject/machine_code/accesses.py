"""Widths of memory accesses, and what they take of the L1's data path.

Source: CUDA Binary Utilities, "Instruction Set Reference"; the modifiers are those of the PTX types that they access.
"""

from __future__ import annotations

from kprof_inject.machine_code.instructions import NEVER, Instruction
from kprof_inject.machine_code.units import Pipeline, pipeline_of

_KINDS = {"LDG": "load", "LDGSTS": "load", "STG": "store"}
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_DEFAULT_BYTES = 4
# Matrices of 8 x 8 elements of 16 bits, 128 bytes each: one, two or four of them.
_MATRICES = frozenset(("LDSM", "STSM"))
_OF_MATRICES = {"2": 2, "4": 4}
_MATRIX_ROWS = 8
# CUDA C++ Programming Guide, "Shared Memory": 32 banks of 4 bytes serve a warp in a cycle.
_WAVEFRONT_BYTES, _LANES = 128, 32


def global_access(one: Instruction) -> tuple[str, int] | None:
    """Return ``load`` or ``store`` and the bytes of a thread; None for any other instruction."""
    kind = _KINDS.get(one.operation)
    if kind is None or one.predicate == NEVER:
        return None
    return kind, bytes_of_thread(one)


def min_wavefronts(one: Instruction) -> int:
    """Return how many cycles of the L1's data path an instruction of the LSU takes without conflicts; 0 for others.

    On an H100, kernels without conflicts had as many wavefronts (``l1tex__data_pipe_lsu_wavefronts``).
    """
    if pipeline_of(one) is not Pipeline.LSU or one.predicate == NEVER:
        return 0
    if one.operation in _MATRICES:
        return _OF_MATRICES.get(one.opcode.rpartition(".")[2], 1)
    return wavefronts_of(bytes_of_thread(one))


def max_wavefronts(one: Instruction) -> int:
    """Return how many cycles of the L1's data path an instruction of the LSU takes at most: each lane its own.

    The rows of a matrix are accessed as those of a lane.
    """
    if one.operation in _MATRICES:
        return _MATRIX_ROWS * min_wavefronts(one)
    return max(_LANES, min_wavefronts(one))


def wavefronts_of(access_bytes: int) -> int:
    """Return how many cycles of the L1's data path a warp needs if its threads access adjacent bytes."""
    return max(access_bytes * _LANES // _WAVEFRONT_BYTES, 1)


def bytes_of_thread(one: Instruction) -> int:
    """Return how many bytes a thread accesses with an instruction of the LSU."""
    widths = (_BYTES[part] for part in one.opcode.split(".") if part in _BYTES)
    return next(widths, _DEFAULT_BYTES)
