"""What a terminal shows of a capture: first what a reader must know, and all the rest on request."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console

from kprof_inject.analysis.launch_report import LaunchReport
from kprof_inject.analysis.overview import KernelOverview, overview
from kprof_inject.capture.model import place_names
from kprof_inject.report.kernel_names import kernel_names
from kprof_inject.report.terminal.first_screen import print_answer, print_first_screen
from kprof_inject.report.terminal.launch_details import print_details
from kprof_inject.report.terminal.overview_table import print_kernels, print_launches
from kprof_inject.report.terminal.tables import print_trust, say


def print_answers(reports: Sequence[LaunchReport], console: Console) -> None:
    """One launch's first screen; of several, which of them matter, and the answer for the one that matters most."""
    named = _Named(reports)
    kernels = overview(reports)
    if len(kernels) > 1:
        _print_kernels(kernels, console)
        print_answer(kernels[0].typical, *named.of(kernels[0].typical), console)
        return
    typical = kernels[0].typical
    print_first_screen(typical, *named.of(typical), console)
    if len(reports) > 1:
        _print_launches(reports, console)


def answers_text(reports: Sequence[LaunchReport], width: int) -> str:
    """The same as a text, without colours."""
    out = io.StringIO()
    print_answers(reports, Console(file=out, width=width, color_system=None, markup=False, emoji=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def print_all(reports: Sequence[LaunchReport], console: Console) -> None:
    """All that is known of each launch, and what the verdicts rest on."""
    named = _Named(reports)
    kernels = overview(reports)
    if len(kernels) > 1:
        _print_kernels(kernels, console)
    elif len(reports) > 1:
        _print_launches(reports, console)
    for report in reports:
        print_first_screen(report, *named.of(report), console)
        print_details(report, console)
    print_trust([(report.launch, report.verdict) for report in reports], console)


def _print_kernels(kernels: Sequence[KernelOverview], console: Console) -> None:
    print_kernels(kernels, console)
    say("", console)


def _print_launches(reports: Sequence[LaunchReport], console: Console) -> None:
    say("", console)
    print_launches(reports, place_names(report.summary.place for report in reports), console)


class _Named:
    """What to call each launch's kernel beside the others, and where it ran."""

    def __init__(self, reports: Sequence[LaunchReport]) -> None:
        self._kernels = kernel_names(report.launch.kernel for report in reports)
        self._places = place_names(report.summary.place for report in reports)

    def of(self, report: LaunchReport) -> tuple[str, str]:
        return self._kernels[report.summary.variant], self._places[report.summary.place]
