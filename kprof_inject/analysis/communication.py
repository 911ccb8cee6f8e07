"""Data exchange of a launch with the memory of other GPUs or processes, and its overlap with computation.

The addresses of its accesses are evaluated; the capture knows whose memory is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from kprof_inject.analysis.interpreter.accesses import Access, deciding_operands
from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel, entry_function
from kprof_inject.analysis.interpreter.footprints import Ranges
from kprof_inject.capture.model import Launch
from kprof_inject.capture.schema import PeerMemoryRecord
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.timeline.overlap import Doing, Overlap, overlap_of
from kprof_inject.timeline.peer_waits import peer_waits
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.wait_ends import WaitEnds
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import ValueGraph
from kprof_inject.ttgir.types import types_of

_FLOAT = re.compile(r"b?f\d")
_NO_WORK = frozenset(("arith.constant", "tt.make_range", "tt.splat", "tt.broadcast", "tt.expand_dims"))


class PeerAccess(Struct, frozen=True):
    """Access of an operation to a peer's memory: at least so many bytes are read there, or written."""

    operation: CountedOperation
    read_bytes: int
    written_bytes: int


class Communication(Struct, frozen=True):
    """Exchange of a launch with the memory of peers, by its accesses whose addresses are known: lower bounds.

    It ``crosses_links`` to other devices. Whose memory ``unknown`` other operations access is not known. ``overlap`` is
    None without the records of all CTAs, and where nothing is exchanged.
    """

    read_bytes: int
    written_bytes: int
    unknown: int
    crosses_links: bool
    overlap: Overlap | None

    @property
    def busier_bytes(self) -> int:
        """Bytes in the direction that moves more: each has its own wires."""
        return max(self.read_bytes, self.written_bytes)


def communication_of(timeline: Timeline, executed: ExecutedKernel, ends: Sequence[WaitEnds]) -> Communication | None:
    """Return the exchange of a launch with peers; None if it has none.

    ``ends`` has the change that ended each wait for a flag. CTAs that wait for one of the launch's own that transfers
    wait for peers as well. Raises what evaluating addresses raises.
    """
    found = list(_peer_accesses(executed, timeline.launch))
    unplaced = {one.operation for one in executed.operations if one.access and one.access.address is None}
    unknown = len(unplaced & _with_made_pointers(executed)) if unplaced else 0
    doing = _doing(timeline, executed, {one.operation.line for one in found})
    transferring = [index for index, does in enumerate(doing) if does == Doing.TRANSFERRING]
    ctas = {cta for block in timeline.blocks() for cta in block["cta"][np.isin(block["scope"], transferring)].tolist()}
    waits = [wait for wait in peer_waits(ends, timeline.launch, ctas) if wait.is_for_peers]
    if not found and not waits:
        return None
    for wait in waits:
        doing[wait.index] = Doing.WAITING
    return Communication(
        sum(one.read_bytes for one in found),
        sum(one.written_bytes for one in found),
        unknown,
        any(one.device != timeline.launch.device for one in timeline.launch.origin.peer_memory),
        overlap_of(timeline, doing),
    )


def _peer_accesses(executed: ExecutedKernel, launch: Launch) -> Iterator[PeerAccess]:
    peers = launch.origin.peer_memory
    if not peers:
        return
    for one in executed.operations:
        if one.access is None or one.access.address is None:
            continue
        share = _share_at(one.access, peers)
        if share:
            size_bytes = round(share * one.access.distinct_bytes(one.times))
            yield PeerAccess(
                one, size_bytes if one.access.form.reads else 0, size_bytes if one.access.form.writes else 0
            )


def _share_at(access: Access, peers: Sequence[PeerMemoryRecord]) -> float:
    """Return the share of an access's bytes that is in memory of peers."""
    if access.address is None:
        return 0.0
    low, high = access.address.bounds()
    if not any(one.address <= high and low < one.address + one.size_bytes for one in peers):
        return 0.0
    if any(one.address <= low and high < one.address + one.size_bytes for one in peers):
        return 1.0
    touched = access.touched()
    if touched is None or not touched.size_bytes:
        return 0.0
    return sum(_bytes_in(touched, one) for one in peers) / touched.size_bytes


def _bytes_in(ranges: Ranges, memory: PeerMemoryRecord) -> int:
    starts = np.maximum(ranges.starts, memory.address)
    ends = np.minimum(ranges.ends, memory.address + memory.size_bytes)
    return int(np.maximum(ends - starts, 0).sum())


def _with_made_pointers(executed: ExecutedKernel) -> frozenset[Operation]:
    """Return the accesses whose pointers come from integers, or from code in another language."""
    function = entry_function(executed.module)
    if function is None:
        return frozenset()
    graph = ValueGraph(executed.module, function)
    leaf_of = {leaf.node: leaf.operation for leaf in graph.leaves}
    return frozenset(
        leaf.operation
        for leaf in graph.leaves
        if _is_made(graph, leaf_of, deciding_operands(leaf.operation, leaf.values))
    )


def _is_made(graph: ValueGraph, leaf_of: Mapping[int, Operation], operands: Sequence[int]) -> bool:
    pending, seen = [*operands], set(operands)
    while pending:
        node = pending.pop()
        maker = leaf_of.get(node)
        if maker is not None and (maker.traits.makes_pointers or maker.traits.is_foreign):
            return True
        if maker is None or not maker.traits.reads_memory:
            pending += [one for one in graph.operands[node] if one not in seen]
            seen.update(graph.operands[node])
    return False


def _doing(timeline: Timeline, executed: ExecutedKernel, transfers: set[int]) -> list[Doing]:
    """Return what each scope of the table does outside the scopes in it; ``transfers`` are lines of the TTGIR."""
    scopes = timeline.table.scopes
    found = [Doing.NOTHING] * len(scopes)
    for one in executed.operations:
        around = executed.scope_map.covering((one.line, one.line))
        if not around or scopes[around[-1]].kind == ScopeKind.SPIN:
            continue
        does = Doing.TRANSFERRING if one.line in transfers else _does(one)
        found[around[-1]] = max(found[around[-1]], does)
    return found


def _does(one: CountedOperation) -> Doing:
    """Return whether an operation works on tensors; integers and pointers mostly are places in memory."""
    if one.operation.name in _NO_WORK:
        return Doing.NOTHING
    is_work = one.access is not None or one.operation.traits.is_dot
    elements = [printed.element for printed in types_of(one.operation) if printed.shape]
    return Doing.COMPUTING if any(is_work or _FLOAT.match(element) for element in elements) else Doing.NOTHING
