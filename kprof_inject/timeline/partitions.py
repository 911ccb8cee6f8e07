"""Partitions of a launch: which warps ran each, and which scopes belong to it.

The scope table says in which partition a scope is, and how many warps run it. Triton decides which warps these are when
it lowers the kernel, and only the records show it. Each partition has a tree of scopes of its own, whose total is the
time of its warps.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.scopes import Partition, ScopeTable

_SEVERAL = "several partitions"

# All warps of a partition execute the same code, and write equally many records. A damaged record may be of any scope,
# so warps with less than this share of the largest count do not run the partition.
_MIN_SHARE_OF_LARGEST = 0.5


class PartitionScopes(Struct, frozen=True):
    """Partition of a launch.

    ``scopes`` index the scope table, outer before inner. ``warps`` are the ids of the warps that were seen to run it,
    ascending, out of ``warp_count``. ``function`` is its name in the code, empty if unknown. Scopes that several
    partitions run, such as those of a common helper, form a tree of their own, which ``is_shared``.
    """

    name: str
    function: str
    scopes: tuple[int, ...]
    warps: tuple[int, ...]
    warp_count: int | None
    is_shared: bool

    @property
    def called(self) -> str:
        """Name, with the function's name in the code."""
        return f"{self.name}: {self.function}" if self.function else self.name

    def among(self, warps: Container[int]) -> PartitionScopes:
        """Return the partition with only those of its warps that are in ``warps``."""
        return replace(self, warps=tuple(warp for warp in self.warps if warp in warps))


def partition_of_scope(table: ScopeTable) -> NDArray[np.int64]:
    """Return the partition index of each scope of a table; the number of partitions for scopes that several run."""
    several = len(table.partitions)
    return np.array([several if scope.partition is None else scope.partition for scope in table.scopes], dtype=np.int64)


def partition_names(table: ScopeTable) -> dict[int, str]:
    """Return the name of each scope's partition; empty for a table without partitions."""
    names = [*(partition.name for partition in table.partitions), _SEVERAL]
    return {scope: names[index] for scope, index in enumerate(partition_of_scope(table))} if table.partitions else {}


def partitions_of(table: ScopeTable, records: NDArray[np.int64], warps: Sequence[int]) -> tuple[PartitionScopes, ...]:
    """Return the partitions of a table, the default one first, and last the scopes that several share.

    ``records`` counts each partition's records (see ``partition_of_scope``) by warp of ``warps``; the last rows may be
    absent.
    """
    if not table.partitions:
        return ()
    of_scope = partition_of_scope(table)
    found = []
    for index, partition in enumerate([*table.partitions, Partition(_SEVERAL, None)]):
        counts = records[index] if index < len(records) else np.zeros(len(warps), dtype=np.int64)
        is_shared = index == len(table.partitions)
        min_count = 0.0 if is_shared else _MIN_SHARE_OF_LARGEST * counts.max(initial=0)
        ran = np.flatnonzero((counts > 0) & (counts >= min_count)).tolist()
        scopes = tuple(np.flatnonzero(of_scope == index).tolist())
        if scopes or not is_shared:
            ids = tuple(warps[at] for at in ran)
            found.append(PartitionScopes(partition.name, partition.function, scopes, ids, partition.warps, is_shared))
    return tuple(found)


def by_warp(partitions: Sequence[PartitionScopes]) -> dict[int, list[PartitionScopes]]:
    """Return the partitions that each warp runs: one after the other, where the kernel is specialized several times."""
    found: dict[int, list[PartitionScopes]] = {}
    for partition in partitions:
        for warp in () if partition.is_shared else partition.warps:
            found.setdefault(warp, []).append(partition)
    return found


def shared_scopes(partitions: Sequence[PartitionScopes]) -> frozenset[int]:
    """Return the scopes that several partitions run: their warps do different work, and must not be compared."""
    return frozenset(scope for partition in partitions if partition.is_shared for scope in partition.scopes)
