"""What limits a launch, as it stands right under its header."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kprof_inject.printable import printable
from kprof_inject.report.launch_report import LaunchReport
from kprof_inject.report.quantities import percent
from kprof_inject.timeline.trust import Level

_LOST = "records were lost, so that warps, waits and phases tell nothing of the rest: --fit keeps them all"
_UNTIMED = "no timer was read, so that CTAs and SMs tell nothing"
_UNRELIABLE = "the records disturb this kernel so much that it may be limited by something else without them"


def findings_shown(report: LaunchReport) -> RenderableType:
    """The findings, numbered, that with the largest share first; or that there are none."""
    doubts = [text for text, applies in _DOUBTS.items() if applies(report)]
    if not report.findings:
        return Text("; ".join(["findings: none", *doubts]))
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, finding in enumerate(report.findings, 1):
        table.add_row(f"  {number}.", Text(percent(finding.share), "bold"), Text(printable(finding.text)))
        table.add_row("", "next:", Text(printable(finding.advice)))
    return Group(Text(" ".join(["findings:", "; ".join(doubts)]).rstrip()), table)


_DOUBTS: dict[str, Callable[[LaunchReport], bool]] = {
    _LOST: lambda report: report.summary.records_lost > 0,
    _UNTIMED: lambda report: report.summary.waves is None and report.summary.ctas > 0,
    _UNRELIABLE: lambda report: report.verdict.level is Level.UNRELIABLE,
}
