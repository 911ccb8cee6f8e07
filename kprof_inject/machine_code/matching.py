"""Give the instructions of a kernel the lines that those of another compilation of it have."""

from __future__ import annotations

from difflib import SequenceMatcher

from msgspec.structs import replace

from kprof_inject.machine_code.instructions import Instruction, MachineFunction


def with_lines_of(function: MachineFunction, other: MachineFunction) -> MachineFunction:
    """Return the function with the lines of ``other``, whose instructions are the same or nearly.

    Instructions that the other does not have at their place get no line.
    """
    own, others = list(map(_key, function.instructions)), list(map(_key, other.instructions))
    lines = [0] * len(own)
    if own == others:
        lines = [one.line for one in other.instructions]
    else:
        for mine, theirs, size in SequenceMatcher(None, own, others, autojunk=False).get_matching_blocks():
            lines[mine : mine + size] = [one.line for one in other.instructions[theirs : theirs + size]]
    return replace(
        function,
        instructions=tuple(replace(one, line=line) for one, line in zip(function.instructions, lines, strict=True)),
    )


def _key(one: Instruction) -> tuple[str, bool]:
    """Return what is the same in both compilations: registers and their predicates may differ."""
    return one.opcode, bool(one.predicate)
