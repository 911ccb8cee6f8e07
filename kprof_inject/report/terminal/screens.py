"""What a terminal shows of a capture: first what a reader must know, and all the rest on request."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial

from rich.console import Console

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_overview import KernelOverview, overview
from kprof_inject.capture.model import place_names
from kprof_inject.report.kernel_names import kernel_names
from kprof_inject.report.terminal.first_screen import answer_lines, print_first_screen, print_lines
from kprof_inject.report.terminal.launch_details import print_details
from kprof_inject.report.terminal.overview_table import kernel_lines, print_kernels, print_launches, say_launches
from kprof_inject.report.terminal.tables import Room, print_trust, say


def print_answers(reports: Sequence[LaunchAnalysis], console: Console) -> None:
    """One launch's first screen; of several, which of them matter, and the answer for the one that matters most. On a
    terminal, tables have as many rows as it has room for, so that the answer is seen with them."""
    named, kernels, room = _Named(reports), overview(reports), Room.on(console)
    typical = kernels[0].middle
    if len(kernels) > 1:
        _print_kernels_and_answer(kernels, named, console, room)
        return
    if len(reports) > 1:
        say_launches(kernels[0], console)
        # And one below it, for the slowest of them.
        room = room.below(1 + 1)
    room = print_first_screen(typical, *named.of(typical), console, room)
    if len(reports) > 1:
        print_launches(reports, named.places, named.kernels, console, room.below(-1))


def _print_kernels_and_answer(kernels: Sequence[KernelOverview], named: _Named, console: Console, room: Room) -> None:
    """The table stands above the answer, and gets the room that this leaves."""
    typical = kernels[0].middle
    answer = partial(answer_lines, typical, *named.of(typical), console)
    table_lines = kernel_lines(kernels, len(kernels), console) if room.lines is not None else 0
    lines = answer()
    if not room.holds(table_lines + 1 + len(lines)):
        lines = answer(with_reasons=False)
    print_kernels(kernels, console, room.below(1 + len(lines)))
    say("", console)
    print_lines(lines, console)


def answers_text(reports: Sequence[LaunchAnalysis], width: int) -> str:
    """The same as a text, without colours."""
    out = io.StringIO()
    print_answers(reports, Console(file=out, width=width, color_system=None, markup=False, emoji=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def print_all(reports: Sequence[LaunchAnalysis], console: Console) -> None:
    """All that is known of each launch, and what the verdicts rest on. The kernel that takes most of the time stands
    first, and of its launches the slowest."""
    named, kernels = _Named(reports), overview(reports)
    if len(kernels) > 1:
        print_kernels(kernels, console)
        say("", console)
    elif len(reports) > 1:
        print_launches(reports, named.places, named.kernels, console)
    ordered = [report for kernel in kernels for report in kernel.slowest_first]
    for report in ordered:
        print_first_screen(report, *named.of(report), console, Room(rest="below"))
        print_details(report, console)
    print_trust([(report.launch, report.verdict) for report in ordered], console)


class _Named:
    """What to call each launch's kernel beside the others, and where it ran."""

    def __init__(self, reports: Sequence[LaunchAnalysis]) -> None:
        self.kernels = kernel_names(report.launch.kernel for report in reports)
        self.places = place_names(report.launch.place for report in reports)

    def of(self, report: LaunchAnalysis) -> tuple[str, str]:
        return self.kernels[report.launch.kernel.variant], self.places[report.launch.place]
