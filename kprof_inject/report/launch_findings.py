"""What limits a launch, as it stands right under its header."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kprof_inject.printable import printable
from kprof_inject.report.launch_report import LaunchReport
from kprof_inject.report.quantities import percent


def findings_shown(report: LaunchReport) -> RenderableType:
    """The findings, numbered, that with the largest share first; or that there are none."""
    if not report.findings:
        return Text("; ".join(["findings: none", *report.doubts]))
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, finding in enumerate(report.findings, 1):
        table.add_row(f"  {number}.", Text(percent(finding.share), "bold"), Text(printable(finding.text)))
        table.add_row("", "next:", Text(printable(finding.advice)))
    return Group(Text(" ".join(["findings:", "; ".join(report.doubts)]).rstrip()), table)
