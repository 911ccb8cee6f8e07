"""Branches that all threads of a warp take the same way, as far as their own block shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kprof_inject.machine_code.instructions import Instruction

# A register, a uniform one, or a predicate; ``R2.64`` names the one after it, too.
_NAME = re.compile(r"\b(U?(?:R|P))(\d+|Z|T)\b")
# Instructions whose result only depends on their operands. Source: CUDA Binary Utilities, "Instruction Set Reference".
_PURE_NAMES = """
    IADD3 VIADD IMAD IMNMX VIMNMX ISETP LEA LOP3 MOV PLOP3 PRMT SEL SHF SGXT BREV FLO POPC IABS UIADD3 UIMAD UISETP ULEA
    ULOP3 UMOV UPLOP3 USEL USHF USGXT ULDC LDC R2UR CS2UR S2UR
"""
_PURE = frozenset(_PURE_NAMES.split())
# Special registers that are the same in all threads of a CTA.
_UNIFORM_SPECIAL = re.compile(r"\bSR_(?:CTAID|NCTAID|CgaCtaId|GRIDID)")


def has_uniform_branch(block: Sequence[Instruction]) -> bool:
    """Return whether the predicate of a block's last instruction is the same in all threads of a warp.

    False if that does not follow from the block alone.
    """
    last = block[-1]
    names = _names(last.predicate)
    return bool(names) and all(_is_uniform(name, block[:-1], _MAX_STEPS) for name in names)


# Instructions that are looked at, for each value that one of them needs.
_MAX_STEPS = 12


def _is_uniform(name: str, before: Sequence[Instruction], steps: int) -> bool:
    """Return whether a value is uniform after some instructions."""
    if name.startswith("U") or name[-1] in "ZT":
        return True
    for place in range(len(before) - 1, -1, -1):
        one = before[place]
        written, read = _split(one)
        if name not in written:
            continue
        if one.predicate or not steps:
            return False
        if one.operation == "S2R":
            return bool(_UNIFORM_SPECIAL.search(one.operands))
        return one.operation in _PURE and all(_is_uniform(other, before[:place], steps - 1) for other in read)
    return False


def _split(one: Instruction) -> tuple[list[str], list[str]]:
    """Return the registers that an instruction writes, and those that it reads.

    It writes the first operand, and further predicates before the first other operand.
    """
    operands = [_names(part) for part in one.operands.split(", ")]
    count = 1
    if operands and operands[0]:
        while count < len(operands) and operands[count] and operands[count][0].lstrip("U").startswith("P"):
            count += 1
    written = [name for part in operands[:count] for name in part]
    return _with_pairs(written, one), [name for part in operands[count:] for name in part]


def _with_pairs(names: Sequence[str], one: Instruction) -> list[str]:
    """Add the registers after the first that a wide instruction writes."""
    width = 4 if ".128" in one.opcode else 2 if ".64" in one.opcode or ".WIDE" in one.opcode else 1
    found = list(names)
    for name in names:
        if name.startswith("R") and name[1:].isdigit():
            found += [f"R{int(name[1:]) + more}" for more in range(1, width)]
    return found


def _names(text: str) -> list[str]:
    return [f"{kind}{number}" for kind, number in _NAME.findall(text)]
