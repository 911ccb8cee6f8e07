"""Find which instructions are awaited by AMD's wait instructions.

A wave counts its outstanding instructions in a few counters. ``s_waitcnt vmcnt(2)`` waits until two of those that
``vmcnt`` counts are outstanding, or fewer. Those of one kind end in the order in which they were issued, so that all
but the last two have ended. Reads of scalar memory end in any order, and FLAT instructions count in two counters, so
that only a wait for 0 says that they have ended. Source: AMD, "AMD Instinct MI300 Instruction Set Architecture
Reference Guide" (CDNA 3), sections 4.4 and 10.2.2.

From gfx10 on, stores have a counter of their own; gfx12 has more counters, and a wait instruction for each. Source:
LLVM, SIInsertWaitcnts.cpp (``WaitEventMaskForInstPreGFX12``, ``WaitEventMaskForInstGFX12Plus``,
``updateEventWaitcntAfter``), which inserts the wait instructions.

Left out are waits for what is no memory access or message (``expcnt``, ``s_wait_alu``), and for the translation of
addresses (``s_wait_xcnt``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from kprof_inject.machine_code.control_flow import Block, follow_paths
from kprof_inject.machine_code.instructions import Instruction, InstructionSet, MachineFunction
from kprof_inject.machine_code.scoreboards import Wait


class _Counted(Struct, frozen=True):
    """Instructions whose text begins with ``pattern``, and the counters in which they are until they end."""

    pattern: re.Pattern[str]
    counters: tuple[str, ...]
    is_in_order: bool = True


_VECTOR_MEMORY = r"(?:buffer|tbuffer|global|scratch|image)_"
# LLVM lets none of these count, and never waits for them.
_INVALIDATES = r"(?!inv|gl\d_inv|wbinv)"
_WRITES = r"(?:store|wb|atomic(?!.*(?:\bglc\b|RETURN)))"
_SCALAR_MEMORY = re.compile(r"s_(?:buffer_)?(?:load|store|atomic)|s_(?:memtime|memrealtime|sendmsg)")
_LDS = re.compile(r"ds_(?!nop)")

# For each instruction set, the first pattern that fits an instruction.
_COUNTED = {
    InstructionSet.GFX9: (
        _Counted(re.compile(_VECTOR_MEMORY + _INVALIDATES), ("vmcnt",)),
        _Counted(re.compile("flat_"), ("vmcnt", "lgkmcnt"), is_in_order=False),
        _Counted(_LDS, ("lgkmcnt",)),
        _Counted(_SCALAR_MEMORY, ("lgkmcnt",), is_in_order=False),
    ),
    InstructionSet.GFX10: (
        _Counted(re.compile(_VECTOR_MEMORY + _WRITES), ("vscnt",)),
        _Counted(re.compile(_VECTOR_MEMORY + _INVALIDATES), ("vmcnt",)),
        _Counted(re.compile("flat_" + _WRITES), ("vscnt", "lgkmcnt"), is_in_order=False),
        _Counted(re.compile("flat_"), ("vmcnt", "lgkmcnt"), is_in_order=False),
        _Counted(_LDS, ("lgkmcnt",)),
        _Counted(_SCALAR_MEMORY, ("lgkmcnt",), is_in_order=False),
    ),
    InstructionSet.GFX12: (
        _Counted(re.compile(r"(?:global|cluster)_\w+_async_"), ("asynccnt",)),
        _Counted(re.compile(r"tensor_"), ("tensorcnt",)),
        _Counted(re.compile(_VECTOR_MEMORY + _WRITES), ("storecnt",)),
        _Counted(re.compile(_VECTOR_MEMORY), ("loadcnt",)),
        _Counted(re.compile("flat_" + _WRITES), ("storecnt", "dscnt"), is_in_order=False),
        _Counted(re.compile("flat_"), ("loadcnt", "dscnt"), is_in_order=False),
        _Counted(_LDS, ("dscnt",)),
        _Counted(_SCALAR_MEMORY, ("kmcnt",), is_in_order=False),
    ),
}
_COUNTERS = ("vmcnt", "lgkmcnt", "vscnt", "loadcnt", "storecnt", "dscnt", "kmcnt", "asynccnt", "tensorcnt")
# A called function begins with a wait for everything (LLVM, SIInsertWaitcnts.cpp).
_CALLS = frozenset(("s_swappc_b64", "s_call_b64"))

_Outstanding = tuple[frozenset[tuple[int, int]], ...]
"""For each of ``_COUNTERS``, the indices of the instructions that may be outstanding, each with the number of those
after it that end in order; or with ``_ANY_TIME``.
"""
_ANY_TIME = -1
_NOTHING: _Outstanding = (frozenset(),) * len(_COUNTERS)


def waits_in(function: MachineFunction, blocks: Sequence[Block]) -> list[Wait]:
    """Return what the wait instructions wait for, in the order of the code.

    Where several instructions may be awaited, depending on the path to the wait, there is a wait for each.
    """
    code = function.instructions
    kinds = _COUNTED[function.instruction_set]
    counted = [_counted(one, kinds) for one in code]
    remaining = [_remaining_after(one) for one in code]
    # Numbers that are higher than in any wait of the function need not be distinguished.
    highest = {counter: max((one.get(counter, 0) for one in remaining), default=0) for counter in _COUNTERS}
    found: set[Wait] = set()

    def step(index: int, outstanding: _Outstanding) -> _Outstanding:
        kind = counted[index]
        if kind is not None:
            return _issued(index, kind, outstanding, highest)
        if code[index].operation in _CALLS:
            return _NOTHING
        if not remaining[index]:
            return outstanding
        after = _waited(remaining[index], outstanding)
        for before, left in zip(outstanding, after, strict=True):
            found.update(Wait(index, awaited) for awaited, _ in before - left)
        return after

    follow_paths(blocks, _NOTHING, step)
    return sorted(found)


def _counted(one: Instruction, kinds: Sequence[_Counted]) -> _Counted | None:
    text = f"{one.opcode} {one.operands}"
    return next((kind for kind in kinds if kind.pattern.match(text)), None)


def _issued(index: int, kind: _Counted, outstanding: _Outstanding, highest: Mapping[str, int]) -> _Outstanding:
    """Return what may be outstanding after an instruction was issued."""
    after = list(outstanding)
    for counter in kind.counters:
        place = _COUNTERS.index(counter)
        if kind.is_in_order:
            older = (_one_later(one, highest[counter]) for one in outstanding[place])
            after[place] = frozenset(((index, 0), *older))
        else:
            after[place] |= {(index, _ANY_TIME)}
    return tuple(after)


def _one_later(one: tuple[int, int], highest: int) -> tuple[int, int]:
    index, later = one
    return one if later == _ANY_TIME else (index, min(later + 1, highest))


def _waited(most: Mapping[str, int], outstanding: _Outstanding) -> _Outstanding:
    """Return what may be outstanding when at most ``most`` instructions are, by counter."""
    after = list(outstanding)
    for counter in most.keys() & set(_COUNTERS):
        place = _COUNTERS.index(counter)
        count = most[counter]
        after[place] = frozenset((index, later) for index, later in outstanding[place] if count and later < count)
    return tuple(after)


_OF_COUNTER = re.compile(r"(\w+cnt)\((\d+)\)")
_WAIT = re.compile(r"s_wait(?:cnt)?_(?P<first>\w+?cnt)(?:_(?P<second>\w+cnt))?")
_SECOND_BITS = 8  # s_wait_loadcnt_dscnt has dscnt in the lower bits (LLVM, AMDGPUBaseInfo.cpp, decodeLoadcntDscnt)


def _remaining_after(one: Instruction) -> Mapping[str, int]:
    """Return how many instructions may remain outstanding after a wait, by counter; empty for other instructions.

    The operand of ``s_waitcnt`` may also be one number for all counters, in handwritten code. Its bits differ between
    processors, so only 0 is read.
    """
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
