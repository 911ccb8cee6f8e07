"""Find NVIDIA's instructions that would be dead if some accesses to global memory had no predicates.

They compute these predicates and nothing else: comparisons, the indices that are compared, and the values of elements
that are not loaded. A register is live if a later instruction that is needed reads it. Where the width of an operand is
in doubt, more registers count as read and fewer as written, so that the instructions are a lower bound.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.machine_code.accesses import bytes_of_thread, global_access
from kprof_inject.machine_code.control_flow import Block, blocks_of
from kprof_inject.machine_code.instructions import NEVER, Instruction, InstructionSet, MachineFunction
from kprof_inject.machine_code.registers import PURE, followed, registers_in, written_and_read
from kprof_inject.machine_code.units import Pipeline, pipeline_of

_PREDICATES = tuple(f"P{number}" for number in range(7))
# Without effects besides their result, though it may not depend on their operands alone.
_REMOVABLE = PURE | {"CS2R", "P2R", "R2P", "FSEL", "HFMA2", "LDCU", "VIADDMNMX", "VIMNMX3", "I2FP"}
_LOADS = frozenset(("LDG", "LD", "LDS", "LDL"))
# Their operands take more registers than they name.
_WIDE_READERS = frozenset((Pipeline.TENSOR, Pipeline.TMA, Pipeline.OTHER))
# They may take vectors, such as F32x4.
_ATOMICS = frozenset(("RED", "REDG", "ATOM", "ATOMG"))
_MATRICES = frozenset(("LDSM", "STSM"))
# What follows them may read any register.
_LEAVES = frozenset(("RET", "CALL", "BRX", "JMX"))
_ALWAYS = ("", "@PT", "@UPT")
_PAIR, _REGISTER_BYTES = ".64", 4
_MASK_OF_PREDICATES = re.compile(r", 0x([0-9a-f]+)$")
_ANY = "any"
"""Stands for all general registers."""


class _Effects(Struct, frozen=True):
    """Registers that an instruction reads, those that it may write, and those that it certainly overwrites."""

    reads: frozenset[str]
    writes: frozenset[str]
    overwrites: frozenset[str]
    is_removable: bool


def dead_without_predicates(function: MachineFunction, lines: Collection[int]) -> frozenset[int]:
    """Return the indices of instructions that would be dead if accesses of these lines had no predicates.

    Accesses are those to global memory. Conditional branches and exits of these lines, which skip accesses, are among
    the instructions. Empty for AMD's code.
    """
    if function.instruction_set is not InstructionSet.NVIDIA:
        return frozenset()
    blocks, code = blocks_of(function), function.instructions
    effects = [_effects(one, is_unconditional=False) for one in code]
    before = _dead(blocks, effects)
    skips = {index for index, one in enumerate(code) if one.line in lines and _is_skip(one)}
    for index, one in enumerate(code):
        if index in skips:
            effects[index] = _Effects(frozenset(), frozenset(), frozenset(), is_removable=False)
        elif one.line in lines and global_access(one):
            effects[index] = _effects(one, is_unconditional=True)
    return frozenset((_dead(blocks, effects) | skips) - before)


def _is_skip(one: Instruction) -> bool:
    if not one.predicate:
        return False
    return one.operation == "EXIT" or (one.operation == "BRA" and all(to > one.address for to in one.targets))


def _effects(one: Instruction, is_unconditional: bool) -> _Effects:
    guard = frozenset(_registers(one.predicate))
    written, read = (_without_constants(names) for names in written_and_read(one))
    is_removable = one.operation in _REMOVABLE
    if one.operation == "P2R":
        reads = guard | _chosen(one) | {*read}
        return _Effects(reads, frozenset(written), _if(one.predicate in _ALWAYS, written), is_removable)
    if one.operation == "R2P":
        return _Effects(guard | {*read}, _chosen(one), frozenset(), is_removable)
    if one.operation == "CS2R" and ".32" not in one.opcode:
        written = followed(written, 2)
    if is_removable or one.operation in _LOADS:
        is_certain = one.predicate in _ALWAYS or (is_unconditional and one.predicate != NEVER)
        taken = frozenset(followed(read, 2 if _has_pairs(one) or _PAIR in one.operands else 1))
        return _Effects(
            taken if is_unconditional else taken | guard,
            frozenset(written),
            _if(is_certain, written),
            is_removable,
        )
    return _Effects(_read_by_others(one, is_unconditional), frozenset(), frozenset(), is_removable=False)


def _read_by_others(one: Instruction, is_unconditional: bool) -> frozenset[str]:
    """Return what an instruction without a known result reads: all that it names."""
    names = [] if is_unconditional else _registers(one.predicate)
    for part in one.operands.split(", "):
        names += followed(_registers(part), _width_of(part, one))
    if is_unconditional:
        names = [name for name in names if name not in _PREDICATES]  # LDGSTS has its predicate as an operand
    reads = frozenset(names)
    if one.operation in _LEAVES:
        return reads | {_ANY, *_PREDICATES}
    is_wide = pipeline_of(one) in _WIDE_READERS or one.operation in _MATRICES
    return reads | {_ANY} if is_wide else reads


def _width_of(operand: str, one: Instruction) -> int:
    """Return how many registers an operand may take for each that it names."""
    if "[" in operand:
        return 2 if _PAIR in operand else 1
    if one.operation in _ATOMICS:
        return 4
    return max(bytes_of_thread(one) // _REGISTER_BYTES, 2 if _has_pairs(one) or _PAIR in operand else 1)


def _registers(text: str) -> list[str]:
    return _without_constants(registers_in(text))


def _without_constants(names: Sequence[str]) -> list[str]:
    """Return names without ``RZ``, ``PT`` and the like, which are always zero or true."""
    return [name for name in names if name[-1].isdigit()]


def _has_pairs(one: Instruction) -> bool:
    is_double = pipeline_of(one) is Pipeline.FP64
    return is_double or ".WIDE" in one.opcode or "64" in one.opcode


def _chosen(one: Instruction) -> frozenset[str]:
    """Return the predicates that ``P2R`` reads or ``R2P`` writes, by the mask that is its last operand."""
    found = _MASK_OF_PREDICATES.search(one.operands)
    mask = int(found[1], 16) if found else -1
    return frozenset(name for number, name in enumerate(_PREDICATES) if mask >> number & 1)


def _if(condition: bool, names: Sequence[str]) -> frozenset[str]:
    return frozenset(names) if condition else frozenset()


def _dead(blocks: Sequence[Block], effects: Sequence[_Effects]) -> set[int]:
    """Return the removable instructions whose results no needed instruction reads."""
    everything = frozenset(name for one in effects for name in one.writes)
    live: dict[int, frozenset[str]] = {}
    waiting = list(range(len(blocks)))
    before: Mapping[int, Sequence[int]] = _predecessors(blocks)
    while waiting:
        number = waiting.pop()
        state = _live_after(number, blocks, live)
        for index in range(blocks[number].end - 1, blocks[number].first - 1, -1):
            state = _live_before(effects[index], state, everything)
        if state != live.get(number):
            live[number] = state
            waiting += before[number]
    return set(_dead_in(blocks, effects, live, everything))


def _dead_in(
    blocks: Sequence[Block],
    effects: Sequence[_Effects],
    live: Mapping[int, frozenset[str]],
    everything: frozenset[str],
) -> Iterator[int]:
    for number, block in enumerate(blocks):
        state = _live_after(number, blocks, live)
        for index in range(block.end - 1, block.first - 1, -1):
            if effects[index].is_removable and effects[index].writes.isdisjoint(state):
                yield index
            state = _live_before(effects[index], state, everything)


def _live_after(number: int, blocks: Sequence[Block], live: Mapping[int, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*(live.get(successor, frozenset()) for successor in blocks[number].successors))


def _live_before(one: _Effects, live: frozenset[str], everything: frozenset[str]) -> frozenset[str]:
    if one.is_removable and one.writes.isdisjoint(live):
        return live
    found = (live - one.overwrites) | one.reads
    return found | {name for name in everything if name not in _PREDICATES} if _ANY in one.reads else found


def _predecessors(blocks: Sequence[Block]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {number: [] for number in range(len(blocks))}
    for number, block in enumerate(blocks):
        for successor in block.successors:
            found[successor].append(number)
    return found
