"""What a terminal shows of many launches: a row for each kernel, or for each launch of the only one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from kprof_inject.analysis.answer import trust_in
from kprof_inject.analysis.launch_report import LaunchReport
from kprof_inject.analysis.overview import KernelOverview
from kprof_inject.capture.model import Place
from kprof_inject.quantities import counted, percent, short_time
from kprof_inject.report.terminal.tables import LEVEL_COLOURS, Column, print_plain, say

_MOST_KERNELS = 24
_MOST_LAUNCHES = 12


def print_kernels(kernels: Sequence[KernelOverview], console: Console) -> None:
    """The kernel that takes most of the time stands first."""
    rows = kernels[:_MOST_KERNELS]
    trusts = [trust_in(kernel.typical) for kernel in rows]
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
        Column("limit", [kernel.typical.limit.name for kernel in rows], left=True),
        Column(
            "trust",
            [trust.level.value for trust in trusts],
            [LEVEL_COLOURS.get(trust.level, "yellow") for trust in trusts],
            left=True,
        ),
    ]
    print_plain([columns], console)
    if len(kernels) > len(rows):
        say(f"{counted(len(kernels) - len(rows), 'kernel')} more: report --json has all", console)


def print_launches(reports: Sequence[LaunchReport], places: Mapping[Place, str], console: Console) -> None:
    """The slowest launch stands first."""
    rows = sorted(reports, key=lambda report: -report.summary.duration_ns)[:_MOST_LAUNCHES]
    columns = [Column("launch", [f"#{report.summary.launch}" for report in rows])]
    if any(places.values()):
        columns.append(Column("where", [places[report.summary.place] for report in rows], name=True))
    columns += [
        Column("time", [short_time(report.summary.duration_ns) for report in rows]),
        Column("MHz", [f"{report.summary.clock_mhz:.0f}" for report in rows]),
        Column("limit", [report.limit.name for report in rows], left=True),
        Column("findings", [", ".join(finding.rule for finding in report.findings) for report in rows], name=True),
    ]
    print_plain([columns], console)
    if len(reports) > len(rows):
        say(f"{counted(len(reports) - len(rows), 'launch')} more took less: report --json has all", console)
