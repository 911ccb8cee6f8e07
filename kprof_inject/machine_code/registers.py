"""Registers that an instruction of NVIDIA's names: those that it writes, and those that it reads."""

from __future__ import annotations

import re

from kprof_inject.machine_code.instructions import Instruction

# A register, a uniform one, or a predicate; ``R2.64`` names the one after it, too.
_NAME = re.compile(r"\b(U?(?:R|P))(\d+|Z|T)\b")
# Instructions whose result only depends on their operands. Source: CUDA Binary Utilities, "Instruction Set Reference".
_PURE_NAMES = """
    IADD3 VIADD IMAD IMNMX VIMNMX ISETP LEA LOP3 MOV PLOP3 PRMT SEL SHF SGXT BREV FLO POPC IABS UIADD3 UIMAD UISETP ULEA
    ULOP3 UMOV UPLOP3 USEL USHF USGXT ULDC LDC R2UR CS2UR S2UR
"""
PURE = frozenset(_PURE_NAMES.split())


def registers_in(text: str) -> list[str]:
    """Return the registers and predicates that a text names, in order."""
    return [f"{kind}{number}" for kind, number in _NAME.findall(text)]


def written_and_read(one: Instruction) -> tuple[list[str], list[str]]:
    """Return the registers that an instruction with a result writes, and those that its other operands name.

    It writes the first operand, and further predicates before the first other operand: two predicates at most.
    """
    operands = [registers_in(part) for part in one.operands.split(", ")]
    count = 1
    if operands and operands[0]:
        most = min(2 if _is_predicate(operands[0]) else 3, len(operands))
        while count < most and _is_predicate(operands[count]):
            count += 1
    written = [name for part in operands[:count] for name in part]
    width = 4 if ".128" in one.opcode else 2 if ".64" in one.opcode or ".WIDE" in one.opcode else 1
    return followed(written, width), [name for part in operands[count:] for name in part]


def _is_predicate(names: list[str]) -> bool:
    return bool(names) and names[0].lstrip("U").startswith("P")


def followed(names: list[str], width: int) -> list[str]:
    """Add the registers after each that a wide operand has, which takes ``width`` in total."""
    found = list(names)
    for name in names:
        kind = name.rstrip("0123456789")
        if kind in ("R", "UR") and name != kind:
            found += [f"{kind}{int(name[len(kind) :]) + more}" for more in range(1, width)]
    return found
