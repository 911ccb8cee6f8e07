"""Table of a program's kernels on a terminal: how much each takes, how much could be won, and what else the GPU did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, structs
from rich.console import Console

from kprof_inject.analysis.advice import trust_in
from kprof_inject.analysis.program import KernelOverview, Program
from kprof_inject.capture.measurements import GpuWork
from kprof_inject.kernel_names import without_inner_types
from kprof_inject.quantities import counted, percent, short_time
from kprof_inject.report.terminal.tables import (
    LEVEL_COLOURS,
    Column,
    Room,
    limit_colour,
    lines_of_plain,
    print_plain,
    say,
)

_MAX_KERNELS, _MIN_KERNELS = 24, 3
_FIRST_KERNELS = 3  # their part of what there is to win is said
_MAX_OTHERS, _MIN_OTHER_SHARE = 6, 0.01
_MAX_OTHERS_ON_SMALL = 2
_SMALL_LINES = 36
"""Screens with fewer lines show less of the other work."""
_MIN_SHOWN_NAME, _SPACE = 28, 2
"""Width from which the shortened name of a kernel is readable, and what is between two columns, in terminal cells."""


def lines_of_kernels(program: Program, count: int, console: Console) -> int:
    """Return how many lines the table of the first ``count`` kernels needs, with the lines below it."""
    return lines_of_plain(_layouts_for(program, count, console), console) + len(list(_below(program, count, console)))


def print_kernels(program: Program, console: Console, room: Room | None = None) -> None:
    """Print the kernels, those with most to win first; without ``room``, all of them."""
    count = len(program.kernels)
    if room is not None:
        shown = min(count, _MAX_KERNELS)
        count = room.rows(shown, min(count, _MIN_KERNELS), lambda rows: lines_of_kernels(program, rows, console))
    print_plain(_layouts_for(program, count, console), console)
    for line in _below(program, count, console):
        say(line, console)


def _below(program: Program, count: int, console: Console) -> Iterator[str]:
    kernels = program.kernels
    if hidden := kernels[count:]:
        shares = [kernel.share for kernel in hidden if kernel.share is not None]
        part = f", {percent(sum(shares))} of the time" if len(shares) == len(hidden) else ""
        yield f"{counted(len(hidden), 'kernel')} hidden{part}; see report -v"
    to_win_ns = [kernel.to_win_ns or 0.0 for kernel in kernels]
    first = to_win_ns[:_FIRST_KERNELS]
    if len(kernels) > _FIRST_KERNELS and all(first):
        yield f"the first three are {percent(sum(first) / sum(to_win_ns))} of what there is to win"
    if more := len(program.others) - len(_shown_others(program, console)):
        yield f"hidden: {counted(more, 'name')} that take less, not recorded either"


def _shown_others(program: Program, console: Console) -> Sequence[GpuWork]:
    is_small = console.file.isatty() and console.height < _SMALL_LINES
    shown = program.others[: _MAX_OTHERS_ON_SMALL if is_small else _MAX_OTHERS]
    listed_ns = sum(kernel.whole_ns for kernel in program.kernels) + sum(work.total_ns for work in program.others)
    return [work for work in shown if work.total_ns >= _MIN_OTHER_SHARE * listed_ns]


class _Row(Struct, frozen=True):
    """Row of the table; an empty cell has no figure."""

    name: str
    launches: str
    time: str
    share: str
    limit: str
    limit_style: str
    variants: str = ""
    to_win: str = ""
    by: str = ""
    longest_on: str = ""
    trust: str = ""
    trust_style: str = ""

    @classmethod
    def of_kernel(cls, kernel: KernelOverview) -> _Row:
        """Return the row of a kernel that was recorded."""
        analysis = kernel.middle.analysis
        level = trust_in(analysis).level
        return cls(
            name=kernel.name,
            launches=str(kernel.known_launches),
            time=short_time(kernel.time_ns),
            share="" if kernel.share is None else percent(kernel.share),
            limit=analysis.limit.name,
            limit_style=limit_colour(analysis.limit),
            variants=str(kernel.variants),
            to_win="?" if kernel.to_win_ns is None else short_time(kernel.to_win_ns),
            by=kernel.gain.by,
            longest_on=_longest_rank(kernel.time_by_rank_ns),
            trust=level.value,
            trust_style=LEVEL_COLOURS.get(level, "yellow"),
        )

    @classmethod
    def of_work(cls, work: GpuWork, whole_ns: float | None) -> _Row:
        """Return the row of other work; all of the program's takes ``whole_ns``."""
        return cls(
            name=without_inner_types(work.name),
            launches=str(work.count),
            time=short_time(work.total_ns / max(work.count, 1)),
            share=percent(work.total_ns / whole_ns) if whole_ns else "",
            limit="not recorded" if work.kind == "kernel" else work.kind,
            limit_style="dim",
        )


def _longest_rank(times_ns: Mapping[int, float]) -> str:
    if not times_ns:
        return ""
    rank = max(times_ns, key=times_ns.__getitem__)
    return f"{rank}: {short_time(times_ns[rank])}"


def _layouts_for(program: Program, count: int, console: Console) -> list[list[Column]]:
    """Return layouts for less and less room; on a screen, the widest with readable names, which take one line each."""
    others = [_Row.of_work(work, program.whole_ns) for work in _shown_others(program, console)]
    layouts = _kernel_layouts([*map(_Row.of_kernel, program.kernels[:count]), *others], program)
    if not console.file.isatty():
        return layouts
    for name, *figures in layouts:
        room = console.width - sum(column.width + _SPACE for column in figures)
        if room >= min(name.width, _MIN_SHOWN_NAME):
            break
    cells = [middle_omitted(cell, max(room, _MIN_SHOWN_NAME // 2)) for cell in name.cells]
    return [[structs.replace(name, cells=cells), *figures]]


def middle_omitted(name: str, width: int) -> str:
    """Return a name of at most ``width`` letters: both ends of a generated name tell it from others."""
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def _kernel_layouts(rows: Sequence[_Row], program: Program) -> list[list[Column]]:
    name = Column("kernel", [row.name for row in rows], name=True)
    has_variants = any(kernel.variants > 1 for kernel in program.kernels)
    variants = [Column("variants", [row.variants for row in rows])] if has_variants else []
    launches = Column("launches", [row.launches for row in rows])
    time = Column("span", [row.time for row in rows])
    is_of_ranks = any(row.longest_on for row in rows)
    longest_on = [Column("longest on rank", [row.longest_on for row in rows])] if is_of_ranks else []
    share = [Column("share", [row.share for row in rows])] if any(row.share for row in rows) else []
    to_win = Column("to win", [row.to_win for row in rows])
    how = Column("by", [row.by for row in rows], left=True)
    limit = Column("limit", [row.limit for row in rows], [row.limit_style for row in rows], left=True)
    trust = Column("trust", [row.trust for row in rows], [row.trust_style for row in rows], left=True)
    return [
        [name, *variants, launches, time, *longest_on, *share, to_win, how, limit, trust],
        [name, time, *share, to_win, how, limit, trust],
        [name, *share, to_win, how, limit, trust],
        [name, *share, to_win, how, limit],
        [name, *share, to_win, limit],
    ]
