"""The partitions of a launch: which warps ran each, and which scopes are theirs.

The scope table says in which partition a scope stands, and how many warps run it; which these are, Triton decides when
it lowers the kernel, and only the records tell. Each partition is a tree of scopes of its own, whose whole is the time
of its warps.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import Partition, ScopeTable

_SEVERAL = "several partitions"

# All warps of a partition go the same way, and write as many records. A damaged one may be of any scope.
_MIN_SHARE_OF_LARGEST = 0.5


@dataclass(frozen=True, slots=True)
class PartitionScopes:
    """A partition of a launch. ``scopes`` index the scope table, outer before inner, and may be none; ``warps`` are the
    ids of those that were seen to run it, ascending, of ``warp_count`` (None if unknown). Without a partition's
    records, which warps run it is not known, and ``warps`` is empty. ``function`` is what the code calls it, empty if
    that is unknown.

    Scopes that several partitions run, those of a helper that several call, are a tree by themselves that
    ``is_shared``."""

    name: str
    function: str
    scopes: tuple[int, ...]
    warps: tuple[int, ...]
    warp_count: int | None
    is_shared: bool

    @property
    def called(self) -> str:
        """Its name, and what the code calls it."""
        return f"{self.name}: {self.function}" if self.function else self.name

    def among(self, warps: Container[int]) -> PartitionScopes:
        """The same without the warps that are not among these."""
        return replace(self, warps=tuple(warp for warp in self.warps if warp in warps))


def partition_of_scope(table: ScopeTable) -> NDArray[np.int64]:
    """The partition of each scope of a table that has partitions: its index, and the number of partitions where several
    run it."""
    several = len(table.partitions)
    return np.array([several if scope.partition is None else scope.partition for scope in table.scopes], dtype=np.int64)


def partition_names(table: ScopeTable) -> dict[int, str]:
    """What the partition of each scope is called; nothing for a table without partitions."""
    names = [*(partition.name for partition in table.partitions), _SEVERAL]
    return {scope: names[index] for scope, index in enumerate(partition_of_scope(table))} if table.partitions else {}


def partitions_of(table: ScopeTable, records: NDArray[np.int64], warps: Sequence[int]) -> tuple[PartitionScopes, ...]:
    """The partitions of a table, the default one first, and behind them what several share; nothing for a table without
    partitions.

    ``records`` has how many of each partition's records (see ``partition_of_scope``) each of the ``warps`` wrote; there
    may be no rows for the last partitions."""
    if not table.partitions:
        return ()
    of_scope = partition_of_scope(table)
    found = []
    for index, partition in enumerate([*table.partitions, Partition(_SEVERAL, None)]):
        counts = records[index] if index < len(records) else np.zeros(len(warps), dtype=np.int64)
        is_shared = index == len(table.partitions)
        least = 0.0 if is_shared else _MIN_SHARE_OF_LARGEST * counts.max(initial=0)
        ran = np.flatnonzero((counts > 0) & (counts >= least)).tolist()
        mine = tuple(np.flatnonzero(of_scope == index).tolist())
        if mine or not is_shared:
            ids = tuple(warps[at] for at in ran)
            found.append(PartitionScopes(partition.name, partition.function, mine, ids, partition.warps, is_shared))
    return tuple(found)


def by_warp(partitions: Sequence[PartitionScopes]) -> dict[int, list[PartitionScopes]]:
    """The partitions that each warp runs: one after the other, where the kernel is specialised several times."""
    found: dict[int, list[PartitionScopes]] = {}
    for partition in partitions:
        for warp in () if partition.is_shared else partition.warps:
            found.setdefault(warp, []).append(partition)
    return found


def shared_scopes(partitions: Sequence[PartitionScopes]) -> frozenset[int]:
    """The scopes that warps of several partitions run. Their warps are not to be compared: they do different work."""
    return frozenset(scope for partition in partitions if partition.is_shared for scope in partition.scopes)
