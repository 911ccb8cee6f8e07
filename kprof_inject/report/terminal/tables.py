"""Tables of figures on a terminal, the table of verdicts, bars for shares, and the rows that fit on a screen."""

from __future__ import annotations

import functools
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace
from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kprof_inject.analysis.limits.limit import Limit
from kprof_inject.errors import printable
from kprof_inject.quantities import before_and_after, percent, short_time
from kprof_inject.report.facts import Answer
from kprof_inject.timeline.comparison import CONFIDENCE
from kprof_inject.timeline.trust import Level

# Widths below which a name is not folded, and at which it is still readable, in terminal cells.
_MIN_NAME, _READABLE_NAME = 8, 24
_INSTEAD = {"µ": "u", "→": "->", "±": "+-", "…": "...", "×": "x", "–": "-"}
_FRAME, _SPACE, _WIDE_SPACE = 3, 1, 2  # width between two columns: with lines, and without


class Column(Struct, frozen=True):
    """Column of a table."""

    title: str
    cells: Sequence[str]  # may have any characters: they come from users' names
    styles: Sequence[str] = ()  # Rich styles, one for each cell; none if empty
    left: bool = False
    name: bool = False  # only names may be folded

    @property
    def width(self) -> int:
        """Width of its widest cell, in terminal cells."""
        return max(cell_len(line) for text in (self.title, *self.cells) for line in text.split("\n"))


def shown(text: str, console: Console, style: str = "") -> Text:
    """Return a text of any origin without Rich's or the terminal's commands, in the terminal's encoding."""
    return Text(_written(text, console.encoding), style)


def say(text: str, console: Console) -> None:
    """Print a line, which a terminal wraps if it is longer."""
    console.print(shown(text, console), crop=False)


def print_fitted(layouts: Sequence[Sequence[Column]], console: Console) -> Sequence[Column]:
    """Print the first layout that fits, else the last one; return the layout.

    A layout fits if each name is readable in one line. The first layout has lines between its columns if these fit too.
    If the columns are wider than the terminal, it wraps the lines: no figure is ever cut.
    """
    written = _in_letters(layouts, console)
    if sum(column.width + _FRAME for column in written[0]) + 1 <= console.width:
        console.print(_filled(Table(), written[0]))
        return layouts[0]
    fits = (at for at, layout in enumerate(written) if _readable_width(layout, _SPACE) <= console.width)
    number = next(fits, len(written) - 1)
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    console.print(_tight(table, written[number], _SPACE, console), crop=False)
    return layouts[number]


def print_plain(layouts: Sequence[Sequence[Column]], console: Console) -> None:
    """Print the first layout that fits without lines; columns move together before a layout is given up."""
    console.print(_plain(layouts, console), crop=False)


def lines_of_plain(layouts: Sequence[Sequence[Column]], console: Console) -> int:
    """Return how many lines ``print_plain`` needs for the layouts."""
    return len(console.render_lines(_plain(layouts, console), pad=False))


def _plain(layouts: Sequence[Sequence[Column]], console: Console) -> Table:
    written = _in_letters(layouts, console)
    spaced = [(layout, space) for layout in written for space in (_WIDE_SPACE, _SPACE)]
    fitting = (candidate for candidate in spaced if _readable_width(*candidate) <= console.width)
    chosen, space = next(fitting, spaced[-1])
    table = Table(box=None, padding=(0, space, 0, 0), pad_edge=False, header_style="dim")
    return _tight(table, chosen, space, console)


def _readable_width(layout: Sequence[Column], space: int) -> int:
    widths = (min(column.width, _READABLE_NAME) if column.name else column.width for column in layout)
    return sum(width + space for width in widths) - space


def _tight(table: Table, columns: Sequence[Column], space: int, console: Console) -> Table:
    too_wide = sum(column.width + space for column in columns) - space - console.width
    if too_wide <= 0:
        return _filled(table, columns)
    folded = [*columns]
    widths = {number: column.width for number, column in enumerate(columns) if column.name}
    spare = {number: max(width - _MIN_NAME, 0) for number, width in widths.items()}
    while too_wide > 0 and any(spare.values()):
        widest = max(spare, key=spare.__getitem__)
        spare[widest] -= 1
        widths[widest] -= 1
        too_wide -= 1
    for number, width in widths.items():
        cells = [folded_name(cell, width) for cell in columns[number].cells]
        folded[number] = replace(columns[number], cells=cells)
    table.width = sum(column.width + space for column in folded) - space
    return _filled(table, folded)


