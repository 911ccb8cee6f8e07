"""Find which instruction is awaited where a warp waits: the load, say, whose result is needed.

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
from collections.abc import Mapping, Sequence

from msgspec import Struct

from kprof_inject.machine_code.control_flow import Block, follow_paths
from kprof_inject.machine_code.instructions import NEVER, SCOREBOARDS, Instruction, InstructionSet, MachineFunction


class Wait(Struct, frozen=True, order=True):
    """The instruction with index ``waiting`` is not issued before that with index ``awaited`` has its result."""

    waiting: int
    awaited: int


def waits_in(function: MachineFunction, blocks: Sequence[Block]) -> list[Wait]:
    """Return all waits for a result or for operands, in the order of the code.

    Where several instructions may be awaited, depending on the path to the waiting one, there is a wait for each.
    """
    is_nvidia = function.instruction_set is InstructionSet.NVIDIA
    return sorted((_scoreboard_waits if is_nvidia else _counter_waits)(function, blocks))


_Pending = tuple[frozenset[int], ...]
"""For each scoreboard the indices of the instructions that may still count in it; last, those of the loads of
``_IN_ORDER`` that count in none, whose results are there when that of the next counted one is.
"""

# Loads from shared memory have their results in order. ptxas was seen to let only the last of several count.
_IN_ORDER = frozenset(("LDS", "LDSM"))
_UNCOUNTED = len(SCOREBOARDS)


def _scoreboard_waits(function: MachineFunction, blocks: Sequence[Block]) -> set[Wait]:
    code = function.instructions
    found: set[Wait] = set()

    def step(index: int, pending: _Pending) -> _Pending:
        found.update(Wait(index, awaited) for board in code[index].awaited for awaited in pending[board])
        return _pending_after(code[index], index, pending)

    follow_paths(blocks, (frozenset(),) * (len(SCOREBOARDS) + 1), step)
    return found


def _pending_after(one: Instruction, index: int, pending: _Pending) -> _Pending:
    is_in_order = one.operation in _IN_ORDER and one.predicate != NEVER
    if not (is_in_order or one.awaited or one.result_scoreboard is not None or one.operand_scoreboard is not None):
        return pending
    found = [frozenset() if board in one.awaited else pending[board] for board in SCOREBOARDS]
    uncounted = pending[_UNCOUNTED]
    if one.operand_scoreboard is not None:
        found[one.operand_scoreboard] |= {index}
    if one.result_scoreboard is not None:
        found[one.result_scoreboard] |= {index, *(uncounted if is_in_order else ())}
    if is_in_order:
        uncounted = frozenset() if one.result_scoreboard is not None else uncounted | {index}
    return (*found, uncounted)


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
_COUNTERS = ("vmcnt", "lgkmcnt", "vscnt", "loadcnt", "storecnt", "dscnt", "kmcnt", "asynccnt", "tensorcnt")
# A called function begins with a wait for everything (LLVM, SIInsertWaitcnts.cpp).
_CALLS = frozenset(("s_swappc_b64", "s_call_b64"))

_Outstanding = tuple[frozenset[tuple[int, int]], ...]
"""For each of ``_COUNTERS``, the indices of the instructions that may be outstanding, each with the number of those
after it that end in order; or with ``_ANY_TIME``.
"""
_ANY_TIME = -1
_NOTHING: _Outstanding = (frozenset(),) * len(_COUNTERS)


def _counter_waits(function: MachineFunction, blocks: Sequence[Block]) -> set[Wait]:
    code = function.instructions
    kinds = _COUNTED[function.instruction_set]
    texts = [f"{one.opcode} {one.operands}" for one in code]
    counters = [next((kinds[pattern] for pattern in kinds if re.match(pattern, text)), ()) for text in texts]
    remaining = [_remaining_after(one) for one in code]
    # Numbers that are higher than in any wait of the function need not be distinguished.
    highest = {counter: max((one.get(counter, 0) for one in remaining), default=0) for counter in _COUNTERS}
    found: set[Wait] = set()

    def step(index: int, outstanding: _Outstanding) -> _Outstanding:
        after = list(outstanding)
        if counters[index]:
            for counter in counters[index]:
                place = _COUNTERS.index(counter)
                if _ANY_ORDER.match(texts[index]):
                    after[place] |= {(index, _ANY_TIME)}
                else:
                    older = (
                        (one, later if later == _ANY_TIME else min(later + 1, highest[counter]))
                        for one, later in outstanding[place]
                    )
                    after[place] = frozenset(((index, 0), *older))
            return tuple(after)
        if code[index].operation in _CALLS:
            return _NOTHING
        for counter in remaining[index].keys() & set(_COUNTERS):
            place, count = _COUNTERS.index(counter), remaining[index][counter]
            after[place] = frozenset((one, later) for one, later in outstanding[place] if count and later < count)
            found.update(Wait(index, awaited) for awaited, _ in outstanding[place] - after[place])
        return tuple(after)

    follow_paths(blocks, _NOTHING, step)
    return found


_OF_COUNTER = re.compile(r"(\w+cnt)\((\d+)\)")
_WAIT = re.compile(r"s_wait(?:cnt)?_(?P<first>\w+?cnt)(?:_(?P<second>\w+cnt))?")
_SECOND_BITS = 8  # s_wait_loadcnt_dscnt has dscnt in the lower bits (LLVM, AMDGPUBaseInfo.cpp, decodeLoadcntDscnt)


def _remaining_after(one: Instruction) -> Mapping[str, int]:
    """Return the instructions that a wait leaves outstanding, by counter; empty for other instructions.

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
