"""Branches that all threads of a warp take the same way, as far as their own block shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kprof_inject.machine_code.instructions import Instruction
from kprof_inject.machine_code.registers import PURE, registers_in, written_and_read

# Special registers that are the same in all threads of a CTA.
_UNIFORM_SPECIAL = re.compile(r"\bSR_(?:CTAID|NCTAID|CgaCtaId|GRIDID)")


def has_uniform_branch(block: Sequence[Instruction]) -> bool:
    """Return whether the predicate of a block's last instruction is the same in all threads of a warp.

    False if that does not follow from the block alone.
    """
    last = block[-1]
    names = registers_in(last.predicate)
    return bool(names) and all(_is_uniform(name, block[:-1], _MAX_STEPS) for name in names)


# Instructions that are looked at, for each value that one of them needs.
_MAX_STEPS = 12


def _is_uniform(name: str, before: Sequence[Instruction], steps: int) -> bool:
    """Return whether a value is uniform after some instructions."""
    if name.startswith("U") or name[-1] in "ZT":
        return True
    for place in range(len(before) - 1, -1, -1):
        one = before[place]
        written, read = written_and_read(one)
        if name not in written:
            continue
        if one.predicate or not steps:
            return False
        if one.operation == "S2R":
            return bool(_UNIFORM_SPECIAL.search(one.operands))
        return one.operation in PURE and all(_is_uniform(other, before[:place], steps - 1) for other in read)
    return False
