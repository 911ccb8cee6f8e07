"""Tables of figures on a terminal, and the one of verdicts.

Names are folded where there is little room, figures never, and letters that the terminal's encoding does not have are
written with those that it has.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kprof_inject.analysis.roofs.limits import Limit
from kprof_inject.capture.model import Launch, Origin
from kprof_inject.capture.resources import KernelResources
from kprof_inject.errors import printable
from kprof_inject.quantities import before_and_after, time_text
from kprof_inject.report.kernel_names import kernel_names
from kprof_inject.timeline.comparison import CONFIDENCE
from kprof_inject.timeline.trust import Level, Verdict

_LEAST_NAME = 8
_READABLE_NAME = 24
_INSTEAD = {"µ": "u", "→": "->", "±": "+-", "…": "...", "×": "x", "–": "-"}
# What stands between two columns: with lines, and without.
_FRAME, _SPACE, _WIDE_SPACE = 3, 1, 2


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    cells: Sequence[str]
    """Texts of anyone's."""
    styles: Sequence[str] = ()
    """Rich's, one for each cell, if there are any."""
    left: bool = False
    name: bool = False
    """Only a name may be folded."""

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
    written = _in_letters(layouts, console)
    if sum(column.width + _FRAME for column in written[0]) + 1 <= console.width:
        console.print(_filled(Table(), written[0]))
        return layouts[0]
    number = _fitting(written, _SPACE, console)
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    console.print(_tight(table, written[number], _SPACE, console), crop=False)
    return layouts[number]


def print_plain(layouts: Sequence[Sequence[Column]], console: Console) -> None:
    """The same without any lines: titles, and rows below them. Columns move together before a layout is given up."""
    console.print(_plain(layouts, console), crop=False)


def lines_of_plain(layouts: Sequence[Sequence[Column]], console: Console) -> int:
    """How many lines ``print_plain`` takes for them."""
    return len(console.render_lines(_plain(layouts, console), pad=False))


def _plain(layouts: Sequence[Sequence[Column]], console: Console) -> Table:
    written = _in_letters(layouts, console)
    spaced = [(layout, space) for layout in written for space in (_WIDE_SPACE, _SPACE)]
    chosen, space = next((one for one in spaced if _readable_width(*one) <= console.width), spaced[-1])
    table = Table(box=None, padding=(0, space, 0, 0), pad_edge=False, header_style="dim")
    return _tight(table, chosen, space, console)


def _fitting(layouts: Sequence[Sequence[Column]], space: int, console: Console) -> int:
    """The first layout that can be read in one line, else the last one."""
    fits = (at for at, layout in enumerate(layouts) if _readable_width(layout, space) <= console.width)
    return next(fits, len(layouts) - 1)


def _readable_width(layout: Sequence[Column], space: int) -> int:
    return sum(column.readable_width + space for column in layout) - space


def _tight(table: Table, columns: Sequence[Column], space: int, console: Console) -> Table:
    """With names folded, where that is needed; never narrower than its figures."""
    _filled(table, columns)
    if sum(column.width + space for column in columns) - space > console.width:
        table.width = max(sum(column.least_width + space for column in columns) - space, console.width)
    return table


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


def _in_letters(layouts: Sequence[Sequence[Column]], console: Console) -> list[list[Column]]:
    def written(column: Column) -> Column:
        cells = [_written(cell, console.encoding) for cell in column.cells]
        return replace(column, title=_written(column.title, console.encoding), cells=cells)

    return [[written(column) for column in layout] for layout in layouts]


def _written(text: str, encoding: str) -> str:
    """What has no like among the encoding's letters is given by its number."""
    return printable(text).translate(_replaced(encoding)).encode(encoding, "backslashreplace").decode(encoding)


@functools.cache
def _replaced(encoding: str) -> dict[int, str]:
    missing = {letter: plain for letter, plain in _INSTEAD.items() if not letter.encode(encoding, "ignore")}
    return str.maketrans(missing)


LEVEL_COLOURS = {Level.TRUSTWORTHY: "green", Level.CAREFUL: "yellow", Level.UNRELIABLE: "red"}
"""What is not known has none."""


def limit_colour(limit: Limit, known: str = "") -> str:
    """Of one that is not ``known``, that of all that something kept from being judged."""
    return known if limit.is_known else "yellow"


_BUILD_COLUMNS: dict[str, Callable[[KernelResources], int | None]] = {
    "registers": lambda cost: cost.registers,
    "spills": lambda cost: cost.spills,
    "shared bytes": lambda cost: cost.shared_bytes,
    "CTAs per SM": lambda cost: cost.ctas_per_sm,
}


def print_trust(judged: Iterable[tuple[Launch, Verdict]], console: Console) -> None:
    """Print how far to trust each kernel's durations: a row for each kernel of each process, and under the table what
    each verdict rests on."""
    # A process has one folder for a variant, however often it launched it.
    of_kernels = {launch.kernel.folder: (launch, verdict) for launch, verdict in judged}.values()
    names = _names([launch for launch, _ in of_kernels])
    verdicts = [(name, verdict) for name, (_, verdict) in zip(names, of_kernels, strict=True)]
    say(f"trust: without records → with them, ± at {100 * CONFIDENCE:.0f} % confidence", console)
    print_fitted(_layouts(verdicts), console)
    for name, verdict in verdicts:
        say(f"{name}: {verdict.text}", console)


def _layouts(verdicts: Sequence[tuple[str, Verdict]]) -> list[list[Column]]:
    """Where there is less room, without the figures of the builds that are the same with records; and in the end
    without any, for the text below the table says of each kernel which of them changed for the worse."""
    judged = [verdict for _, verdict in verdicts]
    shared = [
        Column("kernel", [name for name, _ in verdicts], name=True),
        Column(
            "verdict",
            [one.level.value for one in judged],
            [LEVEL_COLOURS.get(one.level, "") for one in judged],
            left=True,
        ),
        Column(
            "run time", [before_and_after(time_text(one.clean_ns), time_text(one.with_records_ns)) for one in judged]
        ),
        Column("overhead", [one.figure or "-" for one in judged]),
    ]
    builds = [
        (Column(title, [before_and_after(*map(_number, map(of, _costs(one)))) for one in judged]), of)
        for title, of in _BUILD_COLUMNS.items()
    ]
    changed = [column for column, of in builds if any(of(one.clean) != of(one.with_records) for one in judged)]
    return [[*shared, *(column for column, _ in builds)], [*shared, *changed], shared]


def _costs(verdict: Verdict) -> tuple[KernelResources, KernelResources]:
    return verdict.clean, verdict.with_records


def _names(launches: Sequence[Launch]) -> list[str]:
    """The kernels' names, as over their launches; with the process where there are several."""
    names = kernel_names(launch.kernel for launch in launches)
    processes = Counter(launch.kernel.variant for launch in launches)
    return [
        names[variant] + (f", {_process_name(launch.origin)}" if processes[variant] > 1 else "")
        for launch in launches
        for variant in [launch.kernel.variant]
    ]


def _process_name(origin: Origin) -> str:
    return f"process {origin.pid}" if origin.rank is None else f"rank {origin.rank} (process {origin.pid})"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
