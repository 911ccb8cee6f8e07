"""Iterations of loops, and the number of iterations by which loops request their loads ahead of their use.

Copies are committed in groups, and a wait gives the number of latest groups that may still be pending: a warp's groups
complete in order. Source: PTX ISA, "cp.async.commit_group" and "cp.async.wait_group". Each operation of AMD's tensor
data mover is a group of its own. Its waits are for their tokens: Triton counts only as it lowers TTGIR
(``add_update_async_wait_count`` in its AMD backend).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.ttgir.dialect import COMMIT_GROUP, DOT_WAIT, READ, WARP_GROUP_DOT, WARP_SPECIALIZE
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import constant_of, loop_arguments, operand_names, result_names

_NAME = r"(%[\w$.-]+)"
# Lower bound, upper bound, step.
_BOUNDS = re.compile(rf"\s*%[\w$.-]+ = {_NAME} to {_NAME} step {_NAME}|\({_NAME}, {_NAME}, {_NAME}[,)]")


def iterations_of_loops(operations: Sequence[Operation]) -> dict[Operation, int | None]:
    """Return the iterations of each loop among a module's operations, in order; None without constant bounds."""
    # Without the names that another region defines again.
    constants: dict[str, int] = {}
    defined: set[str] = set()
    for operation in operations:
        name = operation.results.partition("=")[0].strip()
        value = constant_of(operation)
        if value is not None and name not in defined:
            constants[name] = value
        elif name in defined:
            constants.pop(name, None)
        defined.add(name)
    return {operation: _iterations(operation, constants) for operation in operations if operation.traits.is_loop}


