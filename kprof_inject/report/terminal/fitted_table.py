"""Tables of figures on a terminal: names are folded where there is little room, figures never, and letters that the
terminal's encoding does not have are written with those that it has."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kprof_inject.printable import printable

_LEAST_NAME = 8
_READABLE_NAME = 24
_INSTEAD = {"µ": "u", "→": "->", "±": "+-", "…": "...", "×": "x", "–": "-"}
# What stands between two columns: with lines, and without.
_FRAME, _SPACE = 3, 1


@dataclass(frozen=True, slots=True)
class Column:
    """``cells`` are texts of anyone's; ``styles`` are rich's, one for each, if there are any. Only a ``name`` may be
    folded."""

    title: str
    cells: Sequence[str]
    styles: Sequence[str] = ()
    left: bool = False
    name: bool = False

    @property
    def width(self) -> int:
        return max(map(cell_len, (self.title, *self.cells)))

    @property
    def readable_width(self) -> int:
        return min(self.width, _READABLE_NAME) if self.name else self.width

    @property
    def least_width(self) -> int:
        return min(self.width, _LEAST_NAME) if self.name else self.width


def shown(text: str, console: Console, style: str = "") -> Text:
    """Text of anyone's, with neither rich's nor the terminal's commands, in letters that the terminal has."""
    return Text(_written(text, console.encoding), style)


def say(text: str, console: Console) -> None:
    """Print a line, which a terminal wraps where it is longer."""
    console.print(shown(text, console), crop=False)


def print_fitted(layouts: Sequence[Sequence[Column]], console: Console) -> Sequence[Column]:
    """Print the first of the layouts for which there is room, else the last one; returns which it was.

    There is room if of each name at least so much stands in one line that it can be read. The first layout has lines
    between its columns, if there is room for those too. Columns that need more than there is make longer lines, which
    the terminal wraps: no figure is ever cut."""
    written = [[_in_letters(column, console.encoding) for column in layout] for layout in layouts]
    first = written[0]
    if sum(column.width + _FRAME for column in first) + 1 <= console.width:
        console.print(_filled(Table(), first))
        return layouts[0]
    readable = (sum(column.readable_width + _SPACE for column in layout) - _SPACE for layout in written)
    number = next((at for at, width in enumerate(readable) if width <= console.width), len(layouts) - 1)
    chosen = written[number]
    table = _filled(Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False), chosen)
    if sum(column.width + _SPACE for column in chosen) - _SPACE > console.width:
        table.width = max(sum(column.least_width + _SPACE for column in chosen) - _SPACE, console.width)
    console.print(table, crop=False)
    return layouts[number]


def _filled(table: Table, columns: Sequence[Column]) -> Table:
    for column in columns:
        table.add_column(
            Text(column.title),
            justify="left" if column.left or column.name else "right",
            no_wrap=not column.name,
            overflow="fold",
            min_width=column.least_width,
        )
    for number in range(len(columns[0].cells)):
        table.add_row(
            *(Text(column.cells[number], column.styles[number] if column.styles else "") for column in columns)
        )
    return table


def _in_letters(column: Column, encoding: str) -> Column:
    cells = [_written(cell, encoding) for cell in column.cells]
    return Column(_written(column.title, encoding), cells, column.styles, column.left, column.name)


def _written(text: str, encoding: str) -> str:
    """What has no like among the encoding's letters is given by its number."""
    return printable(text).translate(_replaced(encoding)).encode(encoding, "backslashreplace").decode(encoding)


@functools.cache
def _replaced(encoding: str) -> dict[int, str]:
    missing = {letter: plain for letter, plain in _INSTEAD.items() if not letter.encode(encoding, "ignore")}
    return str.maketrans(missing)
