"""Iterations of loops, and the number of iterations that loops issue asynchronous copies ahead.

Copies are committed in groups, and a wait gives the number of latest groups that may still be pending: a warp's groups
complete in order. Source: PTX ISA, "cp.async.commit_group" and "cp.async.wait_group". Each operation of AMD's tensor
data mover is a group of its own. Its waits are for their tokens: Triton counts only as it lowers TTGIR
(``add_update_async_wait_count`` in its AMD backend).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.ttgir.dialect import COMMIT_GROUP, DOT_WAIT, READ, WARP_GROUP_DOT
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import constant_of, loop_arguments, operand_names, result_names

_NAME = r"(%[\w$.-]+)"
# Lower bound, upper bound, step.
_BOUNDS = re.compile(rf"\s*%[\w$.-]+ = {_NAME} to {_NAME} step {_NAME}|\({_NAME}, {_NAME}, {_NAME}[,)]")


def iterations_of_loops(operations: Sequence[Operation]) -> dict[Operation, int | None]:
    """Return the iterations of each loop, in the order of the text; None for a loop without constant bounds.

    ``operations`` are all operations of a module.
    """
    constants = _constants(operations)
    return {operation: _iterations(operation, constants) for operation in operations if operation.traits.is_loop}


def _constants(operations: Iterable[Operation]) -> dict[str, int]:
    """Return the integer that each name denotes, without the names that another region defines again."""
    found: dict[str, int] = {}
    defined: set[str] = set()
    for operation in operations:
        name = operation.results.partition("=")[0].strip()
        value = constant_of(operation)
        if value is not None and name not in defined:
            found[name] = value
        elif name in defined:
            found.pop(name, None)
        defined.add(name)
    return found


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
GROUP_WAITS = (*_WAITS, *_TDM_WAITS)
"""Waits for groups of copies."""
# The number of groups that may be pending. Waits that count instructions keep the number of groups in an attribute.
_NUMBER = re.compile(
    r'\b(?:ttg\.num_(?:commit_groups|tdm_ops)"?|num|pendings) = (\d{1,10})|\b(?:count|num_inst) = (0)\b'
)

_UNCOUNTED = re.compile(r"amdg\.async_tdm_wait .*\bnum = 0\b")
_ALL_DOTS = re.compile(r"\bpendings = 0\b")


class AwaitedGroup(Struct, frozen=True):
    """The latest group that is complete after a wait.

    ``commit`` is the commit of the loop that ends this group, ``iterations_ago`` the number of iterations between it
    and the wait.
    """

    wait: Operation
    commit: Operation
    iterations_ago: int


class CopyPipeline(Struct, frozen=True):
    """A loop that copies asynchronously, with the group that each of its waits needs."""

    loop: Operation
    commits: tuple[Operation, ...]
    awaited: tuple[AwaitedGroup, ...]
    work: tuple[Operation, ...]
    """What the body computes with the copied data, in order, and its waits for all dots."""

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


def awaited_dot(module: Module, loop: Operation, dot: Operation) -> AwaitedGroup | None:
    """Return the wait for an asynchronous dot of a loop's body, each of which is a group; None if it is unknown."""
    found = _pipeline_of(
        module, loop, lambda one: one.name == WARP_GROUP_DOT and "isAsync = true" in one.tail, (DOT_WAIT,)
    )
    if found is None or dot not in found.commits:
        return None
    groups = [
        AwaitedGroup(group.wait, dot, group.iterations_ago + (dot.start > group.commit.start))
        for group in found.awaited
    ]
    return min(groups, key=lambda group: (group.iterations_ago, group.wait.start < dot.start, group.wait.start))


def _pipeline_of(
    module: Module, loop: Operation, is_commit: Callable[[Operation], bool], names: Sequence[str]
) -> CopyPipeline | None:
    """Return the pipeline of the groups that ``is_commit`` selects and that waits with these names wait for."""
    body = body_of(loop)
    commits = tuple(operation for operation in body if is_commit(operation))
    inside = sum(
        is_commit(operation) or operation.name in names for region in loop.regions for operation in region.walk()
    )
    waits = [operation for operation in body if operation.name in names and _NUMBER.search(operation.tail)]
    if not (commits and waits and inside == len(commits) + len(waits)):
        return None
    last = loop.regions[-1].blocks[-1].operations[-1]
    passed = operand_names(last) if last.traits.is_terminator else []
    # The value that each argument of the loop has in the next iteration.
    carried = dict(zip(reversed(loop_arguments(module, loop)), reversed(passed), strict=False))
    awaited = tuple(_by_tokens(wait, commits, carried) or _by_order(wait, commits) for wait in waits)
    return CopyPipeline(loop, commits, awaited, tuple(_work(body)))


def _work(body: Sequence[Operation]) -> list[Operation]:
    """Return the dots of a loop's body or, if it has none, what depends on its reads of shared memory."""
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


def _by_tokens(wait: Operation, commits: Sequence[Operation], carried: Mapping[str, str]) -> AwaitedGroup | None:
    """Return the latest group whose token a wait names; None if Triton has counted the groups already."""
    found: list[AwaitedGroup] = []
    for token in operand_names(wait) if carried and _UNCOUNTED.match(wait.name + wait.tail) else ():
        for ago in range(len(carried) + 1):
            for commit in (one for one in commits if token in result_names(one)):
                found.append(AwaitedGroup(wait, commit, ago))
            token = carried.get(token, "")
    return min(found, key=lambda group: (group.iterations_ago, -group.commit.start), default=None)


def _by_order(wait: Operation, commits: Sequence[Operation]) -> AwaitedGroup:
    """Return the latest group that the number of a wait leaves complete.

    Groups are numbered from the first commit of the wait's own iteration; earlier iterations have negative numbers.
    """
    found = _NUMBER.search(wait.tail)
    pending = int(found[1] or found[2]) if found else 0
    before = sum(commit.start < wait.start for commit in commits)
    iteration, place = divmod(before - pending - 1, len(commits))
    return AwaitedGroup(wait, commits[place], -iteration)
