"""The flow of warps through the blocks of a function, as linear equations that are solved exactly.

The variables are the numbers of times that warps take each edge between two blocks. A warp that enters a block also
leaves it. Branches on the lines of ``scf.if``, loops and the like are uniform: all threads of a warp take the same way.
So are branches around a barrier, and those on a value that is the same in all threads (``has_uniform_branch``). Other
branches may depend on masks, so that a warp takes both ways. The blocks from such a branch to where its ways meet have
no known count: they are unclear.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction

from kprof_inject.machine_code.control_flow import Block, has_uniform_branch, loops_of
from kprof_inject.machine_code.instructions import Instruction, MachineFunction


class Contradiction(Exception):
    """The equations have no solution in natural numbers."""


Terms = Mapping[int, Fraction]
"""A sum of variables: the coefficient of each."""


class Equations:
    """Linear equations of natural numbers, each solved for one of its variables (Gauss-Jordan elimination)."""

    def __init__(self) -> None:
        """Start without equations."""
        self._rows: dict[int, tuple[dict[int, Fraction], Fraction]] = {}

    def add(self, terms: Terms, value: int) -> None:
        """Add an equation. Raises ``Contradiction`` if the others exclude it."""
        self._insert(terms, value)
        # If a sum is 0, so is each of its terms, as none is negative.
        while zeros := self._zeros():
            for name in zeros:
                self._insert({name: Fraction(1)}, 0)

    def add_if_possible(self, more: Iterable[tuple[Terms, int]]) -> bool:
        """Add some equations, unless the others exclude one of them; return whether they were added."""
        rows = {name: (dict(others), known) for name, (others, known) in self._rows.items()}
        try:
            for terms, value in more:
                self.add(terms, value)
        except Contradiction:
            self._rows = rows
            return False
        return True

    def _insert(self, terms: Terms, value: int) -> None:
        rest, known = self._reduced(terms)
        constant = value - known
        if not rest:
            if constant:
                raise Contradiction
            return
        # Later edges are expressed by earlier ones, which more equations have in common.
        pivot = max(rest)
        scale = rest.pop(pivot)
        solved = {name: -factor / scale for name, factor in rest.items()}
        constant /= scale
        for name, (others, known) in list(self._rows.items()):
            if factor := others.pop(pivot, None):
                self._rows[name] = added(others, solved, factor), known + factor * constant
        self._rows[pivot] = solved, constant

    def _zeros(self) -> list[int]:
        """Return variables that must be 0 because a sum of them is."""
        for others, known in self._rows.values():
            if not known and others and all(factor < 0 for factor in others.values()):
                return list(others)
        return []

    def value_of(self, terms: Terms) -> int | None:
        """Return the value of a sum, or None if it is not determined. Raises ``Contradiction``."""
        rest, known = self._reduced(terms)
        if rest:
            return None
        if known < 0 or known.denominator != 1:
            raise Contradiction
        return int(known)

    def _reduced(self, terms: Terms) -> tuple[dict[int, Fraction], Fraction]:
        """Return a sum in the variables that no equation is solved for, and its constant."""
        rest: dict[int, Fraction] = {}
        constant = Fraction(0)
        for name, factor in terms.items():
            others, known = self._rows.get(name, ({name: Fraction(1)}, Fraction(0)))
            rest = added(rest, others, factor)
            constant += factor * known
        return rest, constant


def added(one: Terms, other: Terms, factor: Fraction) -> dict[int, Fraction]:
    """Return ``one + factor * other``."""
    total = dict(one)
    for name, value in other.items():
        total[name] = total.get(name, Fraction(0)) + factor * value
        if not total[name]:
            del total[name]
    return total


def _sum_of(names: Iterable[int]) -> dict[int, Fraction]:
    return dict.fromkeys(names, Fraction(1))


_LEAVES = frozenset(("EXIT", "RET"))
_OUTSIDE = -1
"""Number of the block before the entry and after all exits."""
_Targets = Sequence[Sequence[int]]


class BlockFlow:
    """The edges that warps take between the blocks of a function.

    Adjacent ``unclear`` blocks share a node of the graph, and the edges within it are left out.
    """

    def __init__(self, function: MachineFunction, blocks: Sequence[Block], uniform: Collection[int]) -> None:
        """Build the graph; branches on the lines ``uniform`` are uniform."""
        self._function = function
        self._blocks = blocks
        # Inner loops come first.
        self._loops = loops_of(blocks)[::-1]
        self._targets = [
            (*block.successors, _OUTSIDE)
            if not block.successors or function.instructions[block.end - 1].operation in _LEAVES
            else block.successors
            for block in blocks
        ]
        self._later = _postdominators(self._targets)
        self.reached = _reached(self._targets, 0, _OUTSIDE)  # without a call
        self._branches = {
            number
            for number in self.reached
            if len(self._targets[number]) > 1
            and self._last(number).line not in uniform
            and not self._skips_a_barrier(number)
            and not has_uniform_branch(self._code(blocks[number]))
        }
        self._ways = {branch: self._ways_of(branch) for branch in self._branches}
        self.unclear = set().union(*self._ways.values())
        nodes = self._nodes()
        self._edges = [
            (source, target)
            for source in (_OUTSIDE, *sorted(self.reached))
            for target in ((0,) if source == _OUTSIDE else self._targets[source])
            if source not in self.unclear or nodes[source] != nodes.get(target)
        ]
        self._into: defaultdict[int, list[int]] = defaultdict(list)
        self._out_of: defaultdict[int, list[int]] = defaultdict(list)
        for number, (source, target) in enumerate(self._edges):
            self._out_of[nodes.get(source, source)].append(number)
            self._into[nodes.get(target, target)].append(number)
        self._numbered_nodes = sorted(set(nodes.values()))

    def _last(self, number: int) -> Instruction:
        return self._function.instructions[self._blocks[number].end - 1]

    def _skips_a_barrier(self, branch: int) -> bool:
        """Return whether one way from a branch has a barrier, which all warps of the CTA must reach or none.

        ptxas gives the branch that skips a loop of no iterations the line of another operation at times.
        """
        ways = [self._blocks[number] for number in self._ways_of(branch)]
        has_barrier = any(one.operation == "BAR" for block in ways for one in self._code(block))
        return has_barrier and _OUTSIDE not in self._targets[branch]

    def _ways_of(self, branch: int) -> set[int]:
        """Return the blocks from a branch to where its ways meet."""
        meeting = self._meeting_point(branch)
        starts = [target for target in self._targets[branch] if target not in (meeting, _OUTSIDE)]
        return set().union(*(_reached(self._targets, start, meeting) for start in starts))

    def _meeting_point(self, branch: int) -> int:
        """Return the first block on all ways from a branch to the exit."""
        common = self._later[branch]
        candidates = [other for other in range(len(self._targets)) if common >> other & 1 and other != branch]
        # The first one has all others after it.
        return max(candidates, key=lambda other: self._later[other].bit_count(), default=_OUTSIDE)

    def _nodes(self) -> dict[int, int]:
        """Return the node of each reached block: the smallest number of the blocks that share it."""
        nodes = {number: number for number in self.reached}
        for number in sorted(self.unclear):
            for target in self._targets[number]:
                if target in self.unclear and nodes[number] != nodes[target]:
                    new, old = sorted((nodes[number], nodes[target]))
                    nodes.update({block: new for block, node in nodes.items() if node == old})
        return nodes

    @property
    def is_complete(self) -> bool:
        """True if all ways are known: from each block one leads to the exit, and no call is a branch.

        For sm_80, ptxas may leave a loop by ``CALL.REL.NOINC`` to a label of the same function, which does not return.
        """
        code = self._function.instructions
        has_jumps = any(one.operation == "CALL" and ".L_" in one.operands and not one.is_branch for one in code)
        everything = (1 << len(self._targets)) - 1
        return not has_jumps and all(self._later[number] != everything for number in self.reached)

    def conservation(self, entries: int) -> Equations:
        """Return the equations of a launch in which warps enter the function ``entries`` times."""
        flows = Equations()
        flows.add(_sum_of(self._out_of[_OUTSIDE]), entries)
        for node in self._numbered_nodes:
            flows.add(added(_sum_of(self._into[node]), _sum_of(self._out_of[node]), Fraction(-1)), 0)
        return flows

    def executions(self, flows: Equations) -> list[int | None]:
        """Return the executions of each block; None if they are not determined. Raises ``Contradiction``."""
        calls = any(one.operation == "CALL" for one in self._function.instructions)
        found: list[int | None] = []
        for number, block in enumerate(self._blocks):
            if number not in self.reached:
                found.append(None if calls and not self._is_padding(block) else 0)
            elif number in self.unclear:
                found.append(None)
            else:
                found.append(flows.value_of(self.entering(number)))
        return found

    def max_executions(self, known: Sequence[int | None], entries: int) -> list[int | None]:
        """Return an upper bound of the executions of each block; None if there is none.

        ``known`` has the executions of blocks where they are known, ``entries`` are those of the function. After a
        branch, a warp executes a block at most once, unless the block is in a loop. It executes a called function once
        for each call.
        """
        found = [self._max_of(number, known, entries) if count is None else count for number, count in enumerate(known)]
        calls = [
            found[number]
            for number, block in enumerate(self._blocks)
            for one in self._code(block)
            if one.operation == "CALL"
        ]
        of_calls = None if None in calls else sum(one or 0 for one in calls)
        is_straight = not any(
            target <= number
            for number, block in enumerate(self._blocks)
            if number not in self.reached and not self._is_padding(block)
            for target in block.successors
        )
        return [
            of_calls if one is None and is_straight and number not in self.reached else one
            for number, one in enumerate(found)
        ]

    def _max_of(self, number: int, known: Sequence[int | None], entries: int) -> int | None:
        if number not in self.reached:
            return None
        depth = self.depth(number)
        bounds = [entries] if depth == 0 else []
        for branch in self._branches:
            count = known[branch]
            if count is not None and self.depth(branch) == depth and number in self._ways[branch]:
                bounds.append(count)
        return min(bounds, default=None)

    def _is_padding(self, block: Block) -> bool:
        """Return whether a block only separates the function from what follows it in memory."""
        return all(one.operation == "NOP" or one.targets == (one.address,) for one in self._code(block))

    def _code(self, block: Block) -> Sequence[Instruction]:
        return self._function.instructions[block.first : block.end]

    def entering(self, block: int) -> Terms:
        """Return the executions of a block that is clear."""
        return _sum_of(self._into[block])

    def entering_loop_of(self, block: int) -> Terms:
        """Return how often the innermost loop around a block is entered. There must be one."""
        loop = next(loop for loop in self._loops if block in loop.blocks)
        return _sum_of(
            number
            for number, (source, target) in enumerate(self._edges)
            if target in loop.blocks and source not in loop.blocks
        )

    def depth(self, block: int) -> int:
        """Return the number of loops around a block."""
        return sum(block in loop.blocks for loop in self._loops)

    def home_of(self, block: int, line: int) -> int | None:
        """Return the clear block that is executed as often as an operation on ``line`` with instructions in ``block``.

        That is the block itself if it is clear. If not, it is the block whose branch leads there, if that branch is of
        the same operation: it skips instructions that no thread of the warp needs. None if no such block is found.
        """
        if block not in self.unclear:
            return block
        sources = [number for number in self.reached if block in self._targets[number]]
        if len(sources) == 1 and sources[0] in self._branches - self.unclear and self._last(sources[0]).line == line:
            return sources[0]
        return None


def _reached(targets: _Targets, start: int, without: int) -> set[int]:
    """Return the blocks that are reached from one, which is included, without entering another."""
    found, waiting = {start}, [start]
    while waiting:
        for target in targets[waiting.pop()]:
            if target not in (_OUTSIDE, without) and target not in found:
                found.add(target)
                waiting.append(target)
    return found


def _postdominators(targets: _Targets) -> list[int]:
    """Return for each block those on all ways from it to the exit, as the bits of an integer.

    A block from which no way leads to the exit has the bits of all blocks.
    """
    everything = (1 << len(targets)) - 1
    later = [everything] * len(targets)
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(targets))):
            common = everything
            for target in targets[number]:
                common &= 0 if target == _OUTSIDE else later[target] | 1 << target
            if common != later[number]:
                later[number], changed = common, True
    return later
