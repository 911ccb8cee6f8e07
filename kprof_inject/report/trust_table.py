"""The table of verdicts: how far to trust each kernel's durations, and what that rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kprof_inject.capture.costs import KernelCost
from kprof_inject.capture.origin import Origin
from kprof_inject.capture.reader import Launch
from kprof_inject.printable import printable
from kprof_inject.report.quantities import time_text
from kprof_inject.timeline.overhead import CONFIDENCE
from kprof_inject.timeline.trust import Level, Verdict, judge, median_time_ns

_COLOURS = {Level.TRUSTWORTHY: "green", Level.CAREFUL: "yellow", Level.UNRELIABLE: "red", Level.UNKNOWN: ""}

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
    table = Table(
        title=Text(f"trust: without records → with them, ± at {100 * CONFIDENCE:.0f} % confidence"),
        title_justify="left",
    )
    table.add_column("kernel", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for title in ("time", "overhead", *_BUILD_COLUMNS):
        table.add_column(title, justify="right", overflow="fold")
    for name, verdict in verdicts:
        table.add_row(Text(printable(name)), Text(verdict.level.value, _COLOURS[verdict.level]), *_figures(verdict))
    console.print(table)
    for name, verdict in verdicts:
        console.print(Text(printable(f"{name}: {verdict.text}")))


def _names(launches: Sequence[Launch]) -> list[str]:
    """The kernels' names; with the variant, and the process, where there are several."""
    kernels = [launch.kernel for launch in launches]
    names = Counter(kernel.name for kernel in kernels)
    variants = Counter(kernel.variant for kernel in kernels)
    shown = [kernel.variant if names[kernel.name] > 1 else kernel.name for kernel in kernels]
    return [
        f"{name}, {_process_name(launch.origin)}" if variants[launch.kernel.variant] > 1 else name
        for name, launch in zip(shown, launches, strict=True)
    ]


def _process_name(origin: Origin) -> str:
    return f"process {origin.pid}" if origin.rank is None else f"rank {origin.rank} (process {origin.pid})"


def _figures(verdict: Verdict) -> list[str]:
    clean, with_records = verdict.clean, verdict.with_records
    return [
        _change(time_text(median_time_ns(clean)), time_text(median_time_ns(with_records))),
        str(verdict.overhead or "-"),
        *(_change(_number(of(clean)), _number(of(with_records))) for of in _BUILD_COLUMNS.values()),
    ]


def _change(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
