"""Make sites from groups of operations, in the style that the user chose.

The compiler moves, duplicates, pipelines and drops operations, so the operations of one source line may be in several
blocks, with others between them. A scope cannot leave its block: each block gets a site of its own, from the first to
the last of its operations that does work.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.capture.mode import Mode
from kprof_inject.errors import KprofError
from kprof_inject.select.functions import Function, block_kind
from kprof_inject.select.sites import Found, InsertPoint, Missed, Site
from kprof_inject.ttgir.locations import Chain, SourcePoint
from kprof_inject.ttgir.nodes import Block, Operation

_offset = attrgetter("start")


class Group(Struct, frozen=True):
    """Operations of one function that a user selects as one: the same lines (or helper), reached by the same calls."""

    function: Function
    kind: str
    label: str
    operations: tuple[Operation, ...]
    source: SourcePoint
    called_from: Chain


class Segment(Struct, frozen=True):
    """Operations of a group in one block, without a loop or branch between them that holds others of the group."""

    function: Function
    operations: tuple[Operation, ...]
    anchors: tuple[Operation, ...]  # those that do work, or all if none of the group's does
    block: str  # prologue or epilogue next to a loop that holds others of the group; else see ``block_kind``


Spread = Callable[[Segment], Iterator[Sequence[Operation]]]
"""A way to split a segment into sites: it yields the operations that each one spans."""


def in_one_piece(segment: Segment) -> Iterator[Sequence[Operation]]:
    """Span the segment from the first to the last operation that does work, whatever is between them."""
    yield segment.anchors


def _in_runs(segment: Segment) -> Iterator[Sequence[Operation]]:
    # The longest runs without any other operation that does work, each with its neighbours of the same segment: runs of
    # two segments do not cross, unless an operation belongs to both.
    operations = _block_of(segment.operations[0]).operations
    own, anchors = set(segment.operations), set(segment.anchors)
    begin = bisect_left(operations, _offset(segment.anchors[0]), key=_offset)
    end = bisect_left(operations, _offset(segment.anchors[-1]), key=_offset)
    runs: list[list[int]] = [[]]
    for index in range(begin, end + 1):
        if operations[index] in anchors:
            runs[-1].append(index)
        elif runs[-1] and segment.function.does_work(operations[index]):
            runs.append([])
    for run in filter(None, runs):
        first, last = run[0], run[-1]
        while first > 0 and operations[first - 1] in own:
            first -= 1
        while last + 1 < len(operations) and operations[last + 1] in own:
            last += 1
        yield [operation for operation in operations[first : last + 1] if operation in own]


SPREADS: dict[str, Spread] = {"never": in_one_piece, "runs": _in_runs}  # the ways by their names on the command line


def span(group: Group, spread: Spread) -> Found:
    """Return the sites of a group, and the operations that no site spans."""
    starts = [_offset(operation) for operation in group.operations]
    sites = []
    for segment in segments_of(group):
        for piece in spread(segment):
            start, end = group.function.before(piece[0]), group.function.after(piece[-1])
            own = bisect_left(starts, end.offset) - bisect_left(starts, start.offset)
            sites.append(_site(group, segment, start, end, own))
    begins = [site.start.offset for site in sites]
    missed = []
    for operation in group.operations:
        before = bisect_right(begins, operation.start)
        is_inside = before > 0 and operation.start < sites[before - 1].last_end_offset
        if not is_inside and not operation.traits.is_terminator:
            missed.append(Missed(operation, group.function.refusal(operation) or "index arithmetic elsewhere"))
    return Found(tuple(sites), tuple(missed), frozenset(starts) - {miss.operation.start for miss in missed})


def instants(group: Group, *, is_before: bool) -> Found:
    """Return an instant before each segment of a group, or after it; if only a block's end is left, before that."""
    function, segments = group.function, segments_of(group)
    if is_before and not segments:
        legal = (last for last in group.operations if last.traits.is_terminator and not function.illegal_owner(last))
        segments = [Segment(function, (last,), (last,), block_kind(last)) for last in legal]
    sites = []
    for segment in segments:
        point = function.before(segment.anchors[0]) if is_before else function.after(segment.anchors[-1])
        sites.append(_site(group, segment, point, point, 0))
    return Found(tuple(sites))


def _site(group: Group, segment: Segment, start: InsertPoint, end: InsertPoint, own: int) -> Site:
    chain = (group.source, *group.called_from)
    return group.function.site(group.kind, group.label, start, (end,), chain, segment.block, own=own)


def segments_of(group: Group) -> list[Segment]:
    """Return the group's segments in the order of the text: those that do work or, if none, all. None overlap."""
    function = group.function
    operations = [operation for operation in group.operations if not function.refusal(operation)]
    selected = set(operations)
    tops = [operation for operation in operations if not any(owner in selected for owner in operation.owners())]
    carriers = {owner for operation in tops for owner in operation.owners()}
    between: dict[Block, list[Operation]] = {}
    for carrier in sorted(carriers, key=_offset):
        between.setdefault(_block_of(carrier), []).append(carrier)
    pieces: dict[tuple[Block, int], list[Operation]] = {}
    for operation in tops:
        block = _block_of(operation)
        before = bisect_left(between.get(block, []), _offset(operation), key=_offset)
        pieces.setdefault((block, before), []).append(operation)
    first_loops = {
        block: next((_offset(carrier) for carrier in in_block if carrier.traits.is_loop), None)
        for block, in_block in between.items()
    }
    segments = []
    for (block, _), piece in pieces.items():
        anchors = tuple(operation for operation in piece if function.does_work(operation))
        name, first_loop = block_kind(piece[0]), first_loops.get(block)
        if first_loop is not None:
            name = "prologue" if _offset(piece[0]) < first_loop else "epilogue"
        segments.append(Segment(function, tuple(piece), anchors, name))
    segments.sort(key=lambda segment: _offset(segment.operations[0]))
    return [segment for segment in segments if segment.anchors] or [
        replace(segment, anchors=segment.operations) for segment in segments
    ]


def _block_of(operation: Operation) -> Block:
    assert operation.block is not None, "it is in a function"
    return operation.block


ITERATION_RECORDS = ("one", "two")
"""Records of an iteration: each start also ends the one before if nothing is between them, or each has an end."""


class Style(Struct, frozen=True):
    """The way in which sites get their records, in the words of the command line; others raise ``KprofError``."""

    split: str = "never"
    """One of ``SPREADS``: how a scope around source lines is split where it would contain other operations."""
    iteration_records: str = "one"

    def __post_init__(self) -> None:
        given = ("split", self.split, (*SPREADS,)), ("iter_records", self.iteration_records, ITERATION_RECORDS)
        for what, word, words in given:
            if word not in words:
                raise KprofError(f"there is no {what} {word!r}", hint=f"choose {' or '.join(words)}")

    def for_mode(self, mode: Mode) -> Style:
        """Return a style that the mode can record: if it moves stores, each start needs an end in its block."""
        return replace(self, iteration_records="two") if mode.sched_stores else self


USUAL_STYLE = Style()