def _iterations(loop: Operation, constants: Mapping[str, int]) -> int | None:
    bounds = _BOUNDS.match(loop.tail)
    names = [name for name in bounds.groups() if name] if bounds else []
    if len(names) != 3 or not all(name in constants for name in names):
        return None
    first, last, step = (constants[name] for name in names)
    return max(0, -(-(last - first) // step)) if step > 0 else None


_TDM = "amdg.async_tdm_"
_WAITS = ("ttg.async_wait", "amdg.async_wait")
_TDM_WAITS = ("amdg.async_tdm_wait", "amdg.async_tdm_intrinsic_wait")
GROUP_WAITS = (*_WAITS, *_TDM_WAITS)  # waits for groups of copies
# The number of groups that may be pending. Waits that count instructions keep the number of groups in an attribute.
_NUMBER = re.compile(
    r'\b(?:ttg\.num_(?:commit_groups|tdm_ops)"?|num|pendings) = (\d{1,10})|\b(?:count|num_inst) = (0)\b'
)

_UNCOUNTED = re.compile(r"amdg\.async_tdm_wait .*\bnum = 0\b")
_ALL_DOTS = re.compile(r"\bpendings = 0\b")


class AwaitedGroup(Struct, frozen=True):
    """The latest group that is complete after a wait: its commit in the loop, and the iterations between both."""

    wait: Operation
    commit: Operation
    iterations_ago: int


class CopyPipeline(Struct, frozen=True):
    """A loop that copies asynchronously, with the group that each of its waits needs."""

    loop: Operation
    commits: tuple[Operation, ...]
    awaited: tuple[AwaitedGroup, ...]
    work: tuple[Operation, ...]  # what the body computes with the copied data, in order, and its waits for all dots

    @property
    def depth(self) -> int:
        """The minimum number of iterations that copies are issued ahead; 0 if an iteration waits for its own copies."""
        return min(self._ahead(group, group.commit) for group in self.awaited)

    @property
    def reads_ahead(self) -> bool:
        """True if an iteration reads copied data for the next one alone."""
        return any(one.name == READ and is_for_the_next(self.loop, one) for one in body_of(self.loop))

    def iterations_ahead(self, copy: Operation) -> int | None:
        """Return the iterations that a copy is issued ahead of its wait; None if none of the loop's groups has it."""
        commit = next((later for later in self.commits if later.start >= copy.start), None)
        if commit is None or copy.block is not commit.block:
            return None
        return min(self._ahead(group, commit) for group in self.awaited)

    def _ahead(self, group: AwaitedGroup, commit: Operation) -> int:
        # If the copy's group is committed after the awaited one, its copies of the iteration before are complete.
        iterations = group.iterations_ago + (commit.start > group.commit.start)
        if not self.work:
            return iterations
        first, last = self.work[0].start, self.work[-1].start
        if commit.start < first and last < group.wait.start:
            return iterations + 1  # all of the iteration's work hides them, too
        is_awaited_at_once = group.wait.start < first and last < commit.start and not self.work[-1].traits.starts_async
        return 0 if iterations == 1 and is_awaited_at_once else iterations


def body_of(loop: Operation) -> list[Operation]:
    """Return the operations of a loop's body, without those inside of them."""
    return [one for block in loop.regions[-1].blocks for one in block.operations]


def is_for_the_next(loop: Operation, one: Operation) -> bool:
    """Return True if only the next iteration uses what an operation of a loop's body makes."""
    made = set(result_names(one))
    users = [user for user in body_of(loop) if any(not made.isdisjoint(operand_names(inner)) for inner in user.walk())]
    return bool(users) and all(user.traits.is_terminator for user in users)


def copy_pipelines(module: Module) -> Iterator[CopyPipeline]:
    """Yield the pipeline of each loop whose body commits groups and waits for some, both unconditionally."""
    for operation in module.walk():
        if operation.traits.is_loop and (pipeline := pipeline_of(module, operation)) is not None:
            yield pipeline


def pipeline_of(module: Module, loop: Operation) -> CopyPipeline | None:
    """Return the pipeline of a loop; None if the loop has none."""
    copies = _pipeline_of(module, loop, lambda operation: operation.name == COMMIT_GROUP, _WAITS)
    return copies or _pipeline_of(
        module, loop, lambda operation: operation.name.startswith(_TDM) and operation.traits.starts_async, _TDM_WAITS
    )


def is_asynchronous_dot(operation: Operation) -> bool:
    """Return True if an operation is a dot of a warp group that is not awaited at once."""
    return operation.name == WARP_GROUP_DOT and "isAsync = true" in operation.tail


def awaited_dot(module: Module, loop: Operation, dot: Operation) -> AwaitedGroup | None:
    """Return the wait for an asynchronous dot of a loop's body, each of which is a group."""
    found = _pipeline_of(module, loop, is_asynchronous_dot, (DOT_WAIT,))
    if found is None or dot not in found.commits:
        return None
    ago = ((group.wait, group.iterations_ago + (dot.start > group.commit.start)) for group in found.awaited)
    groups = (AwaitedGroup(wait, dot, iterations) for wait, iterations in ago)
    return min(groups, key=lambda group: (group.iterations_ago, group.wait.start < dot.start, group.wait.start))


def _pipeline_of(
    module: Module, loop: Operation, is_commit: Callable[[Operation], bool], names: Sequence[str]
) -> CopyPipeline | None:
    body = body_of(loop)
    commits = tuple(operation for operation in body if is_commit(operation))
    inside = sum(is_commit(one) or one.name in names for region in loop.regions for one in region.walk())
    waits = [operation for operation in body if operation.name in names and _NUMBER.search(operation.tail)]
    if not (commits and waits and inside == len(commits) + len(waits)):
        return None
    last = loop.regions[-1].blocks[-1].operations[-1]
    passed = operand_names(last) if last.traits.is_terminator else []
    # The value that each argument of the loop has in the next iteration.
    carried = dict(zip(reversed(loop_arguments(module, loop)), reversed(passed), strict=False))
    awaited = tuple(_awaited_group(wait, commits, carried) for wait in waits)
    return CopyPipeline(loop, commits, awaited, tuple(_work(body)))


def _work(body: Sequence[Operation]) -> list[Operation]:
    dots = [one for one in body if any(inner.traits.is_dot for inner in one.walk())]
    if dots:
        return [one for one in body if one in dots or (one.name == DOT_WAIT and _ALL_DOTS.search(one.tail))]
    work: list[Operation] = []
    made: set[str] = set()
    for one in body:
        uses = not made.isdisjoint(name for inner in one.walk() for name in operand_names(inner))
        if uses and not one.traits.is_terminator:
            work.append(one)
        if uses or one.name == READ:
            made.update(result_names(one))
    return work


def _awaited_group(wait: Operation, commits: Sequence[Operation], carried: Mapping[str, str]) -> AwaitedGroup:
    """Return the latest group whose token a wait names, or that its number leaves complete if Triton has counted."""
    named: list[AwaitedGroup] = []
    for token in operand_names(wait) if carried and _UNCOUNTED.match(wait.name + wait.tail) else ():
        for ago in range(len(carried) + 1):
            named += [AwaitedGroup(wait, commit, ago) for commit in commits if token in result_names(commit)]
            token = carried.get(token, "")
    if named:
        return min(named, key=lambda group: (group.iterations_ago, -group.commit.start))
    found = _NUMBER.search(wait.tail)
    pending = int(found[1] or found[2]) if found else 0
    # Groups are numbered from the first commit of the wait's own iteration; earlier iterations have negative numbers.
    before = sum(commit.start < wait.start for commit in commits)
    iteration, place = divmod(before - pending - 1, len(commits))
    return AwaitedGroup(wait, commits[place], -iteration)


_STORE, _COPY = "ttg.local_store", "ttg.async_copy_global_to_local"


def iterations_ahead(module: Module, loop: Operation, load: Operation, occurrences: Sequence[Operation]) -> int | None:
    """Return the number of iterations by which a load is issued before its wait or its use.

    0 if an iteration waits for its own load; None if unknown, because another partition waits for it. If copies are
    committed in groups, the loop's wait shows it. Otherwise it is the number of iterations whose loads precede the
    loop, because the compiler has peeled them off; ``occurrences`` are all operations of the load's line.
    """
    pipeline = pipeline_of(module, loop) if load.traits.starts_async else None
    if pipeline is not None and (ahead := pipeline.iterations_ahead(load)) is not None:
        return ahead
    inside = sum(one.loop is loop for one in occurrences)
    peeled_off = sum(_is_peeled_off(loop, one) for one in occurrences) // max(inside, 1)
    if not peeled_off and load.traits.starts_async and any(one.name == WARP_SPECIALIZE for one in load.owners()):
        return None
    return peeled_off


def is_used_at_once(loop: Operation, load: Operation) -> bool:
    """Return True if a dot in the same iteration depends on what is loaded; else a later iteration uses it."""
    dependents = _dependents(loop, load, through_memory=True)
    return any(one.traits.is_dot for operation in dependents for one in operation.walk())


def is_for_a_branch(loop: Operation, load: Operation) -> bool:
    """Return True if what is loaded only reaches dots under a condition in the loop's body.

    Triton's pipeliner looks for loads from the dots that the body itself has.
    """
    dependents = list(_dependents(loop, load, through_memory=False))
    inside = (one for operation in dependents for one in operation.walk())
    return not any(one.traits.is_dot for one in dependents) and any(
        one.traits.is_dot and one.loop is loop for one in inside
    )


def _dependents(loop: Operation, load: Operation, *, through_memory: bool) -> Iterator[Operation]:
    made = {*result_names(load)}
    for operation in _later(loop, load):
        taken = [name for one in operation.walk() for name in operand_names(one)]
        if not operation.traits.is_terminator and not made.isdisjoint(taken):
            yield operation
            # A store puts its data into memory, which a later load may read.
            made.update(taken if through_memory and operation.name == _STORE else result_names(operation))


def is_for_a_copy(loop: Operation, load: Operation) -> bool:
    """Return True if an asynchronous copy in the loop's body copies from an address that depends on a load."""
    made = {*result_names(load)}
    for operation in _later(loop, load):
        if made.isdisjoint(operand_names(operation)):
            continue
        if operation.name == _COPY and operand_names(operation)[0] in made:
            return True
        if operation.traits.is_move or operation.traits.is_arithmetic or operation.traits.is_indexing:
            made.update(result_names(operation))
    return False


def _later(loop: Operation, load: Operation) -> list[Operation]:
    return [one for one in body_of(loop) if one.start > load.start]


def _is_peeled_off(loop: Operation, one: Operation) -> bool:
    # It precedes the loop, in the same block or under a condition there, and follows any loop before that one.
    block = loop.block
    if block is None or one.start >= loop.start:
        return False
    outermost = next((owner for owner in (one, *one.owners()) if owner.block is block), None)
    if outermost is None or outermost.traits.is_loop:
        return False
    return not any(other.traits.is_loop and outermost.start < other.start < loop.start for other in block.operations)
