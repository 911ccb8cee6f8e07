"""Find the basic blocks and the loops of a function's machine code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct

from kprof_inject.machine_code.instructions import Instruction, MachineFunction

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


def loops_of(blocks: Sequence[Block]) -> list[MachineLoop]:
    """Return the loops that are entered at one block, outer ones first; those of unreachable code are left out."""

    def successors(number: int) -> Sequence[int]:
        return blocks[number].successors

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
