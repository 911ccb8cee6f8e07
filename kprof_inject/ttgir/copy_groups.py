"""How far ahead a loop asks for what it copies asynchronously.

Copies are committed in groups, and a wait says how many of the latest groups may still be under way: a warp's groups
complete in their order. Source: PTX ISA, "cp.async.commit_group" and "cp.async.wait_group". Each operation of AMD's
tensor data mover is a group by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kprof_inject.ttgir.dialect import COMMIT_GROUP
from kprof_inject.ttgir.nodes import Module, Operation

_TDM = "amdg.async_tdm_"
_WAITS = ("ttg.async_wait", "amdg.async_wait")
_TDM_WAITS = ("amdg.async_tdm_wait", "amdg.async_tdm_intrinsic_wait")
# How many groups may be under way. What counts instructions instead keeps the number of groups in an attribute.
_NUMBER = re.compile(r'\b(?:ttg\.num_(?:commit_groups|tdm_ops)"?|num) = (\d{1,10})|\b(?:count|num_inst) = (0)\b')


@dataclass(frozen=True, slots=True)
class AwaitedGroup:
    """The latest of the groups that are complete behind a wait: which of a loop's commits made it, and how many
    iterations before that of the wait."""

    wait: Operation
    commit: Operation
    iterations_ago: int


@dataclass(frozen=True, slots=True)
class CopyPipeline:
    """A loop that copies asynchronously, with what each of its waits waits for."""

    loop: Operation
    commits: tuple[Operation, ...]
    awaited: tuple[AwaitedGroup, ...]

    @property
    def depth(self) -> int:
        """How many iterations ahead copies are asked for, at least; with 0, an iteration waits for its own."""
        return min(group.iterations_ago for group in self.awaited)

    def waits_for(self, copy: Operation) -> list[tuple[Operation, int]]:
        """The waits, each with how many iterations ahead of it one copy is asked for; none if the copy is in no group
        of the loop's own."""
        commit = next((one for one in self.commits if one.start >= copy.start), None)
        if commit is None or copy.block is not commit.block:
            return []
        # Of a group that is committed behind the awaited one, the one before is complete.
        return [(group.wait, group.iterations_ago + (commit.start > group.commit.start)) for group in self.awaited]


def copy_pipelines(module: Module) -> Iterator[CopyPipeline]:
    """Of each loop whose body commits groups and waits for some, neither of it under a condition."""
    for operation in module.walk():
        if operation.traits.is_loop and (pipeline := pipeline_of(operation)) is not None:
            yield pipeline


def pipeline_of(loop: Operation) -> CopyPipeline | None:
    """The same of one loop; None if it is no such."""
    copies = _pipeline_of(loop, lambda one: one.name == COMMIT_GROUP, _WAITS)
    return copies or _pipeline_of(loop, lambda one: one.name.startswith(_TDM) and one.traits.starts_async, _TDM_WAITS)


def _pipeline_of(loop: Operation, is_commit: Callable[[Operation], bool], names: Sequence[str]) -> CopyPipeline | None:
    """The pipeline of copies that ``is_commit`` groups and the waits of these names wait for."""
    body = [operation for block in loop.regions[-1].blocks for operation in block.operations]
    commits = tuple(one for one in body if is_commit(one))
    inside = sum(is_commit(one) or one.name in names for region in loop.regions for one in region.walk())
    waits = [one for one in body if one.name in names and _NUMBER.search(one.tail)]
    if not (commits and waits and inside == len(commits) + len(waits)):
        return None
    return CopyPipeline(loop, commits, tuple(_awaited(wait, commits) for wait in waits))


def _awaited(wait: Operation, commits: Sequence[Operation]) -> AwaitedGroup:
    """Counted from the first commit of the wait's own iteration, the latest complete group is this one; groups of
    earlier iterations have negative numbers."""
    found = _NUMBER.search(wait.tail)
    under_way = int(found[1] or found[2]) if found else 0
    before = sum(commit.start < wait.start for commit in commits)
    iteration, place = divmod(before - under_way - 1, len(commits))
    return AwaitedGroup(wait, commits[place], -iteration)
