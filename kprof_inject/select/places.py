"""Where each operation stands: its block, and the operations around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kprof_inject.select.anchors import TERMINATORS
from kprof_inject.select.legality import holds_records
from kprof_inject.ttgir.nodes import Block, Operation, Region

_LOOPS = frozenset({"scf.for", "scf.while"})


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """One operation in its ``block`` of ``region``.

    ``around`` is the place of the operation that the region belongs to, None in a function's own blocks.
    ``illegal_owner`` is the outermost operation around it that Triton lowers once per element, so that no record may
    stand here."""

    operation: Operation
    region: Region
    block: Block
    around: Place | None
    illegal_owner: Operation | None

    @property
    def refusal(self) -> str:
        """Why no record may stand around this operation; empty if one may."""
        if self.illegal_owner:
            return f"inside {self.illegal_owner.name}, which Triton lowers once per element"
        return "the end of its block" if self.operation.name in TERMINATORS else ""

    def owners(self) -> Iterator[Place]:
        """The operations around this one, from inside out."""
        place = self.around
        while place is not None:
            yield place
            place = place.around


def places_in(function: Operation, illegal_owner: Operation | None) -> tuple[Place, ...]:
    """Every operation inside a function, in the order of the text.

    ``illegal_owner`` is an operation that Triton lowers once per element and that the function is called in."""
    return _walk(function, illegal_owner, lambda operation: True)


def owners_in(function: Operation, illegal_owner: Operation | None) -> tuple[Place, ...]:
    """The operations inside a function that have regions: few among many, and enough to find loops."""
    return _walk(function, illegal_owner, lambda operation: bool(operation.regions) or is_loop(operation))


def block_kind(place: Place) -> str:
    """What block an operation stands in: ``body`` of a loop, ``branch``, ``partition`` or ``function``."""
    owner = place.around.operation.name if place.around else ""
    if owner in _LOOPS:
        return "body"
    if owner.startswith("ttg.warp_specialize"):
        return "partition"
    return "branch" if owner else "function"


def is_loop(operation: Operation) -> bool:
    return operation.name in _LOOPS


def _walk(
    function: Operation, illegal_owner: Operation | None, is_wanted: Callable[[Operation], bool]
) -> tuple[Place, ...]:
    places: list[Place] = []
    pending = _children(function, None, illegal_owner, is_wanted)[::-1]
    while pending:
        place = pending.pop()
        places.append(place)
        if place.operation.regions:
            pending += _children(place.operation, place, place.illegal_owner, is_wanted)[::-1]
    return tuple(places)


def _children(
    operation: Operation, place: Place | None, illegal: Operation | None, is_wanted: Callable[[Operation], bool]
) -> list[Place]:
    if illegal is None and not holds_records(operation):
        illegal = operation
    return [
        Place(child, region, block, place, illegal)
        for region in operation.regions
        for block in region.blocks
        for child in block.operations
        if is_wanted(child)
    ]
