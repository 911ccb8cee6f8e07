"""Tables of figures on a terminal, the one of verdicts, bars beside shares, and how many rows a screen has room for."""

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


_WIDTH, _NARROW_WIDTH = 16, 8
# Of a share that is computed from another by a ratio of 1.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Bars:
    """Shares, drawn."""

    inner: str
    """Stands for what a scope takes itself."""
    outer: str
    """Stands for the scopes in it."""
    width: int = _WIDTH

    @property
    def title(self) -> str:
        """What is what, as far as there is room to say it."""
        whole = f"{self.inner} self {self.outer} in it"
        return whole if len(whole) <= self.width else f"{self.inner} self"

    def narrow(self) -> Bars:
        return Bars(self.inner, self.outer, _NARROW_WIDTH)

    def drawn(self, share: float, self_share: float) -> str:
        """Draw shares of a whole, from 0 to 1. A share above 0 has a cell; only a scope with others in it has an outer
        one."""
        whole = min(round(share * self.width), self.width)
        if share > 0:
            whole = max(whole, 1)
        has_others = share - self_share > _ROUNDING
        own = min(round(self_share * self.width), whole) if has_others else whole
        return self.inner * own + self.outer * (whole - own)


BLOCKS = Bars("█", "░")
PLAIN = Bars("#", ".")
"""For terminals whose encoding has no blocks."""


def bars_for(console: Console) -> Bars:
    return PLAIN if console.options.ascii_only else BLOCKS


# However high a terminal is, nobody reads more at a glance.
_MOST_LINES = 60
# Which capture it is and how to go on, as commands say it on stderr; and the shell's prompt.
_AROUND = 6


@dataclass(frozen=True, slots=True)
class Room:
    """Lines that a screen has left for the tables of a report; ``lines`` is None if the output is for no screen.

    ``rest`` says where to find what there is no room for. What limits a launch is printed above the tables: a terminal
    that scrolled it away would show the figures and not the answer.
    """

    lines: int | None = None
    rest: str = "report -v"

    @classmethod
    def on(cls, console: Console) -> Room:
        return cls(min(console.height, _MOST_LINES) - _AROUND if console.file.isatty() else None)

    def below(self, lines: int) -> Room:
        """What so many lines leave of it."""
        return self if self.lines is None else replace(self, lines=self.lines - lines)

    def holds(self, lines: int) -> bool:
        return self.lines is None or lines <= self.lines

    def rows(self, count: int, least: int, lines_of: Callable[[int], int]) -> int:
        """How many of ``count`` rows to show, for which ``lines_of`` says how many lines they take with all that
        belongs to them: as many as it holds, and ``least`` of them in any case."""
        if self.lines is None:
            return count
        while count > least and (excess := lines_of(count) - self.lines) > 0:
            count = max(count - excess, least)
        return count
