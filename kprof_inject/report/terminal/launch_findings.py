"""What limits a launch, as it stands right under its header."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table

from kprof_inject.report.launch_report import LaunchReport
from kprof_inject.report.quantities import percent
from kprof_inject.report.terminal.fitted_table import shown

_HEALTHY, _DOUBTFUL = "green", "yellow"


def findings_shown(report: LaunchReport, console: Console) -> RenderableType:
    """The findings, numbered, that with the largest share first, or that there are none; and what was not judged. None
    are good news only if every rule could judge."""
    doubts = [shown(f"  {doubt}", console, _DOUBTFUL) for doubt in report.doubts]
    if report.findings:
        return Group(shown("findings:", console), _table(report, console), *doubts)
    if not doubts:
        return shown("findings: none", console, _HEALTHY)
    what = "findings: none, but not every rule could judge" if report.unjudged else "findings: none"
    return Group(shown(what, console, _DOUBTFUL), *doubts)


def _table(report: LaunchReport, console: Console) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, finding in enumerate(report.findings, 1):
        share = shown(percent(finding.share), console, "bold")
        table.add_row(f"  {number}.", share, shown(finding.text, console))
        table.add_row("", "next:", shown(finding.advice, console))
    return table
