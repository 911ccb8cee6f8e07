"""What a terminal shows of many launches: a row for each kernel, or for each launch of the only one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from kprof_inject.analysis.advice import trust_in
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_overview import KernelOverview
from kprof_inject.capture.model import Place
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

_MOST_KERNELS, _LEAST_KERNELS = 24, 5
_MOST_LAUNCHES, _LEAST_LAUNCHES = 10, 3


def kernel_lines(kernels: Sequence[KernelOverview], count: int, console: Console) -> int:
    """How many lines ``print_kernels`` takes for so many of them."""
    return lines_of_plain([_kernel_columns(kernels[:count])], console) + (count < len(kernels))


def print_kernels(kernels: Sequence[KernelOverview], console: Console, room: Room | None = None) -> None:
    """The kernel that takes most of the time stands first. Without ``room``, all of them."""
    count = len(kernels)
    if room is not None:
        most = min(count, _MOST_KERNELS)
        count = room.rows(most, min(count, _LEAST_KERNELS), lambda rows: kernel_lines(kernels, rows, console))
    print_plain([_kernel_columns(kernels[:count])], console)
    if others := kernels[count:]:
        shares = [kernel.share for kernel in others if kernel.share is not None]
        part = f", {percent(sum(shares))} of all" if len(shares) == len(others) else ""
        say(f"{counted(len(others), 'kernel')} more{part}: report -v", console)


def _kernel_columns(rows: Sequence[KernelOverview]) -> list[Column]:
    trusts = [trust_in(kernel.middle) for kernel in rows]
    columns = [Column("kernel", [kernel.name for kernel in rows], name=True)]
    if any(kernel.variants > 1 for kernel in rows):
        columns.append(Column("variants", [str(kernel.variants) for kernel in rows]))
    columns += [
        Column("launches", [str(kernel.known_launches) for kernel in rows]),
        Column("time", [short_time(kernel.time_ns) for kernel in rows]),
    ]
    if any(kernel.share is not None for kernel in rows):
        columns.append(Column("of all", ["" if one.share is None else percent(one.share) for one in rows]))
    columns += [
        Column("limit", *_limits([kernel.middle for kernel in rows]), left=True),
        Column(
            "trust",
            [trust.level.value for trust in trusts],
            [LEVEL_COLOURS.get(trust.level, "yellow") for trust in trusts],
            left=True,
        ),
    ]
    return columns


def _limits(reports: Sequence[LaunchAnalysis]) -> tuple[list[str], list[str]]:
    """Their names, and their colours."""
    return [report.limit.name for report in reports], [limit_colour(report.limit) for report in reports]


def say_launches(kernel: KernelOverview, console: Console) -> None:
    """How much the launches of the only kernel differ, and that the middle one is shown."""
    times = [report.duration_ns for report in kernel.reports]
    variants = f" in {kernel.variants} variants" if kernel.variants > 1 else ""
    which = f"#{kernel.middle.launch.index}, the median one"
    if kernel.variants > 1:
        which += " of the variant that takes most time"
    span = f"{short_time(min(times))} to {short_time(max(times))}"
    say(f"{counted(len(times), 'launch')}{variants}: {span}; below: {which}", console)


def print_launches(
    reports: Sequence[LaunchAnalysis],
    places: Mapping[Place, str],
    names: Mapping[str, str],
    console: Console,
    room: Room | None = None,
) -> None:
    """The slowest launch stands first. ``names`` are those of the variants. Without ``room``, all of them; where there
    is too little, how to see them."""
    ordered = sorted(reports, key=lambda report: -report.duration_ns)
    count = len(ordered)

    def lines_of(rows: int) -> int:
        return 1 + lines_of_plain([_launch_columns(ordered[:rows], places, names)], console) + (rows < len(ordered))

    if room is not None:
        least = min(count, _LEAST_LAUNCHES)
        count = room.rows(min(count, _MOST_LAUNCHES), least, lines_of)
        if not room.holds(lines_of(count)):
            say(f"{_slowest(ordered)}all launches: report -v", console)
            return
    say("", console)
    print_plain([_launch_columns(ordered[:count], places, names)], console)
    if count < len(ordered):
        say(f"{counted(len(ordered) - count, 'launch')} more, which took less: report -v", console)


def _slowest(ordered: Sequence[LaunchAnalysis]) -> str:
    """How to see the first; empty where its number is that of others too, of another variant or process."""
    number = ordered[0].launch.index
    if [report.launch.index for report in ordered].count(number) > 1:
        return ""
    return f"#{number} takes longest: report --launch {number}; "


def _launch_columns(
    chosen: Sequence[LaunchAnalysis], places: Mapping[Place, str], names: Mapping[str, str]
) -> list[Column]:
    rows = list(chosen)
    columns = [Column("launch", [f"#{report.summary.launch}" for report in rows])]
    if len(names) > 1:
        columns.append(Column("variant", [names[report.summary.variant] for report in rows], name=True))
    if any(places.values()):
        columns.append(Column("where", [places[report.summary.place] for report in rows], name=True))
    columns += [
        Column("time", [short_time(report.summary.duration_ns) for report in rows]),
        Column("MHz", [f"{report.summary.clock_mhz:.0f}" for report in rows]),
        Column("limit", *_limits(rows), left=True),
        Column("findings", [", ".join(finding.rule for finding in report.findings) for report in rows], name=True),
    ]
    return columns