_PART_OF_NAME = re.compile(r"\s*[^\s_./:,<>-]*[_./:,<>-]*")
"""A name may be folded after each match, so that words stay whole."""


def folded_name(name: str, width: int) -> str:
    """Return a name in lines of at most ``width`` terminal cells, folded between its words where that is possible."""
    lines = [""]
    for part in _PART_OF_NAME.findall(name):
        if cell_len(lines[-1] + part) <= width:
            lines[-1] += part
            continue
        if lines[-1]:
            lines.append("")
        rest = part.lstrip() if len(lines) > 1 else part
        lines[-1:] = chop_cells(rest, width) or [""]
    return "\n".join(lines)


def _filled(table: Table, columns: Sequence[Column]) -> Table:
    for column in columns:
        table.add_column(Text(column.title), justify="left" if column.left or column.name else "right", no_wrap=True)
    styles = [column.styles or [""] * len(column.cells) for column in columns]
    for number in range(len(columns[0].cells)):
        table.add_row(*(Text(one.cells[number], own[number]) for one, own in zip(columns, styles, strict=True)))
    return table


def _in_letters(layouts: Sequence[Sequence[Column]], console: Console) -> list[list[Column]]:
    def written(column: Column) -> Column:
        cells = [_written(cell, console.encoding) for cell in column.cells]
        return replace(column, title=_written(column.title, console.encoding), cells=cells)

    return [[written(column) for column in layout] for layout in layouts]


def _written(text: str, encoding: str) -> str:
    return printable(text).translate(_replaced(encoding)).encode(encoding, "backslashreplace").decode(encoding)


@functools.cache
def _replaced(encoding: str) -> dict[int, str]:
    missing = {letter: plain for letter, plain in _INSTEAD.items() if not letter.encode(encoding, "ignore")}
    return str.maketrans(missing)


def share_text(part: float | None) -> str:
    """Return a share in per cent; "-" if it is unknown."""
    return "-" if part is None else percent(part)


LEVEL_COLOURS = {Level.TRUSTWORTHY: "green", Level.CAREFUL: "yellow", Level.UNRELIABLE: "red"}
"""Unknown levels have none."""


def limit_colour(limit: Limit, known: str = "") -> str:
    """Return ``known`` for a known limit, else the colour of all that could not be judged."""
    return known if limit.is_known else "yellow"


def print_trust(answers: Sequence[Answer], console: Console) -> None:
    """Print how far to trust each kernel's durations in each process, and below the table the basis of each verdict."""
    processes = Counter(answer.variant for answer in answers)
    named: dict[str, Answer] = {}
    for answer in answers:
        process, rank = f"process {answer.place.pid}", answer.place.rank
        where = f", {process if rank is None else f'rank {rank} ({process})'}"
        named[f"{answer.title}{where if processes[answer.variant] > 1 else ''}"] = answer
    say(f"trust: without records → with them, ± at {100 * CONFIDENCE:.0f} % confidence", console)
    print_fitted(_layouts(named), console)
    for name, answer in named.items():
        say(f"{name}: {answer.trust.text}", console)


def _layouts(answers: Mapping[str, Answer]) -> list[list[Column]]:
    # With less room, first the builds' figures that records do not change go, then all of them: the text below the
    # table names those that got worse.
    trust, times = [one.trust for one in answers.values()], [one.run_times for one in answers.values()]
    colours = [LEVEL_COLOURS.get(one.level, "") for one in trust]
    both = [before_and_after(short_time(one.without_records_ns), short_time(one.with_records_ns)) for one in times]
    shared = [
        Column("kernel", list(answers), name=True),
        Column("verdict", [one.level.value for one in trust], colours, left=True),
        Column("run time", both),
        Column("overhead", [one.figure or "-" for one in trust]),
    ]
    fields = {
        "registers": "registers",
        "spills": "spills",
        "shared bytes": "shared_bytes",
        "CTAs per SM": "ctas_per_sm",
    }
    builds = {
        title: [(getattr(one.clean, field), getattr(one.with_records, field)) for one in answers.values()]
        for title, field in fields.items()
    }
    columns = {
        title: Column(title, [before_and_after(*("-" if one is None else str(one) for one in pair)) for pair in pairs])
        for title, pairs in builds.items()
    }
    changed = [columns[title] for title, pairs in builds.items() if any(clean != recorded for clean, recorded in pairs)]
    return [[*shared, *columns.values()], [*shared, *changed], shared]


