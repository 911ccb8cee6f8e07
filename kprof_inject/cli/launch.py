"""``kprof-inject launch``."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import click
from msgspec.structs import asdict
from rich.table import Table

from kprof_inject.capture.saved_launch import SavedLaunch, read_saved_launch
from kprof_inject.capture.scrubbing import scrub
from kprof_inject.cli.console import say, table_console, write_result
from kprof_inject.cli.options import harmless_setting, json_option, path_type, require_place_for
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.own_processes import do_tasks
from kprof_inject.quantities import counted, size_text, time_text
from kprof_inject.report.launch_contents import argument_rows, l2_in_words, summary_of
from kprof_inject.report.launch_script import launch_script
from kprof_inject.runtime.experiments.tasks import TimedLaunch, TimeLaunch

_launch_argument = click.argument("folder", metavar="NAME.launch", type=path_type())


@click.group("launch")
def command() -> None:
    """Show, run, share or scrub a saved launch. "profile --keep-launches" saves launches."""


@command.command("info")
@_launch_argument
@json_option
def info(folder: Path, as_json: bool) -> None:
    """Show what is in a saved launch: kernel, arguments, memory, and where it comes from."""
    saved = read_saved_launch(folder)
    if as_json:
        click.echo(json.dumps(summary_of(saved), indent=1))
        return
    _print_info(saved)


def _print_info(saved: SavedLaunch) -> None:
    console = table_console()
    for name, text in summary_of(saved)["facts"].items():
        console.print(f"{name}: {text}", highlight=False, markup=False)
    table = Table(box=None, pad_edge=False)
    for column in ("argument", "type", "value", "memory"):
        table.add_column(column)
    for row in argument_rows(saved):
        table.add_row(row.name, row.kind, row.value, row.memory)
    console.print(table)


@command.command("run")
@_launch_argument
@harmless_setting(
    "--times", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How often to launch it."
)
@json_option
@click.pass_context
def run(ctx: click.Context, folder: Path, times: int, as_json: bool) -> None:
    """Launch a saved launch again, at the same addresses, time it, and compare its results with the program's."""
    saved = read_saved_launch(folder)
    (result,) = do_tasks([TimeLaunch(launch=str(folder.resolve()), times=times)])
    if result.timed is None:
        raise KprofError(f"{saved.record.name} cannot be launched again: {result.refusal}")
    if as_json:
        click.echo(json.dumps(asdict(result.timed), indent=1))
    else:
        for line in _lines_of(saved, result.timed):
            click.echo(line)
    ctx.exit(1 if result.timed.differences and result.timed.is_repeatable else 0)


def _lines_of(saved: SavedLaunch, timed: TimedLaunch) -> list[str]:
    fastest, middle = min(timed.times_ns), median(timed.times_ns)
    lines = [
        f"{saved.record.name}: {time_text(middle)} (median of {counted(len(timed.times_ns), 'launch')}, "
        f"fastest {time_text(fastest)})"
    ]
    if l2 := l2_in_words(timed.l2):
        lines[0] += f", {l2}"
    if program_ns := saved.record.clean.times_ns:
        lines.append(f"in the program: {time_text(median(program_ns))} ({counted(len(program_ns), 'launch')})")
    if not timed.is_compared:
        lines.append("results: not compared, because the program's are unknown")
    elif not timed.differences:
        lines.append("results: the same as the program's")
    elif not timed.is_repeatable:
        lines.append("results: they differ from launch to launch (atomics in another order, or a race)")
    else:
        lines.append("results: other than the program's in:")
    lines += [f"  {difference}" for difference in timed.differences]
    return lines


@command.command("script")
@_launch_argument
@click.option("-o", "--output", type=path_type(), metavar="FILE.py", help="Where to write it. [default: stdout]")
def script(folder: Path, output: Path | None) -> None:
    """Write a standalone Python script of a saved launch, which needs nothing but torch and Triton.

    Floating-point data is noise of the same magnitude; integers are in the script.
    """
    require_place_for(output)
    write_result(output, launch_script(read_saved_launch(folder)))


@command.command("scrub")
@_launch_argument
@click.option(
    "-o",
    "--output",
    type=path_type(),
    metavar="OTHER.launch",
    required=True,
    help="The folder to write, which must not exist.",
)
@click.option("--bytes", "also_bytes", is_flag=True, help="Also replace ranges of 8-bit integers, such as weights.")
def scrub_command(folder: Path, output: Path, also_bytes: bool) -> None:
    """Write a copy of a saved launch in which noise replaces the floating-point data of its arguments.

    The noise has the same powers of two, signs, zeros, infinities and NaN. Integers stay: they decide control flow and
    addresses. So do memory to which only other memory points, scalar arguments, and the kernel's source. The command
    says how much it kept.
    """
    require_place_for(output)
    saved = read_saved_launch(folder)
    changed = scrub(saved, output, also_integers=also_bytes)
    kept = [memory for memory in saved.record.memory if memory not in changed]
    say(f"wrote {output}: {size_text(sum(memory.size_bytes for memory in changed))} is noise")
    if kept:
        kinds = sorted({memory.element or "unknown type" for memory in kept})
        say(f"kept {size_text(sum(memory.size_bytes for memory in kept))} of {', '.join(kinds)}")
