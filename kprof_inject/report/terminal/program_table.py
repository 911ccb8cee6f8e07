"""Table of a program's kernels on a terminal: how much each takes, how much could be won, and what else the GPU did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs
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


def _kernel_row(kernel: KernelOverview) -> dict[str, str]:
    analysis = kernel.middle.analysis
    level = trust_in(analysis).level
    by_rank_ns = kernel.time_by_rank_ns
    rank = max(by_rank_ns, key=by_rank_ns.__getitem__) if by_rank_ns else None
    return {
        "kernel": kernel.name,
        "variants": str(kernel.variants),
        "launches": str(kernel.known_launches),
        "span": short_time(kernel.time_ns),
        "longest on rank": "" if rank is None else f"{rank}: {short_time(by_rank_ns[rank])}",
        "share": "" if kernel.share is None else percent(kernel.share),
        "to win": "?" if kernel.to_win_ns is None else short_time(kernel.to_win_ns),
        "by": kernel.gain.by,
        "limit": analysis.limit.name,
        "trust": level.value,
        _LIMIT_STYLE: limit_colour(analysis.limit),
        _TRUST_STYLE: LEVEL_COLOURS.get(level, "yellow"),
    }


def _work_row(work: GpuWork, whole_ns: float | None) -> dict[str, str]:
    return {
        "kernel": without_inner_types(work.name),
        "launches": str(work.count),
        "span": short_time(work.total_ns / max(work.count, 1)),
        "share": percent(work.total_ns / whole_ns) if whole_ns else "",
        "limit": "not recorded" if work.kind == "kernel" else work.kind,
        _LIMIT_STYLE: "dim",
    }


_LIMIT_STYLE, _TRUST_STYLE = "limit style", "trust style"


def _layouts_for(program: Program, count: int, console: Console) -> list[list[Column]]:
    # For less and less room; on a screen, the widest with readable names, which take one line each.
    others = [_work_row(work, program.whole_ns) for work in _shown_others(program, console)]
    layouts = _kernel_layouts([*map(_kernel_row, program.kernels[:count]), *others], program)
    if not console.file.isatty():
        return layouts
    for name, *figures in layouts:
        room = console.width - sum(column.width + _SPACE for column in figures)
        if room >= min(name.width, _MIN_SHOWN_NAME):
            break
    cells = [_middle_omitted(cell, max(room, _MIN_SHOWN_NAME // 2)) for cell in name.cells]
    return [[structs.replace(name, cells=cells), *figures]]


def _middle_omitted(name: str, width: int) -> str:
    # Both ends of a generated name tell it from others.
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def _kernel_layouts(rows: Sequence[Mapping[str, str]], program: Program) -> list[list[Column]]:
    def column(heading: str, style: str = "", **kinds: bool) -> Column:
        styles = [row.get(style, "") for row in rows] if style else ()
        return Column(heading, [row.get(heading, "") for row in rows], styles, **kinds)

    def if_any(heading: str) -> list[Column]:
        return [column(heading)] if any(row.get(heading) for row in rows) else []

    name, launches, time, to_win = column("kernel", name=True), column("launches"), column("span"), column("to win")
    variants = [column("variants")] if any(kernel.variants > 1 for kernel in program.kernels) else []
    share, how, limit = if_any("share"), column("by", left=True), column("limit", _LIMIT_STYLE, left=True)
    trust = column("trust", _TRUST_STYLE, left=True)
    return [
        [name, *variants, launches, time, *if_any("longest on rank"), *share, to_win, how, limit, trust],
        [name, time, *share, to_win, how, limit, trust],
        [name, *share, to_win, how, limit, trust],
        [name, *share, to_win, how, limit],
        [name, *share, to_win, limit],
    ]
