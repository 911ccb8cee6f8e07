"""HTML for notebooks that looks as a terminal does, with its colours."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

from kprof_inject.analysis.program import Report
from kprof_inject.report.terminal.evidence_tables import print_units
from kprof_inject.report.terminal.screens import print_answers
from kprof_inject.report.terminal.tables import say

_WIDTH = 130
_FORMAT = '<pre style="line-height: 1.25; white-space: pre; overflow-x: auto; font-family: monospace">{code}</pre>'


def answers_html(report: Report) -> str:
    """Return the output of ``report``, and for the launch that it answers for a bar for each unit."""

    def show(console: Console) -> None:
        print_answers(report, console)
        units = report.program.kernels[0].middle.analysis.units
        if units:
            say("", console)
            print_units(units, console)

    return html_of(show)


def html_of(show: Callable[[Console], None]) -> str:
    """Return the output of a function as HTML."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=_WIDTH,
        color_system="truecolor",
        force_terminal=True,
        markup=False,
        emoji=False,
        highlight=False,
    )
    show(console)
    return console.export_html(code_format=_FORMAT, inline_styles=True)
