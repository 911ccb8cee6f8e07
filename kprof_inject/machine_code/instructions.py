"""Instructions of machine code, and how nvdisasm's output and AMD's assembly are read as such.

``nvdisasm -g -c -hex`` prints each instruction with its address and its encoding, after the source line that it was
compiled from (CUDA Binary Utilities, "nvdisasm"). From sm_70 on, an encoding has 128 bits, with what the compiler tells
the scheduler in bits 105 to 125 (Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking",
2018, table 2.1).

AMD's assembly is as LLVM prints it. ``.loc FILE LINE COLUMN`` says where the instructions after it come from, in a file
that ``.file`` has named; LLVM prints line 0 where it does not know (LLVM, "Source Level Debugging with LLVM"; GNU as,
".loc"). A function lasts from its ``.type`` to its ``.size``. A label of a number, which only inline assembly has, is
ignored.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from difflib import SequenceMatcher
from enum import Enum
from pathlib import PurePath

from msgspec import Struct, field
from msgspec.structs import replace

from kprof_inject.errors import KprofError

INSTRUCTION_BYTES = 16
NEVER = "@!PT"  # predicate of an instruction that is never executed, such as a load that ptxas adds to ``LDGSTS``
_NO_SCOREBOARD = 7
# Other operations with a label, such as BSSY and LEPC, do not branch to it. AMD's names are in lower case.
_BRANCHES = {
    *("BRA", "BRX", "BRXU", "JMP", "JMX", "s_branch", "s_cbranch_scc0", "s_cbranch_scc1", "s_cbranch_vccz"),
    *("s_cbranch_vccnz", "s_cbranch_execz", "s_cbranch_execnz"),
}
_DOTS = frozenset(("HGMMA", "IGMMA", "QGMMA", "BGMMA"))
_TARGET = re.compile(r"\.L_\w+")

SCOREBOARDS = range(6)
_MAX_LINE = (1 << 31) - 1


class InstructionSet(Enum):
    """Instruction sets, AMD's by LLVM's names of their first processors: ``GFX10`` is also that of gfx11."""

    NVIDIA = "nvidia"
    GFX9 = "gfx9"
    GFX10 = "gfx10"
    GFX12 = "gfx12"

    @property
    def address_step(self) -> int:
        """Difference between successive addresses: in bytes for NVIDIA, 1 for AMD, whose assembly has no addresses."""
        return INSTRUCTION_BYTES if self is InstructionSet.NVIDIA else 1


class Instruction(Struct, frozen=True, array_like=True):
    """An instruction of a function.

    ``address`` counts from the function's begin, in the unit of ``InstructionSet.address_step``. ``opcode`` has its
    modifiers: ``LDG.E.128``. ``predicate`` is as printed, such as ``@!P0``, or empty. ``line`` is the line of the file
    that was compiled, 0 if it is unknown. A warp issues the next instruction ``stall_cycles`` later at the earliest.

    An instruction of unknown duration counts in a scoreboard until its result is there (``result_scoreboard``), and
    until its operands are read (``operand_scoreboard``). It is issued once the scoreboards in ``awaited`` are empty.
    AMD has no scoreboards: see ``waits_in``. ``targets`` are the addresses to which it may branch.
    """

    address: int
    opcode: str
    operands: str
    predicate: str = ""
    line: int = 0
    stall_cycles: int = 0
    result_scoreboard: int | None = None
    operand_scoreboard: int | None = None
    awaited: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()

    @property
    def operation(self) -> str:
        """The opcode without modifiers: ``LDG``."""
        return self.opcode.partition(".")[0]

    @property
    def text(self) -> str:
        """The opcode with its operands."""
        return f"{self.opcode} {self.operands}"

    @property
    def is_branch(self) -> bool:
        """True if it may branch, to ``targets`` or elsewhere."""
        # ptxas leaves some loops by a call of a label in the same function, which does not return. Calls of other
        # functions name them, or a register.
        is_local_call = self.operation == "CALL" and _TARGET.search(self.operands) is not None
        return self.operation in _BRANCHES or is_local_call


class MachineFunction(Struct, frozen=True, omit_defaults=True):
    """A function's instructions by address; for NVIDIA, with those of functions that it calls without inlining."""

    name: str
    instructions: tuple[Instruction, ...]
    instruction_set: InstructionSet = InstructionSet.NVIDIA

    def __post_init__(self) -> None:
        step = self.instruction_set.address_step
        targets = range(0, step * len(self.instructions), step)
        for index, one in enumerate(self.instructions):
            boards = (*one.awaited, one.result_scoreboard or 0, one.operand_scoreboard or 0)
            if one.address != index * step:
                raise ValueError(f"expected an instruction at {index * step}, got one at {one.address}")
            if any(target not in targets for target in one.targets):
                raise ValueError(f"the instruction at {one.address} branches out of the function")
            if not 0 <= one.line <= _MAX_LINE or any(board not in SCOREBOARDS for board in boards):
                raise ValueError(f"the instruction at {one.address} has a line or a scoreboard that there is not")

    def __hash__(self) -> int:
        # It takes no time: few functions are in a cache, and nearly all of them differ in these.
        return hash((self.name, len(self.instructions)))

    def index_of(self, address: int) -> int:
        """Return the index of the instruction at an address."""
        return address // self.instruction_set.address_step


