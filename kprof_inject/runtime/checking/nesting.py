"""Which operations a module holds and how they nest: as our parser sees it, and as Triton's own does.

Both sides leave out what printing may leave out: the ``scf.yield`` of nothing, a region of nothing, and the operation
that holds the partitions of ``ttg.warp_specialize``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from kprof_inject.errors import KprofError
from kprof_inject.ttgir.nodes import Module, Operation, Region

_PARTITIONS = "ttg.warp_specialize.partitions"


class NestedName(NamedTuple):
    """One operation of the list that a module is: how deep it stands, in which region of its parent, in which block."""

    depth: int
    region: int
    block: int
    name: str


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    offset: int
    regions: Sequence[Sequence[Sequence[_Node]]]


def places_of_triton(module: Any) -> list[NestedName]:
    """The operations of a module of Triton's, each before those inside it."""
    blocks_of: dict[int, dict[int, list[_Node]]] = {}
    root: list[_Node] = []

    def visit(operation: Any) -> None:  # those inside an operation come before it
        regions = [
            list(blocks_of.get(operation.get_region(index).id(), {}).values())
            for index in range(operation.get_num_regions())
        ]
        node = _Node(operation.get_name(), -1, regions)
        block = operation.get_block()
        if block is None:
            root.append(node)
        else:
            siblings = blocks_of.setdefault(block.get_parent().id(), {}).setdefault(block.id(), [])
            if node.name != "scf.yield" or operation.get_num_operands():
                siblings.append(node)

    module.walk(visit)
    return [place for place, _ in _places(root[0])]


def disagreement(module: Module, triton: Sequence[NestedName]) -> KprofError | None:
    """Where our parse of a module of one root first differs from Triton's; None if they agree."""
    (root,) = module.operations
    before = root.start
    for ours, theirs in zip_longest(_places(_node_of(root)), triton):
        place, offset = ours or (None, before)
        if place != theirs:
            return KprofError(
                f"kprof-inject reads {_words(place)} here, and Triton {_words(theirs)}",
                where=module.position(offset),
                hint="this is a fault of kprof-inject's grammar; please report it with this file",
            )
        before = offset
    return None


def _node_of(operation: Operation) -> _Node:
    # The printer of scf.index_switch puts its default, which is the first region, behind the cases.
    regions = sorted(operation.regions, key=lambda region: region.clause != "default")
    name = "module" if operation.name == "builtin.module" else operation.name
    return _Node(name, operation.start, [_blocks_of(region) for region in regions])


def _blocks_of(region: Region) -> list[list[_Node]]:
    return [
        [_node_of(child) for child in block.operations if child.name != "scf.yield" or "%" in child.tail]
        for block in region.blocks
    ]


def _places(root: _Node) -> Iterator[tuple[NestedName, int]]:
    """The operations below ``root`` and itself, in the order of the text, with their offsets."""
    waiting = [(NestedName(0, 0, 0, "module" if root.name == "builtin.module" else root.name), root)]
    while waiting:
        place, node = waiting.pop()
        yield place, node.offset
        inside = [
            (NestedName(place.depth + 1, region_index, block_index, child.name), child)
            for region_index, region in enumerate(_regions_of(node))
            for block_index, block in enumerate(region)
            for child in block
        ]
        waiting += reversed(inside)


def _regions_of(node: _Node) -> list[Sequence[Sequence[_Node]]]:
    regions = [region for region in node.regions if any(region)]
    if node.name == "ttg.warp_specialize" and len(regions) == 2 and regions[1][0][0].name == _PARTITIONS:
        holder = regions[1][0][0]
        return [regions[0], *(region for region in holder.regions if any(region))]
    return regions


def _words(place: NestedName | None) -> str:
    if place is None:
        return "nothing more"
    return f"{place.name!r} (depth {place.depth}, region {place.region}, block {place.block})"
