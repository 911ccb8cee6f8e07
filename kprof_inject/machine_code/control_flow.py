"""Find the basic blocks and the loops of a function's machine code."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from msgspec import Struct

from kprof_inject.machine_code.instructions import Instruction, MachineFunction

_T = TypeVar("_T")

# s_setpc_b64 returns; LLVM also uses it for branches of more than 128 KiB, whose targets are then unknown.
_ENDS = frozenset(("EXIT", "RET", "s_endpgm", "s_endpgm_saved", "s_setpc_b64"))
_CONDITIONAL = "s_cbranch_"
_ALWAYS = ("", "@PT", "@UPT")


class Block(Struct, frozen=True):
    """Instructions that are executed one after another: those with the indices from ``first`` to below ``end``.

    ``successors`` are the indices of the blocks that may follow.
    """

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
    """Return the nodes of a graph that are reached from some of them, with these, and not through those left out."""
    found: set[int] = set()
    waiting = list(starts)
    while waiting:
        node = waiting.pop()
        if node not in found and node not in without:
            found.add(node)
            waiting.extend(following(node))
    return found


def follow_paths(
    blocks: Sequence[Block],
    nothing: tuple[frozenset[_T], ...],
    step: Callable[[int, tuple[frozenset[_T], ...]], tuple[frozenset[_T], ...]],
) -> None:
    """Call ``step`` for each instruction with what may hold before it, until no path adds anything.

    ``step`` gets the index of an instruction and sets of facts, and returns the sets after the instruction. It must
    return more for more. Where paths meet, the sets are united; ``nothing`` is the state at the entry.
    """
    before = [nothing] * len(blocks)
    waiting = list(range(len(blocks)))
    while waiting:
        number = waiting.pop()
        state = before[number]
        for index in range(blocks[number].first, blocks[number].end):
            state = step(index, state)
        for successor in blocks[number].successors:
            merged = tuple(a | b for a, b in zip(before[successor], state, strict=True))
            if merged != before[successor]:
                before[successor] = merged
                waiting.append(successor)


def loops_of(blocks: Sequence[Block]) -> list[MachineLoop]:
    """Return the loops that are entered at one block, outer ones first; those of unreachable code are left out."""
    dominators = _dominators(blocks)
    bodies: dict[int, set[int]] = {}
    predecessors: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for successor in block.successors if dominators[number] else ():
            predecessors[successor].append(number)
    for number, block in enumerate(blocks):
        for header in block.successors:
            if dominators[number] >> header & 1:
                bodies.setdefault(header, {header}).update(reached([number], predecessors.__getitem__, {header}))
    loops = [MachineLoop(header, frozenset(body)) for header, body in bodies.items()]
    return sorted(loops, key=lambda loop: (-len(loop.blocks), loop.header))


def _dominators(blocks: Sequence[Block]) -> list[int]:
    """Return the dominators of each block as the bits of an integer; 0 for a block that the entry does not reach."""
    everything = (1 << len(blocks)) - 1
    found = [everything] * len(blocks)
    reachable = reached([0], lambda number: blocks[number].successors)
    found[0] = 1
    changed = True
    while changed:
        changed = False
        incoming = [everything] * len(blocks)
        for number in reachable:
            for successor in blocks[number].successors:
                incoming[successor] &= found[number]
        for number in reachable:
            mine = 1 if number == 0 else incoming[number] | 1 << number
            if mine != found[number]:
                found[number], changed = mine, True
    return [dominators if number in reachable else 0 for number, dominators in enumerate(found)]