_WIDTH, _NARROW_WIDTH = 16, 8
_ROUNDING = 1e-9  # rounding error of a share that is computed from an equal one


class Bars(Struct, frozen=True):
    """Bars that draw shares in characters."""

    inner: str  # character for a scope's own time
    outer: str  # character for the time of the scopes in it
    width: int = _WIDTH

    @property
    def title(self) -> str:
        """Legend, as far as there is room for it."""
        whole = f"{self.inner} self {self.outer} in it"
        return whole if len(whole) <= self.width else f"{self.inner} self"

    def drawn(self, share: float, self_share: float) -> str:
        """Draw shares from 0 to 1: at least one cell above 0, and an outer part only of a scope with others in it."""
        whole = min(round(share * self.width), self.width)
        if share > 0:
            whole = max(whole, 1)
        has_others = share - self_share > _ROUNDING
        own = min(round(self_share * self.width), whole) if has_others else whole
        return self.inner * own + self.outer * (whole - own)


BLOCKS = Bars("█", "░")
PLAIN = Bars("#", ".")  # for terminals whose encoding has no block characters


def bars_for(console: Console) -> Bars:
    """Return the bars that the console can print."""
    return PLAIN if console.options.ascii_only else BLOCKS


def share_bars(shares: Sequence[tuple[float, float]], colours: Sequence[str], console: Console) -> list[Column]:
    """Return columns that draw shares, each with the part of it that is a scope's own: a wide one and a narrow one."""
    wide = bars_for(console)
    return [
        Column(bars.title, [bars.drawn(*share) for share in shares], colours, left=True)
        for bars in (wide, replace(wide, width=_NARROW_WIDTH))
    ]


_MAX_LINES = 60  # more lines cannot be read at a glance, however high the terminal
_AROUND = 6  # lines for the capture's name and the next commands on stderr, and for the shell's prompt


class Room(Struct, frozen=True):
    """Lines that a screen has left for the tables of a report; ``lines`` is None if the output is not a screen.

    A launch's limit is printed above the tables: if a terminal scrolled it away, it would show the figures without the
    answer.
    """

    lines: int | None = None

    @classmethod
    def on(cls, console: Console) -> Room:
        """Return the room on a console."""
        return cls(min(console.height, _MAX_LINES) - _AROUND if console.file.isatty() else None)

    def below(self, lines: int) -> Room:
        """Return what is left of it below ``lines`` lines."""
        return self if self.lines is None else replace(self, lines=self.lines - lines)

    def holds(self, lines: int) -> bool:
        """Return whether ``lines`` lines fit."""
        return self.lines is None or lines <= self.lines

    def rows(self, count: int, least: int, lines_of: Callable[[int], int]) -> int:
        """Return how many of ``count`` rows fit, at least ``least``; ``lines_of`` returns the lines that rows need."""
        if self.lines is None:
            return count
        while count > least and (excess := lines_of(count) - self.lines) > 0:
            count = max(count - excess, least)
        return count


_HTML_WIDTH = 130
_HTML_FORMAT = '<pre style="line-height: 1.25; white-space: pre; overflow-x: auto; font-family: monospace">{code}</pre>'


def html_of(show: Callable[[Console], None]) -> str:
    """Return the output of a function as HTML for notebooks, which looks as a terminal does, with its colours."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=_HTML_WIDTH,
        color_system="truecolor",
        force_terminal=True,
        markup=False,
        emoji=False,
        highlight=False,
    )
    show(console)
    return console.export_html(code_format=_HTML_FORMAT, inline_styles=True)
