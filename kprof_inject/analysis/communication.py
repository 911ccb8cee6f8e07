"""Data exchange of a launch with the memory of other GPUs or processes, and its overlap with computation.

The addresses of its accesses are evaluated; the capture knows whose memory is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from kprof_inject.analysis.interpreter.accesses import Access, deciding_operands
from kprof_inject.analysis.interpreter.axis_arrays import IntegerExpr
from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel, entry_function
from kprof_inject.analysis.interpreter.footprints import Ranges
from kprof_inject.capture.model import Launch
from kprof_inject.capture.schema import PeerMemoryRecord
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.timeline.overlap import Doing, Overlap, overlap_of
from kprof_inject.timeline.peer_waits import PeerWaits
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.polling import accesses_memory, reaches_peers
from kprof_inject.ttgir.ssa_values import ValueGraph
from kprof_inject.ttgir.types import types_of

_FLOAT = re.compile(r"b?f\d")
_NO_WORK = frozenset(("arith.constant", "tt.make_range", "tt.splat", "tt.broadcast", "tt.expand_dims"))
# Waits that an unknown change ended may take this part of the CTAs' time: they change no figure by more.
_MAX_UNKNOWN = 0.05


class PeerAccess(Struct, frozen=True):
    """Access of an operation to a peer's memory: bytes are lower bounds.

    It ``crosses_link`` if the memory is another device's.
    """

    operation: CountedOperation
    read_bytes: int
    written_bytes: int
    crosses_link: bool


class Communication(Struct, frozen=True):
    """Exchange of a launch with the memory of peers: bytes are lower bounds.

    Of ``link_bytes``, in the direction with more, the memory is another device's. Whose memory ``unknown`` other
    operations access is not known. ``unknown_waits`` is the part of the CTAs' time in waits that an unknown change
    ended. If either is more than a little, or if records are missing, ``overlap`` is None.
    """

    read_bytes: int
    written_bytes: int
    link_bytes: int
    unknown: int
    unknown_waits: float
    overlap: Overlap | None


def communication_of(timeline: Timeline, executed: ExecutedKernel, waits: PeerWaits) -> Communication | None:
    """Return the exchange of a launch with peers; None if it has none, or if their memory was not noted.

    ``waits`` has what ended its waits for flags. CTAs that wait for one of the launch's own that only transfers wait
    for peers as well. Raises what evaluating addresses raises.
    """
    launch = timeline.launch
    peers = [one for one in launch.origin.peer_memory if one.is_foreign or one.device != launch.device]
    if not peers:
        return None
    found = list(_peer_accesses(executed, peers, launch.device))
    unknown = len(_unplaced(executed, launch, peers))
    doing = _doing(timeline, executed, {one.operation.line for one in found})
    own_waits = waits.of(launch, _that_only_transfer(timeline, doing))
    for wait in own_waits:
        if wait.is_for_peers:
            doing[wait.index] = Doing.WAITING
    if not found and not unknown and not {Doing.TRANSFERRING, Doing.WAITING} & set(doing):
        return None
    ctas = timeline.ctas
    whole_ns = int((ctas["pre_final_ns"] - ctas["init_ns"]).sum())
    unknown_waits = sum(wait.unknown_ns for wait in own_waits) / max(whole_ns, 1)
    is_known = not unknown and unknown_waits <= _MAX_UNKNOWN
    return Communication(
        read_bytes=sum(one.read_bytes for one in found),
        written_bytes=sum(one.written_bytes for one in found),
        link_bytes=max(
            sum(one.read_bytes for one in found if one.crosses_link),
            sum(one.written_bytes for one in found if one.crosses_link),
        ),
        unknown=unknown,
        unknown_waits=unknown_waits,
        overlap=overlap_of(timeline, doing) if is_known else None,
    )


def _peer_accesses(executed: ExecutedKernel, peers: Sequence[PeerMemoryRecord], device: int) -> Iterator[PeerAccess]:
    for one in executed.operations:
        met = _met(one.access, peers)
        if one.access is None or not met:
            continue
        size_bytes = _bytes_at(one, one.access, met)
        yield PeerAccess(
            operation=one,
            read_bytes=size_bytes if one.access.form.reads else 0,
            written_bytes=size_bytes if one.access.form.writes else 0,
            crosses_link=any(memory.device != device for memory in met),
        )


def _met(access: Access | None, peers: Sequence[PeerMemoryRecord]) -> list[PeerMemoryRecord]:
    """Return the memory of peers that an access with known addresses reaches."""
    if access is None or access.address is None:
        return []
    near = _near(access.address, peers)
    if not near or _is_in_one(access, near):
        return near
    touched = access.touched()
    return [] if touched is None else [one for one in near if _bytes_in(touched, one)]


def _near(address: IntegerExpr, peers: Sequence[PeerMemoryRecord]) -> list[PeerMemoryRecord]:
    """Return the memory of peers between the lowest address and the highest."""
    low, high = address.bounds()
    return [one for one in peers if one.address <= high and low < one.end]


def _is_in_one(access: Access, peers: Sequence[PeerMemoryRecord]) -> bool:
    """Return whether all addresses of an access are in one allocation."""
    low, high = access.address.bounds() if access.address else (0, 0)
    return any(one.address <= low and high < one.end for one in peers)


def _bytes_at(one: CountedOperation, access: Access, met: Sequence[PeerMemoryRecord]) -> int:
    """Return a lower bound of the bytes that an access moves from or to memory of peers.

    What is written, and what bypasses the L1, moves in each execution; an L1 may keep what else is read.
    """
    if (access.form.writes or access.form.passes_by_l1) and _is_in_one(access, met):
        return access.distinct_bytes(one.times)
    touched = access.touched()
    return 0 if touched is None else sum(_bytes_in(touched, memory) for memory in met)


def _bytes_in(ranges: Ranges, memory: PeerMemoryRecord) -> int:
    starts = np.maximum(ranges.starts, memory.address)
    ends = np.minimum(ranges.ends, memory.end)
    return int(np.maximum(ends - starts, 0).sum())


def _unplaced(executed: ExecutedKernel, launch: Launch, peers: Sequence[PeerMemoryRecord]) -> list[CountedOperation]:
    """Return the accesses of tensors of which it is not known whether they reach memory of peers.

    Those of inline assembly are among them, except for waits and signals. Of others, the addresses are unknown, and the
    pointers come from integers or from code in another language; where an argument is a peer's address, they may come
    from that. Or some of their addresses are a peer's, but their mask is unknown.
    """
    tensors = [one for one in executed.operations if one.access and one.access.shape]
    unplaced = [one for one in tensors if one.access and one.access.address is None]
    given = (argument for argument in launch.arguments if argument is not None)
    if not any(one.address <= argument < one.end for argument in given for one in peers):
        made = _with_made_pointers(executed) if unplaced else frozenset()
        unplaced = [one for one in unplaced if one.operation in made]
    scopes = launch.kernel.scopes.scopes
    of_flags = {index for index, scope in enumerate(scopes) if scope.kind in (ScopeKind.SPIN, ScopeKind.SIGNAL)}
    foreign = [
        one
        for one in executed.operations
        if accesses_memory(one.operation)
        and not reaches_peers(one.operation)
        and of_flags.isdisjoint(executed.scope_map.covering((one.line, one.line)))
    ]
    return [*unplaced, *foreign, *(one for one in tensors if one.access and _may_meet(one.access, peers))]


def _may_meet(access: Access, peers: Sequence[PeerMemoryRecord]) -> bool:
    if access.address is None or _is_in_one(access, peers):
        return False
    return bool(_near(access.address, peers)) and access.touched() is None


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
        found[around[-1]] = max(found[around[-1]], _does(one, one.line in transfers, scopes[around[-1]].kind))
    return found


def _does(one: CountedOperation, is_transfer: bool, kind: str) -> Doing:
    """Return what an operation does; integers and pointers mostly are places in memory, and single numbers flags."""
    types = types_of(one.operation)
    if reaches_peers(one.operation):
        return Doing.TRANSFERRING
    if is_transfer and (kind == ScopeKind.SIGNAL or any(printed.shape for printed in types)):
        return Doing.TRANSFERRING
    if one.operation.name in _NO_WORK:
        return Doing.NOTHING
    is_work = one.access is not None or one.operation.traits.is_dot
    elements = [printed.element for printed in types if printed.shape]
    return Doing.COMPUTING if any(is_work or _FLOAT.match(element) for element in elements) else Doing.NOTHING


def _that_only_transfer(timeline: Timeline, doing: Sequence[Doing]) -> frozenset[int]:
    """Return the CTAs that transfer and never compute."""
    if Doing.TRANSFERRING not in doing or not any(scope.kind == ScopeKind.SPIN for scope in timeline.table.scopes):
        return frozenset()
    of_scope = np.array(doing, dtype=np.int8)
    transferring, computing = set[int](), set[int]()
    for block in timeline.blocks():
        does = of_scope[block["scope"]]
        transferring.update(np.unique(block["cta"][does == Doing.TRANSFERRING]).tolist())
        computing.update(np.unique(block["cta"][does == Doing.COMPUTING]).tolist())
    return frozenset(transferring - computing)
