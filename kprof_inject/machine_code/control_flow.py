"""Find a function's basic blocks, its loops, and which instruction is awaited where a warp waits.

NVIDIA's instructions wait until scoreboards are empty. A wave of AMD's counts its outstanding instructions in a few
counters. ``s_waitcnt vmcnt(2)`` waits until two of those that ``vmcnt`` counts are outstanding, or fewer. Those of one
kind end in the order in which they were issued, so that all but the last two have ended. Reads of scalar memory end in
any order, and FLAT instructions count in two counters, so that only a wait for 0 says that they have ended. Source:
AMD, "AMD Instinct MI300 Instruction Set Architecture Reference Guide" (CDNA 3), sections 4.4 and 10.2.2.

From gfx10 on, stores have a counter of their own; gfx12 has more counters, and a wait instruction for each. Source:
LLVM, SIInsertWaitcnts.cpp (``WaitEventMaskForInstPreGFX12``, ``WaitEventMaskForInstGFX12Plus``,
``updateEventWaitcntAfter``), which inserts the wait instructions.

Left out are waits for what is no memory access or message (``expcnt``, ``s_wait_alu``), and for the translation of
addresses (``s_wait_xcnt``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

from msgspec import Struct

from kprof_inject.machine_code.instructions import NEVER, Instruction, InstructionSet, MachineFunction

# s_setpc_b64 returns; LLVM also uses it for branches of more than 128 KiB, whose targets are then unknown.
_ENDS = frozenset(("EXIT", "RET", "s_endpgm", "s_endpgm_saved", "s_setpc_b64"))
_CONDITIONAL = "s_cbranch_"
_ALWAYS = ("", "@PT", "@UPT")


class Block(Struct, frozen=True):
    """The instructions with indices from ``first`` to below ``end``, and the indices of the blocks that may follow."""

    first: int
    end: int
    successors: tuple[int, ...]


class MachineLoop(Struct, frozen=True):
    """A loop: ``header`` is the index of the block where it is entered, ``blocks`` are all of its blocks."""

    header: int
    blocks: frozenset[int]


@lru_cache(maxsize=32)  # of each kernel of a program
def blocks_of(function: MachineFunction) -> Sequence[Block]:
    """Return the blocks of a function in the order of their addresses."""
    code = function.instructions
    firsts = {0}
    for index, one in enumerate(code):
        firsts.update(map(function.index_of, one.targets))
        if _may_end(one):
            firsts.add(index + 1)
    bounds = [*sorted(first for first in firsts if first < len(code)), len(code)]
    numbers = {first: number for number, first in enumerate(bounds[:-1])}
    blocks = []
    for first, end in pairwise(bounds):
        successors = dict.fromkeys(numbers[index] for index in followers(function, end - 1))
        blocks.append(Block(first, end, tuple(successors)))
    return tuple(blocks)


def followers(function: MachineFunction, index: int) -> Iterator[int]:
    """Yield the indices of the instructions that may follow an instruction."""
    one = function.instructions[index]
    yield from map(function.index_of, one.targets)
    is_unconditional = (
        _may_end(one)
        and one.predicate in _ALWAYS
        # A uniform predicate is an operand: BRA.U !UP0, `(.L_x_0). So is the condition of BRA.DIV.
        and not (one.operation == "BRA" and "," in one.operands)
        and not one.operation.startswith(_CONDITIONAL)
    )
    if not is_unconditional and index + 1 < len(function.instructions):
        yield index + 1


def _may_end(one: Instruction) -> bool:
    return one.operation in _ENDS or one.is_branch


def reached(starts: Iterable[int], following: Callable[[int], Iterable[int]], without: Container[int] = ()) -> set[int]:
    """Return the nodes of a graph that are reached from ``starts``, with these, on paths ``without`` some nodes."""
    found: set[int] = set()
    waiting = list(starts)
    while waiting:
        node = waiting.pop()
        if node not in found and node not in without:
            found.add(node)
            waiting.extend(following(node))
    return found


def loops_of(blocks: Sequence[Block]) -> list[MachineLoop]:
    """Return the reachable loops that are entered at one block, outer ones first."""
    successors = [block.successors for block in blocks].__getitem__
    predecessors: defaultdict[int, set[int]] = defaultdict(set)
    for number in reached([0], successors):
        for successor in successors(number):
            predecessors[successor].add(number)
    loops = []
    for header, before in [*predecessors.items()]:
        # The next iteration begins after blocks that are reached through the header alone.
        if latches := before - reached([0], successors, {header}):
            body = reached(latches, predecessors.__getitem__, {header})
            loops.append(MachineLoop(header, frozenset((header, *body))))
    return sorted(loops, key=lambda loop: (-len(loop.blocks), loop.header))


class Wait(NamedTuple):
    """The instruction ``waiting`` is not issued before ``awaited`` has its result; both are indices."""

    waiting: int
    awaited: int


def waits_in(function: MachineFunction) -> list[Wait]:
    """Return all waits for a result or for operands, in the order of the code, on any path to the waiting one."""
    is_nvidia = function.instruction_set is InstructionSet.NVIDIA
    return sorted((_scoreboard_waits if is_nvidia else _counter_waits)(function))


_Fact = TypeVar("_Fact")


def _follow_paths(function: MachineFunction, step: Callable[[int, frozenset[_Fact]], frozenset[_Fact]]) -> None:
    """Call ``step`` for each instruction with what may hold before it, until no path adds anything.

    ``step`` gets the index of an instruction and a set of facts, and returns the set after the instruction. It must
    return more for more. Where paths meet, the sets are united; at the entry, nothing holds.
    """
    blocks = blocks_of(function)
    before: list[frozenset[_Fact]] = [frozenset()] * len(blocks)
    waiting = list(range(len(blocks)))
    while waiting:
        number = waiting.pop()
        state = before[number]
        for index in range(blocks[number].first, blocks[number].end):
            state = step(index, state)
        for successor in blocks[number].successors:
            if not state <= before[successor]:
                before[successor] |= state
                waiting.append(successor)


# Loads from shared memory have their results in order. ptxas was seen to let only the last of several count: the
# results of the others are there when that of the next counted one is.
_IN_ORDER = frozenset(("LDS", "LDSM"))
_UNCOUNTED = -1


def _scoreboard_waits(function: MachineFunction) -> set[Wait]:
    code = function.instructions
    found: set[Wait] = set()

    def step(index: int, pending: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
        # A fact is a scoreboard, or ``_UNCOUNTED``, and the index of an instruction that may count in it.
        one = code[index]
        is_in_order = one.operation in _IN_ORDER and one.predicate != NEVER
        result, operand = one.result_scoreboard, one.operand_scoreboard
        if not (is_in_order or one.awaited or result is not None or operand is not None):
            return pending
        found.update(Wait(index, awaited) for board, awaited in pending if board in one.awaited)
        after = {(board, earlier) for board, earlier in pending if board not in one.awaited}
        if operand is not None:
            after.add((operand, index))
        if result is not None:
            after.add((result, index))
            if is_in_order:
                after = {(result if board == _UNCOUNTED else board, earlier) for board, earlier in after}
        elif is_in_order:
            after.add((_UNCOUNTED, index))
        return frozenset(after)

    _follow_paths(function, step)
    return found


_VECTOR_MEMORY = r"(?:buffer|tbuffer|global|scratch|image)_"
# LLVM lets none of these count, and never waits for them.
_INVALIDATES = r"(?!inv|gl\d_inv|wbinv)"
_WRITES = r"(?:store|wb|atomic(?!.*(?:\bglc\b|RETURN)))"
_SCALAR_MEMORY = r"s_(?:buffer_)?(?:load|store|atomic)|s_(?:memtime|memrealtime|sendmsg)"
_LDS = r"ds_(?!nop)"
_ANY_ORDER = re.compile(rf"flat_|{_SCALAR_MEMORY}")

# For each instruction set, by how an instruction begins, the counters in which it is until it ends; the first fits.
_COUNTED: dict[InstructionSet, dict[str, tuple[str, ...]]] = {
    InstructionSet.GFX9: {
        _VECTOR_MEMORY + _INVALIDATES: ("vmcnt",),
        "flat_": ("vmcnt", "lgkmcnt"),
        _LDS: ("lgkmcnt",),
        _SCALAR_MEMORY: ("lgkmcnt",),
    },
    InstructionSet.GFX10: {
        _VECTOR_MEMORY + _WRITES: ("vscnt",),
        _VECTOR_MEMORY + _INVALIDATES: ("vmcnt",),
        "flat_" + _WRITES: ("vscnt", "lgkmcnt"),
        "flat_": ("vmcnt", "lgkmcnt"),
        _LDS: ("lgkmcnt",),
        _SCALAR_MEMORY: ("lgkmcnt",),
    },
    InstructionSet.GFX12: {
        r"(?:global|cluster)_\w+_async_": ("asynccnt",),
        "tensor_": ("tensorcnt",),
        _VECTOR_MEMORY + _WRITES: ("storecnt",),
        _VECTOR_MEMORY: ("loadcnt",),
        "flat_" + _WRITES: ("storecnt", "dscnt"),
        "flat_": ("loadcnt", "dscnt"),
        _LDS: ("dscnt",),
        _SCALAR_MEMORY: ("kmcnt",),
    },
}
# A called function begins with a wait for everything (LLVM, SIInsertWaitcnts.cpp).
_CALLS = frozenset(("s_swappc_b64", "s_call_b64"))

_Outstanding = tuple[str, int, int]
"""A counter, the index of an instruction that may be outstanding in it, and the number of instructions after that one
that end in order, or ``_ANY_TIME``."""
_ANY_TIME = -1


def _counter_waits(function: MachineFunction) -> set[Wait]:
    code = function.instructions
    kinds = _COUNTED[function.instruction_set]
    texts = [one.text for one in code]
    counters = [next((kinds[pattern] for pattern in kinds if re.match(pattern, text)), ()) for text in texts]
    remaining = [_remaining_after(one) for one in code]
    # Numbers that are higher than in any wait of the function need not be distinguished.
    highest = max((count for one in remaining for count in one.values()), default=0)
    found: set[Wait] = set()

    def step(index: int, outstanding: frozenset[_Outstanding]) -> frozenset[_Outstanding]:
        if code[index].operation in _CALLS:
            return frozenset()
        if counting := counters[index]:
            if _ANY_ORDER.match(texts[index]):
                return outstanding.union((counter, index, _ANY_TIME) for counter in counting)
            older = (
                (counter, one, min(later + 1, highest) if counter in counting and later != _ANY_TIME else later)
                for counter, one, later in outstanding
            )
            return frozenset(older).union((counter, index, 0) for counter in counting)
        left = remaining[index]
        if not left:
            return outstanding
        kept = frozenset(
            (counter, one, later)
            for counter, one, later in outstanding
            if counter not in left or (left[counter] and later < left[counter])
        )
        found.update(Wait(index, awaited) for _, awaited, _ in outstanding - kept)
        return kept

    _follow_paths(function, step)
    return found


_OF_COUNTER = re.compile(r"(\w+cnt)\((\d+)\)")
_WAIT = re.compile(r"s_wait(?:cnt)?_(?P<first>\w+?cnt)(?:_(?P<second>\w+cnt))?")
_SECOND_BITS = 8  # s_wait_loadcnt_dscnt has dscnt in the lower bits (LLVM, AMDGPUBaseInfo.cpp, decodeLoadcntDscnt)


def _remaining_after(one: Instruction) -> Mapping[str, int]:
    # The operand of ``s_waitcnt`` may also be one number for all counters, in handwritten code. Its bits differ between
    # processors, so only 0 is read.
    if one.operation == "s_waitcnt":
        counts = {counter: int(count) for counter, count in _OF_COUNTER.findall(one.operands)}
        return counts if one.operands != "0" else {"vmcnt": 0, "lgkmcnt": 0}
    found = _WAIT.fullmatch(one.operation)
    if found is None:
        return {}
    number = int(one.operands.rpartition(",")[2], 0)
    if found["second"] is None:
        return {found["first"]: number}
    return {found["first"]: number >> _SECOND_BITS, found["second"]: number & ((1 << _SECOND_BITS) - 1)}
