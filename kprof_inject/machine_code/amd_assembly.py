"""Read the instructions of AMD's assembly, as LLVM prints it.

``.loc FILE LINE COLUMN`` says where the instructions after it come from, in a file that ``.file`` has named; LLVM
prints line 0 where it does not know (LLVM, "Source Level Debugging with LLVM"; GNU as, ".loc"). A function lasts from
its ``.type`` to its ``.size``. A label of a number, which only inline assembly has, is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from msgspec.structs import replace

from kprof_inject.errors import KprofError
from kprof_inject.machine_code.instructions import Instruction, InstructionSet, MachineFunction

SPILL = "Folded"
"""A word of LLVM's comment on an access to a spilled register. ``read_assembly`` leaves the comment in the operands."""

# By the first digits of a processor: gfx90a, gfx942, gfx1100. gfx11 has the counters of gfx10 (LLVM,
# SIInsertWaitcnts.cpp).
_INSTRUCTION_SETS = {
    "9": InstructionSet.GFX9,
    "10": InstructionSet.GFX10,
    "11": InstructionSet.GFX10,
    "12": InstructionSet.GFX12,
}
_TARGET = re.compile(r'\s*\.amdgcn_target\s+"[^"]*?(?P<processor>gfx(?P<generation>\d+)[0-9a-f]{2})\b')
_FILE = re.compile(r'\s*\.file\s+(?P<number>\d+)\s+(?:"[^"]*"\s+)?"(?P<name>[^"]*)"')
_LOCATION = re.compile(r"\s*\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)")
_FUNCTION = re.compile(r'\s*\.type\s+(?P<name>"[^"]*"|[^\s,"]+),@function')
_END = re.compile(r"\s*\.size\s")
_LABEL = re.compile(r'(?P<label>"[^"]*"|[^\s:"]+):')
# The suffixes _e32 and _e64 name the size of an encoding, and nothing of what the instruction does (LLVM, "Syntax of
# AMDGPU Instructions").
_INSTRUCTION = re.compile(r"\s+(?P<opcode>[a-z]\w*?)(?:_e32|_e64)?(?:\s+(?P<operands>\S.*))?")
_COMMENT = re.compile(rf"\s*(?:;(?!.*\b{SPILL}\b)|//).*")


def read_assembly(text: str, file: str) -> list[MachineFunction]:
    """Return the functions of an assembly text; their lines are those of ``file``.

    Raises ``KprofError`` if an instruction is not as expected, or if the processor is not known.
    """
    target = _TARGET.search(text)
    instruction_set = target and _INSTRUCTION_SETS.get(target["generation"])
    if instruction_set is None:
        raise KprofError(
            f"the assembly is of {target['processor'] if target else 'no processor'}, whose waits are not known",
            hint="those of gfx9 to gfx12 are",
        )
    functions: list[tuple[str, list[Instruction], dict[str, int]]] = []
    is_inside = False
    line = 0
    names: dict[str, str] = {}
    for number, whole in enumerate(text.splitlines(), 1):
        code = _COMMENT.sub("", whole)
        if found := _FUNCTION.match(code):
            functions.append((found["name"].strip('"'), [], {}))
            is_inside, line = True, 0
        elif found := _FILE.match(code):
            names[found["number"]] = found["name"]
        elif _END.match(code):
            is_inside = False
        elif not is_inside or not code.strip():
            continue
        elif found := _LOCATION.match(code):
            line = int(found["line"]) if names.get(found["file"]) == PurePath(file).name else 0
        elif found := _LABEL.match(code):
            _, instructions, labels = functions[-1]
            labels[found["label"]] = len(instructions)
        elif not code.lstrip().startswith("."):
            instructions = functions[-1][1]
            instructions.append(_instruction(code, line, number, len(instructions)))
    return [
        MachineFunction(name, tuple(_with_targets(found, labels)), instruction_set)
        for name, found, labels in functions
        if found
    ]


def _instruction(code: str, line: int, number: int, address: int) -> Instruction:
    found = _INSTRUCTION.fullmatch(code)
    if found is None:
        raise KprofError(
            f"line {number} of the assembly is no instruction: {code.strip()[:80]}",
            hint="Triton may be of a version that kprof-inject does not know; please report it",
        )
    return Instruction(address, found["opcode"], found["operands"] or "", line=line)


def _with_targets(instructions: list[Instruction], labels: dict[str, int]) -> Iterator[Instruction]:
    for one in instructions:
        target = labels.get(one.operands) if one.is_branch else None
        is_there = target is not None and target < len(instructions)
        yield replace(one, targets=(target,)) if is_there else one
