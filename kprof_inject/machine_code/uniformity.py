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
    names = _registers_in(last.predicate)
    return bool(names) and all(_is_uniform(name, block[:-1], _MAX_STEPS) for name in names)


# Instructions that are looked at, for each value that one of them needs.
_MAX_STEPS = 12


def _is_uniform(name: str, before: Sequence[Instruction], steps: int) -> bool:
    """Return whether a value is uniform after some instructions."""
    if name.startswith("U") or name[-1] in "ZT":
        return True
    for place in range(len(before) - 1, -1, -1):
        one = before[place]
        written, read = _written_and_read(one)
        if name not in written:
            continue
        if one.predicate or not steps:
            return False
        if one.operation == "S2R":
            return bool(_UNIFORM_SPECIAL.search(one.operands))
        return one.operation in _PURE and all(_is_uniform(other, before[:place], steps - 1) for other in read)
    return False


def _registers_in(text: str) -> list[str]:
    """Return the registers and predicates that a text names, in order."""
    return [f"{kind}{number}" for kind, number in _NAME.findall(text)]


def _written_and_read(one: Instruction) -> tuple[list[str], list[str]]:
    """Return the registers that an instruction with a result writes, and those that its other operands name.

    It writes the first operand, and further predicates before the first other operand: two predicates at most.
    """
    operands = [_registers_in(part) for part in one.operands.split(", ")]
    count = 1
    if operands and operands[0]:
        most = min(2 if _is_predicate(operands[0]) else 3, len(operands))
        while count < most and _is_predicate(operands[count]):
            count += 1
    written = [name for part in operands[:count] for name in part]
    width = 4 if ".128" in one.opcode else 2 if ".64" in one.opcode or ".WIDE" in one.opcode else 1
    return _followed(written, width), [name for part in operands[count:] for name in part]


def _is_predicate(names: list[str]) -> bool:
    return bool(names) and names[0].lstrip("U").startswith("P")


def _followed(names: list[str], width: int) -> list[str]:
    """Add the registers after each that a wide operand has, which takes ``width`` in total."""
    found = list(names)
    for name in names:
        kind = name.rstrip("0123456789")
        if kind in ("R", "UR") and name != kind:
            found += [f"{kind}{int(name[len(kind) :]) + more}" for more in range(1, width)]
    return found
