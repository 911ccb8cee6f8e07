"""The tree that the parser makes of a TTGIR text: spans into the text, which is neither copied nor changed."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import force_setattr

from kprof_inject.errors import Position
from kprof_inject.ttgir.dialect import FUNCTION, MODULES, Traits, traits_of


class Operation(Struct, frozen=True, eq=False):
    """An operation with its regions."""

    name: str
    start: int  # the offset of its first character
    end: int  # the offset after the end of its last line, or of the next operation on that line
    tail: str  # the source text that follows the name, up to the first region
    results: str = ""  # the source text before the name, up to ``=``
    closing: str = ""  # the source text that closes the last region; empty without regions
    regions: tuple[Region, ...] = ()
    block: Block | None = None  # the block that holds it; None for a top-level operation

    def __repr__(self) -> str:
        """Return its name and place; its block leads to all other operations."""
        return f"<{self.name} at {self.start}>"

    @property
    def traits(self) -> Traits:
        """The traits of all operations of this name."""
        return traits_of(self.name)

    def ancestors(self) -> Iterator[Operation]:
        """Yield all operations around this one, innermost first."""
        block = self.block
        while block is not None:
            yield block.region.operation
            block = block.region.operation.block

    def owners(self) -> Iterator[Operation]:
        """Yield the operations around this one that are inside its function, innermost first."""
        return takewhile(lambda ancestor: ancestor.name != FUNCTION, self.ancestors())

    @property
    def loop(self) -> Operation | None:
        """The innermost loop around this operation."""
        return next((owner for owner in self.owners() if owner.traits.is_loop), None)

    @property
    def location_text(self) -> str:
        """The ``loc(...)`` that ends the operation, or an empty string if it was printed without one."""
        line = self.closing or self.tail
        found = line.rfind(" loc(")
        return line[found + 1 :].strip() if found >= 0 else ""

    def walk(self) -> Iterator[Operation]:
        """Yield this operation and all inside it, in the order of the text."""
        return _walk((self,))


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A basic block: operations in sequence."""

    label: str
    start: int  # the offset where the first operation may begin
    operations: tuple[Operation, ...]
    region: Region = field(init=False, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A list of blocks; the entry block comes first, even when it is empty."""

    clause: str  # the word before its { where the printer writes one: else, do, default, partition0
    blocks: tuple[Block, ...]
    end: int  # the offset of the } that closes it
    operation: Operation = field(init=False, repr=False)  # has this region

    def walk(self) -> Iterator[Operation]:
        """Yield all operations inside, in the order of the text."""
        return _walk(operation for block in self.blocks for operation in block.operations)


def link(operation: Operation) -> None:
    """Set the parents of an operation's regions, their blocks and the operations in these.

    The parser creates children first, so they cannot have their parents from the start.
    """
    for region in operation.regions:
        object.__setattr__(region, "operation", operation)
        for block in region.blocks:
            object.__setattr__(block, "region", region)
            for child in block.operations:
                force_setattr(child, "block", block)


@dataclass(frozen=True, slots=True)
class Module:
    """A parsed file. ``text`` is the whole of it, unchanged; ``aliases`` maps ``#loc3`` to its definition."""

    file: str
    text: str
    operations: tuple[Operation, ...]
    aliases: dict[str, str] = field(hash=False)

    def walk(self) -> Iterator[Operation]:
        """Yield all operations of the file, in the order of the text."""
        return _walk(self.operations)

    def attribute(self, name: str) -> str:
        """Return an attribute of the module, such as ``4`` for ``ttg.num-warps``; empty if it is missing."""
        # The generic form has the attributes after the region.
        attributes = next((f"{root.tail} {root.closing}" for root in self.operations if root.name in MODULES), "")
        found = re.search(rf'\b{re.escape(name)}"? = "?([\w:]+)', attributes)
        return found[1] if found else ""

    def line_start(self, offset: int) -> int:
        """Return the offset of the first character of the line that holds ``offset``."""
        return self.text.rfind("\n", 0, offset) + 1

    def indent_at(self, offset: int) -> str:
        """Return the blanks at the beginning of the line that holds ``offset``."""
        start = self.line_start(offset)
        stripped = self.text[start : start + 200].lstrip(" \t")
        return self.text[start : start + 200][: -len(stripped)] if stripped else ""

    def position(self, offset: int) -> Position:
        """Return file, line and column of ``offset``, for a diagnostic."""
        return Position.at_offset(self.file, self.text, offset)

    def position_of_word(self, offset: int) -> Position:
        """Return the position of the first character at or after ``offset`` that is no blank."""
        rest = len(self.text[offset:].lstrip())
        return self.position(len(self.text) - rest)

    def line_numbers(self, offsets: Sequence[int]) -> list[int]:
        """Return the line numbers, from 1, of these offsets."""
        ends = _line_ends(self.text)
        return [bisect_left(ends, offset) + 1 for offset in offsets]

    def lines_of(self, operations: Iterable[Operation]) -> set[int]:
        """Return all lines that operations and their regions take."""
        numbers = self.line_numbers([place for one in operations for place in (one.start, one.end - 1)])
        ranges = zip(numbers[::2], numbers[1::2], strict=True)
        return {line for first, last in ranges for line in range(first, last + 1)}

    @property
    def newline(self) -> str:
        """The line end that this file uses."""
        return "\r\n" if "\r\n" in self.text[:4096] else "\n"


@functools.lru_cache(maxsize=8)
def _line_ends(text: str) -> list[int]:
    return [found.start() for found in re.finditer("\n", text)]


def _walk(operations: Iterable[Operation]) -> Iterator[Operation]:
    # Not recursive: the cost of an operation would grow with its depth, and the depth would be limited.
    pending = [iter(operations)]
    while pending:
        for operation in pending[-1]:
            yield operation
            if operation.regions:
                blocks = (block for region in operation.regions for block in region.blocks)
                pending.append(child for block in blocks for child in block.operations)
                break
        else:
            pending.pop()
