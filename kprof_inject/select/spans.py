"""From operations that belong together to sites."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kprof_inject.select.functions import Function, Place, block_kind, is_loop
from kprof_inject.select.sites import Findings, InsertPoint, Missed, Site
from kprof_inject.ttgir.dialect import TERMINATORS
from kprof_inject.ttgir.locations import Chain, SourcePoint

#
# The compiler moves, duplicates, pipelines and drops operations, so that those of one source line may stand in several
# blocks, with others between them. A scope cannot leave its block: each block gets a site of its own, from the first to
# the last of its operations that does work.


@dataclass(frozen=True, slots=True)
class Group:
    """Operations of one function that a user means as one: the same lines (or helper), reached by the same calls.

    ``kind``, ``label``, ``source`` and ``called_from`` are those of the sites to be made."""

    function: Function
    kind: str
    label: str
    places: tuple[Place, ...]
    source: SourcePoint | None
    called_from: Chain


@dataclass(frozen=True, slots=True)
class Segment:
    """Operations of a group that stand in one block, with no loop or branch between them that holds others of it.

    ``anchors`` are those that do work, or all where none of the group's does. ``block`` is ``prologue`` or ``epilogue``
    beside a loop that holds others of the group; else see ``block_kind``."""

    function: Function
    places: tuple[Place, ...]
    anchors: tuple[Place, ...]
    block: str


Spread = Callable[[Segment], Iterator[Sequence[Place]]]
"""How a segment becomes sites, in one piece or in several: the operations that each is to span."""


def in_one_piece(segment: Segment) -> Iterator[Sequence[Place]]:
    """From the first to the last operation that does work, whatever stands between them."""
    yield segment.anchors


def in_runs(segment: Segment) -> Iterator[Sequence[Place]]:
    """The longest runs that hold no other operation that does work, each with its neighbours of the same segment.

    Runs of two segments do not cross, unless an operation belongs to both."""
    operations = segment.places[0].block.operations
    own = {_offset(place): place for place in segment.places}
    for first, last in _runs(segment):
        while first > 0 and operations[first - 1].start in own:
            first -= 1
        while last + 1 < len(operations) and operations[last + 1].start in own:
            last += 1
        yield [own[operation.start] for operation in operations[first : last + 1] if operation.start in own]


def _runs(segment: Segment) -> Iterator[tuple[int, int]]:
    """The first and the last anchor of each run, as indices into the block."""
    operations = segment.places[0].block.operations
    own = {_offset(place) for place in segment.anchors}
    begin = bisect_left(operations, _offset(segment.anchors[0]), key=lambda operation: operation.start)
    end = bisect_left(operations, _offset(segment.anchors[-1]), key=lambda operation: operation.start)
    run: tuple[int, int] | None = None
    for index in range(begin, end + 1):
        if operations[index].start in own:
            run = run[0] if run else index, index
        elif run and segment.function.does_work(operations[index]):
            yield run
            run = None
    if run:
        yield run


SPREADS: dict[str, Spread] = {"never": in_one_piece, "runs": in_runs}
"""By the words of the command line."""


def span(group: Group, spread: Spread) -> Findings:
    """The sites of a group, and which of its operations no site spans."""
    starts = [_offset(place) for place in group.places]
    sites = tuple(_span(group, segment, piece, starts) for segment in segments_of(group) for piece in spread(segment))
    missed = tuple(_missed(group, sites))
    return Findings(sites, missed, frozenset(starts) - {miss.operation.start for miss in missed})


def instants_before(group: Group) -> Findings:
    """One instant before each segment of a group; where nothing is left but the end of a block, before that."""
    leaving = [place for place in group.places if place.operation.name in TERMINATORS and not place.illegal_owner]
    segments = segments_of(group) or [
        Segment(group.function, (place,), (place,), block_kind(place)) for place in leaving
    ]
    points = [group.function.before(segment.anchors[0].operation) for segment in segments]
    return _instants(group, segments, points)


def instants_after(group: Group) -> Findings:
    """One instant behind each segment of a group."""
    segments = segments_of(group)
    points = [group.function.after(segment.anchors[-1].operation) for segment in segments]
    return _instants(group, segments, points)


def _instants(group: Group, segments: Sequence[Segment], points: Sequence[InsertPoint]) -> Findings:
    return Findings(
        tuple(_site(group, segment, point, point, 0, 0) for segment, point in zip(segments, points, strict=True))
    )


def segments_of(group: Group) -> list[Segment]:
    """The group's operations by blocks, in the order of the text: those segments that do work, or if none does, all.

    No segment reaches into another."""
    legal = [place for place in group.places if not place.refusal]
    segments = sorted(_segments(group.function, legal), key=lambda segment: _offset(segment.places[0]))
    return [segment for segment in segments if segment.anchors] or [
        replace(segment, anchors=segment.places) for segment in segments
    ]


def _segments(function: Function, places: Sequence[Place]) -> Iterator[Segment]:
    wanted = set(places)
    tops = [place for place in places if not any(owner in wanted for owner in place.owners())]
    carriers = {owner for place in tops for owner in place.owners()}
    between: dict[int, list[Place]] = {}
    for carrier in sorted(carriers, key=_offset):
        between.setdefault(id(carrier.block), []).append(carrier)
    pieces: dict[tuple[int, int], list[Place]] = {}
    for place in tops:
        beside = between.get(id(place.block), [])
        before = bisect_left(beside, _offset(place), key=_offset)
        pieces.setdefault((id(place.block), before), []).append(place)
    first_loops = {
        block: next((_offset(carrier) for carrier in beside if is_loop(carrier.operation)), None)
        for block, beside in between.items()
    }
    for (block, _), piece in pieces.items():
        anchors = tuple(place for place in piece if function.does_work(place.operation))
        yield Segment(function, tuple(piece), anchors, _block(piece[0], first_loops.get(block)))


def _block(place: Place, first_loop: int | None) -> str:
    if first_loop is None:
        return block_kind(place)
    return "prologue" if _offset(place) < first_loop else "epilogue"


def _offset(place: Place) -> int:
    return place.operation.start


def _span(group: Group, segment: Segment, piece: Sequence[Place], starts: Sequence[int]) -> Site:
    start = group.function.before(piece[0].operation)
    end = group.function.after(piece[-1].operation)
    own = bisect_left(starts, end.offset) - bisect_left(starts, start.offset)
    others = group.function.operations_between(start.offset, end.offset) - own
    return _site(group, segment, start, end, own, others)


def _site(group: Group, segment: Segment, start: InsertPoint, end: InsertPoint, own: int, others: int) -> Site:
    return Site(
        group.kind,
        group.label,
        group.function.symbol,
        start,
        (end,),
        False,
        group.source,
        group.called_from,
        segment.block,
        own,
        others,
    )


def _missed(group: Group, sites: Sequence[Site]) -> Iterator[Missed]:
    begins = [site.start.offset for site in sites]
    for place in group.places:
        start = place.operation.start
        before = bisect_right(begins, start)
        is_inside = before > 0 and start < sites[before - 1].last_end_offset
        if not is_inside and place.operation.name not in TERMINATORS:
            yield Missed(place.operation, place.refusal or "index arithmetic elsewhere")
