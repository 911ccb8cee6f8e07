"""Widths of accesses to global memory.

Source: CUDA Binary Utilities, "Instruction Set Reference"; the modifiers are those of the PTX types that they load.
"""

from __future__ import annotations

from kprof_inject.machine_code.instructions import NEVER, Instruction

_KINDS = {"LDG": "load", "LDGSTS": "load", "STG": "store"}
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_DEFAULT_BYTES = 4


def global_access(one: Instruction) -> tuple[str, int] | None:
    """Return ``load`` or ``store`` and the bytes of a thread; None for any other instruction."""
    kind = _KINDS.get(one.operation)
    if kind is None or one.predicate == NEVER:
        return None
    widths = (_BYTES[part] for part in one.opcode.split(".") if part in _BYTES)
    return kind, next(widths, _DEFAULT_BYTES)
