"""Find which instruction a scoreboard is awaited for: the load, say, whose result is needed.

Scoreboards are NVIDIA's; for AMD see ``wait_counters``.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kprof_inject.machine_code.control_flow import Block, follow_paths
from kprof_inject.machine_code.instructions import NEVER, SCOREBOARDS, Instruction, MachineFunction

_Pending = tuple[frozenset[int], ...]
"""For each scoreboard the indices of the instructions that may still count in it; last, those of the loads of
``_IN_ORDER`` that count in none, whose results are there when that of the next counted one is.
"""

# Loads from shared memory have their results in order. ptxas was seen to let only the last of several count.
_IN_ORDER = frozenset(("LDS", "LDSM"))
_UNCOUNTED = len(SCOREBOARDS)
_NOTHING: _Pending = (frozenset(),) * (len(SCOREBOARDS) + 1)


class Wait(Struct, frozen=True, order=True):
    """The instruction with index ``waiting`` is not issued before that with index ``awaited`` has its result."""

    waiting: int
    awaited: int


def waits_in(function: MachineFunction, blocks: Sequence[Block]) -> list[Wait]:
    """Return all waits for a result or for operands, in the order of the code.

    Where several instructions may be awaited, depending on the way to the waiting one, there is a wait for each.
    """
    code = function.instructions
    found: set[Wait] = set()

    def step(index: int, pending: _Pending) -> _Pending:
        found.update(Wait(index, awaited) for board in code[index].awaited for awaited in pending[board])
        return _after(code[index], index, pending)

    follow_paths(blocks, _NOTHING, step)
    return sorted(found)


def _after(one: Instruction, index: int, pending: _Pending) -> _Pending:
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
