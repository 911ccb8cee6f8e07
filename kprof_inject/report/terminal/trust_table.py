"""The table of verdicts: how far to trust each kernel's durations, and what that rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console

from kprof_inject.capture.costs import KernelCost
from kprof_inject.capture.origin import Origin
from kprof_inject.capture.reader import Launch
from kprof_inject.report.kernel_names import kernel_names
from kprof_inject.report.quantities import time_text
from kprof_inject.report.terminal.fitted_table import Column, print_fitted, say
from kprof_inject.timeline.overhead import CONFIDENCE
from kprof_inject.timeline.trust import Level, Verdict, judge, median_time_ns

_COLOURS = {Level.TRUSTWORTHY: "green", Level.CAREFUL: "yellow", Level.UNRELIABLE: "red"}

_BUILD_COLUMNS: dict[str, Callable[[KernelCost], int | None]] = {
    "registers": lambda cost: cost.registers,
    "spills": lambda cost: cost.spills,
    "shared bytes": lambda cost: cost.shared_bytes,
    "CTAs per SM": lambda cost: cost.ctas_per_sm,
}


def print_trust(launches: Iterable[Launch], console: Console) -> None:
    """Print a row for each kernel of each process, and under the table what each verdict rests on."""
    # A process has one folder for a variant, however often it launched it.
    judged = list({launch.kernel.folder: launch for launch in launches}.values())
    verdicts = [(name, judge(launch.kernel)) for name, launch in zip(_names(judged), judged, strict=True)]
    say(f"trust: without records → with them, ± at {100 * CONFIDENCE:.0f} % confidence", console)
    print_fitted(_layouts(verdicts), console)
    for name, verdict in verdicts:
        say(f"{name}: {verdict.text}", console)


def _layouts(verdicts: Sequence[tuple[str, Verdict]]) -> list[list[Column]]:
    """Where there is less room, without the figures of the builds that are the same with records; and in the end
    without any, for the text below the table says of each kernel which of them changed for the worse."""
    judged = [verdict for _, verdict in verdicts]
    shared = [
        Column("kernel", [name for name, _ in verdicts], name=True),
        Column(
            "verdict", [one.level.value for one in judged], [_COLOURS.get(one.level, "") for one in judged], left=True
        ),
        Column("run time", [_change(*map(time_text, map(median_time_ns, _costs(one)))) for one in judged]),
        Column("overhead", [one.figure or "-" for one in judged]),
    ]
    builds = [
        (Column(title, [_change(*map(_number, map(of, _costs(one)))) for one in judged]), of)
        for title, of in _BUILD_COLUMNS.items()
    ]
    changed = [column for column, of in builds if any(of(one.clean) != of(one.with_records) for one in judged)]
    return [[*shared, *(column for column, _ in builds)], [*shared, *changed], shared]


def _costs(verdict: Verdict) -> tuple[KernelCost, KernelCost]:
    return verdict.clean, verdict.with_records


def _names(launches: Sequence[Launch]) -> list[str]:
    """The kernels' names, as over their launches; with the process where there are several."""
    names = kernel_names(launch.kernel for launch in launches)
    processes = Counter(launch.kernel.variant for launch in launches)
    shown = [names[launch.kernel.variant] for launch in launches]
    return [
        f"{name}, {_process_name(launch.origin)}" if processes[launch.kernel.variant] > 1 else name
        for name, launch in zip(shown, launches, strict=True)
    ]


def _process_name(origin: Origin) -> str:
    return f"process {origin.pid}" if origin.rank is None else f"rank {origin.rank} (process {origin.pid})"


def _change(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