_SECTION = re.compile(r"\s*\.section\s+\.text\.(?P<name>[^,\s]+),")
_LABEL = re.compile(r"(?P<label>\S+):\s*$")
_WORDS = re.compile(r"[\w.$]+")
_CALLED = re.compile(r"`\((\$__internal_[^)]+)\)")
_LINE = re.compile(r'\s*//## File "(?P<file>(?:[^"\\]|\\.)*)", line (?P<line>\d+)')
_INSTRUCTION = re.compile(
    r"\s+/\*(?P<address>[0-9a-f]+)\*/\s+(?P<predicate>@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)\s*(?P<operands>.*?)\s*;"
    r"\s*/\* 0x(?P<low>[0-9a-f]{16}) \*/\s*$"
)
_HIGH_WORD = re.compile(r"\s+/\* 0x(?P<high>[0-9a-f]{16}) \*/\s*$")


class _Read(Struct):
    name: str
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def completed(self, instruction_set: InstructionSet) -> MachineFunction:
        callers: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for one in self.instructions:
            if one.operation == "CALL" and (called := _CALLED.search(one.operands)) and called[1] in self.labels:
                callers[self.labels[called[1]]][one.line] += 1
        last, caller_line, dot_line = self.instructions[-1].address, None, 0
        completed = []
        for one in self.instructions:
            # ptxas's own functions, such as 64-bit division, get the line that calls them most: nvdisasm prints none.
            if one.address in callers:
                caller_line = callers[one.address].most_common(1)[0][0]
            if caller_line is not None:
                one = replace(one, line=caller_line)
            # ptxas was seen to give half of a dot's wgmma a line of other operations.
            if one.opcode == "WARPGROUP.ARRIVE":
                dot_line = one.line
            if one.is_branch:
                targets = (self.labels.get(word, last + 1) for word in _WORDS.findall(one.operands))
                one = replace(one, targets=tuple(target for target in targets if target <= last))
            elif dot_line and one.operation in _DOTS:
                one = replace(one, line=dot_line)
            completed.append(one)
        return MachineFunction(self.name, tuple(completed), instruction_set)


def read_nvdisasm(printed: str, file: str) -> list[MachineFunction]:
    """Return the functions in ``nvdisasm -g -c -hex``'s output, with the lines of ``file``; raises ``KprofError``."""
    functions: list[_Read] = []
    line = 0
    lines = iter(enumerate(printed.splitlines(), 1))
    for number, text in lines:
        if found := _SECTION.match(text):
            functions.append(_Read(found["name"]))
            line = 0
        elif not functions:
            continue
        elif found := _LINE.match(text):
            line = int(found["line"]) if PurePath(found["file"]).name == PurePath(file).name else 0
        elif found := _LABEL.match(text):
            functions[-1].labels[found["label"]] = len(functions[-1].instructions) * INSTRUCTION_BYTES
        elif text.lstrip().startswith("/*"):
            _, high = next(lines, (0, ""))
            instructions = functions[-1].instructions
            instructions.append(_instruction(text, high, line, number, len(instructions) * INSTRUCTION_BYTES))
    return [one.completed(InstructionSet.NVIDIA) for one in functions if one.instructions]


def _instruction(text: str, next_text: str, line: int, number: int, address: int) -> Instruction:
    found, high = _INSTRUCTION.match(text), _HIGH_WORD.match(next_text)
    if found is None or high is None or int(found["address"], 16) != address:
        raise KprofError(
            f"line {number} of the disassembly is no instruction: {text.strip()[:80]}",
            hint="nvdisasm may be of a version that kprof-inject does not know; please report it",
        )
    control = int(high["high"], 16) >> 41
    result, operand, awaited = control >> 5 & 7, control >> 8 & 7, control >> 11 & 63
    return Instruction(
        address=address,
        opcode=found["opcode"],
        operands=found["operands"],
        predicate=(found["predicate"] or "").strip(),
        line=line,
        stall_cycles=control & 15,
        result_scoreboard=None if result == _NO_SCOREBOARD else result,
        operand_scoreboard=None if operand == _NO_SCOREBOARD else operand,
        awaited=tuple(board for board in SCOREBOARDS if awaited >> board & 1),
    )


