"""Iterations of loops, and the number of iterations that loops issue asynchronous copies ahead.

Copies are committed in groups, and a wait gives the number of latest groups that may still be pending: a warp's groups
complete in order. Source: PTX ISA, "cp.async.commit_group" and "cp.async.wait_group". Each operation of AMD's tensor
data mover is a group of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.ttgir.dialect import COMMIT_GROUP
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import constant_of

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
# The number of groups that may be pending. Waits that count instructions keep the number of groups in an attribute.
_NUMBER = re.compile(r'\b(?:ttg\.num_(?:commit_groups|tdm_ops)"?|num) = (\d{1,10})|\b(?:count|num_inst) = (0)\b')


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

    @property
    def depth(self) -> int:
        """The minimum number of iterations that copies are issued ahead; 0 if an iteration waits for its own copies."""
        return min(group.iterations_ago for group in self.awaited)

    def waits_for(self, copy: Operation) -> list[tuple[Operation, int]]:
        """Return the waits, each with the iterations that the copy is issued ahead of it.

        Empty if the copy is in none of the loop's own groups.
        """
        commit = next((later for later in self.commits if later.start >= copy.start), None)
        if commit is None or copy.block is not commit.block:
            return []
        # If the copy's group is committed after the awaited one, its copies of the iteration before are complete.
        return [(group.wait, group.iterations_ago + (commit.start > group.commit.start)) for group in self.awaited]


def copy_pipelines(module: Module) -> Iterator[CopyPipeline]:
    """Yield the pipeline of each loop whose body commits groups and waits for some, both unconditionally."""
    for operation in module.walk():
        if operation.traits.is_loop and (pipeline := pipeline_of(operation)) is not None:
            yield pipeline


def pipeline_of(loop: Operation) -> CopyPipeline | None:
    """Return the pipeline of a loop; None if the loop has none."""
    copies = _pipeline_of(loop, lambda operation: operation.name == COMMIT_GROUP, _WAITS)
    return copies or _pipeline_of(
        loop, lambda operation: operation.name.startswith(_TDM) and operation.traits.starts_async, _TDM_WAITS
    )


def _pipeline_of(loop: Operation, is_commit: Callable[[Operation], bool], names: Sequence[str]) -> CopyPipeline | None:
    """Return the pipeline of the groups that ``is_commit`` selects and that waits with these names wait for."""
    body = [operation for block in loop.regions[-1].blocks for operation in block.operations]
    commits = tuple(operation for operation in body if is_commit(operation))
    inside = sum(
        is_commit(operation) or operation.name in names for region in loop.regions for operation in region.walk()
    )
    waits = [operation for operation in body if operation.name in names and _NUMBER.search(operation.tail)]
    if not (commits and waits and inside == len(commits) + len(waits)):
        return None
    return CopyPipeline(loop, commits, tuple(_awaited(wait, commits) for wait in waits))


def _awaited(wait: Operation, commits: Sequence[Operation]) -> AwaitedGroup:
    """Return the latest group that is complete after a wait.

    Groups are numbered from the first commit of the wait's own iteration; earlier iterations have negative numbers.
    """
    found = _NUMBER.search(wait.tail)
    pending = int(found[1] or found[2]) if found else 0
    before = sum(commit.start < wait.start for commit in commits)
    iteration, place = divmod(before - pending - 1, len(commits))
    return AwaitedGroup(wait, commits[place], -iteration)