SPILL = "Folded"
"""A word in LLVM's comment on an access to a spilled register, which ``read_assembly`` leaves in the operands."""

# By the first digits of a processor: gfx90a, gfx942, gfx1100. gfx11 has the counters of gfx10 (LLVM,
# SIInsertWaitcnts.cpp).
_INSTRUCTION_SETS = {
    "9": InstructionSet.GFX9,
    "10": InstructionSet.GFX10,
    "11": InstructionSet.GFX10,
    "12": InstructionSet.GFX12,
}
_AMD_TARGET = re.compile(r'\s*\.amdgcn_target\s+"[^"]*?(?P<processor>gfx(?P<generation>\d+)[0-9a-f]{2})\b')
_AMD_FILE = re.compile(r'\s*\.file\s+(?P<number>\d+)\s+(?:"[^"]*"\s+)?"(?P<name>[^"]*)"')
_AMD_LOCATION = re.compile(r"\s*\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)")
_AMD_FUNCTION = re.compile(r'\s*\.type\s+(?P<name>"[^"]*"|[^\s,"]+),@function')
_AMD_END = re.compile(r"\s*\.size\s")
_AMD_LABEL = re.compile(r'(?P<label>"[^"]*"|[^\s:"]+):')
# The suffixes _e32 and _e64 name the size of an encoding, and nothing of what the instruction does (LLVM, "Syntax of
# AMDGPU Instructions").
_AMD_INSTRUCTION = re.compile(r"\s+(?P<opcode>[a-z]\w*?)(?:_e32|_e64)?(?:\s+(?P<operands>\S.*))?")
_AMD_COMMENT = re.compile(rf"\s*(?:;(?!.*\b{SPILL}\b)|//).*")


def read_assembly(text: str, file: str) -> list[MachineFunction]:
    """Return the functions in AMD's assembly, with the lines of ``file``; raises ``KprofError``."""
    target = _AMD_TARGET.search(text)
    instruction_set = target and _INSTRUCTION_SETS.get(target["generation"])
    if instruction_set is None:
        raise KprofError(
            f"the assembly is of {target['processor'] if target else 'no processor'}, whose waits are not known",
            hint="those of gfx9 to gfx12 are",
        )
    functions: list[_Read] = []
    is_inside = False
    line = 0
    names: dict[str, str] = {}
    for number, whole in enumerate(text.splitlines(), 1):
        code = _AMD_COMMENT.sub("", whole)
        if found := _AMD_FUNCTION.match(code):
            functions.append(_Read(found["name"].strip('"')))
            is_inside, line = True, 0
        elif found := _AMD_FILE.match(code):
            names[found["number"]] = found["name"]
        elif _AMD_END.match(code):
            is_inside = False
        elif not is_inside or not code.strip():
            continue
        elif found := _AMD_LOCATION.match(code):
            line = int(found["line"]) if names.get(found["file"]) == PurePath(file).name else 0
        elif found := _AMD_LABEL.match(code):
            functions[-1].labels[found["label"]] = len(functions[-1].instructions)
        elif not code.lstrip().startswith("."):
            if (found := _AMD_INSTRUCTION.fullmatch(code)) is None:
                raise KprofError(
                    f"line {number} of the assembly is no instruction: {code.strip()[:80]}",
                    hint="Triton may be of a version that kprof-inject does not know; please report it",
                )
            instructions = functions[-1].instructions
            instructions.append(Instruction(len(instructions), found["opcode"], found["operands"] or "", line=line))
    return [one.completed(instruction_set) for one in functions if one.instructions]


def with_lines_of(function: MachineFunction, other: MachineFunction) -> MachineFunction:
    """Return the function with the lines of ``other``, another compilation with nearly the same instructions."""
    # Registers and their predicates may differ.
    own, others = ([(one.opcode, bool(one.predicate)) for one in each.instructions] for each in (function, other))
    lines = [0] * len(own)  # of instructions that the other does not have at their place
    if own == others:
        lines = [one.line for one in other.instructions]
    else:
        for mine, theirs, size in SequenceMatcher(None, own, others, autojunk=False).get_matching_blocks():
            lines[mine : mine + size] = [one.line for one in other.instructions[theirs : theirs + size]]
    return replace(
        function,
        instructions=tuple(replace(one, line=line) for one, line in zip(function.instructions, lines, strict=True)),
    )
