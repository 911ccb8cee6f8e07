"""``kprof-inject compare``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import NamedTuple, TypeVar

import click

from kprof_inject.cli.console import say, table_console
from kprof_inject.cli.options import (
    PROGRAM_SETTINGS,
    at_option,
    harmless_setting,
    json_option,
    kernel_option,
    path_type,
    program_argument,
    program_setting,
    require_place_for,
    tag_option,
)
from kprof_inject.cli.reading_options import source_option
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.compare_runs import (
    ComparedRounds,
    ComparedSide,
    SideFailed,
    first_slower,
    profile_in_turn,
    require_usable,
)
from kprof_inject.pipeline.saved_launches import saved_launch_at
from kprof_inject.report.diff.change_verdicts import ChangeVerdict
from kprof_inject.report.diff.gate import crossings, parse_limit
from kprof_inject.report.diff.kernel_diff import CaptureDiff, diff_captures
from kprof_inject.report.diff.table import diff_json, print_diff_tables, print_sources
from kprof_inject.runtime.launch.launch_choice import parse_launches
from kprof_inject.runtime.program import require_startable
from kprof_inject.select.selectors import parse_selectors


@click.command("compare", context_settings=PROGRAM_SETTINGS)
@program_setting(
    "-o",
    "--output",
    "folder",
    type=path_type(),
    default="kprof_compare",
    show_default=True,
    help="The folder for both workspaces.",
)
@program_setting(
    "--python",
    "pythons",
    multiple=True,
    metavar="PYTHON",
    help="The Python interpreter of a side: first A's, then B's. A single one is B's.",
)
@program_setting(
    "--triton",
    "tritons",
    multiple=True,
    type=path_type(),
    metavar="FOLDER",
    help="A folder with another Triton, for a side as with --python: pip install --no-deps --target FOLDER "
    "triton==3.9.0",
)
@program_setting(
    "--env",
    "environment",
    multiple=True,
    metavar="NAME=VALUE",
    help="An environment variable that only B gets. Repeatable.",
)
@program_setting(
    "--arg", "arguments", multiple=True, metavar="TEXT", help="A program argument that only B gets. Repeatable."
)
@program_setting(
    "--values",
    "values_text",
    metavar="NAME=V1,V2,...",
    help="Give each side its own value, A's first, of an environment variable or of an option of the program (--NAME).",
)
@harmless_setting(
    "--bisect",
    is_flag=True,
    help="With three or more --python, --triton or --values: find the first that is slower than A, and report why.",
)
@harmless_setting("--rounds", type=click.IntRange(1, 100), default=2, show_default=True, help="Runs of each side.")
@at_option
@tag_option
@kernel_option
@harmless_setting(
    "--launches",
    default="0:20",
    show_default=True,
    metavar="SPEC",
    help="Which launches of each kernel to keep, as in profile. Several are needed to tell a change from noise.",
)
@harmless_setting("--fail-above", "limit_text", metavar="LIMIT", help="Exit with code 1 as diff does.")
@click.option(
    "--html", "html_path", type=path_type(), metavar="FILE", help="Also write the comparison as one HTML page."
)
@source_option
@json_option
@program_argument
@click.pass_context
def command(
    ctx: click.Context,
    folder: Path,
    pythons: tuple[str, ...],
    tritons: tuple[Path, ...],
    environment: tuple[str, ...],
    arguments: tuple[str, ...],
    values_text: str | None,
    bisect: bool,
    rounds: int,
    selectors: tuple[str, ...],
    kernel: str,
    launches: str,
    limit_text: str | None,
    html_path: Path | None,
    with_source: bool,
    as_json: bool,
    program: tuple[str, ...],
) -> None:
    """Profile PROGRAM under two settings in turn, and report what changed from A to B, and why.

    The sides differ in interpreter, Triton, environment or program arguments. Each has its own workspace. PROGRAM may
    be a NAME.launch, which another Triton compiles from its TTIR.

    \b
    Examples:
      kprof-inject compare --triton t360 --triton t390 -- train.py
      kprof-inject compare --values --num-stages=4,3,2,1 --bisect -- matmul.py
    """  # noqa: D301 (click reads the backspace character)
    parse_selectors(selectors)
    parse_launches(launches)
    limit = None if limit_text is None else parse_limit(limit_text)
    require_place_for(html_path, workspace=folder)
    if saved_launch_at(program, kernel) is None:
        require_startable(program)
    elif arguments or environment or values_text:
        raise click.UsageError("--arg, --env and --values are for programs; a saved launch has --triton and --python")
    settings = ComparedSettings(pythons, tritons, variables_of(environment), arguments, values_of(values_text))
    sides = settings.sides(folder, bisect=bisect)
    require_usable(sides)
    runs = ComparedRounds(rounds, selectors, kernel, launches, program)
    try:
        a, b, diff = _around_slower(sides, runs) if bisect else _compared(sides[0], sides[-1], runs)
    except SideFailed as failed:
        say(f"{failed}; its own messages are above")
        ctx.exit(failed.exit_code)
    _show(diff, (a.name, b.name), html_path, as_json=as_json)
    if with_source and not as_json:
        print_sources(diff, table_console())
    if limit is not None and (crossed := list(crossings(diff, limit, ()))):
        for crossing in crossed:
            say(f"--fail-above {100 * limit:g}%: {crossing}")
        ctx.exit(1)


class _Compared(NamedTuple):
    a: ComparedSide
    b: ComparedSide
    diff: CaptureDiff


def _around_slower(sides: Sequence[ComparedSide], runs: ComparedRounds) -> _Compared:
    """Find the first side that is slower than the first, and compare it with the side before it.

    If no side is slower, return the comparison of the first and the last.
    """
    first = sides[0]
    with_first: dict[int, _Compared] = {}

    def is_slower(number: int) -> bool:
        with_first[number] = _compared(first, sides[number], runs)
        return _is_slower(*with_first[number])

    found = first_slower(len(sides), is_slower)
    if found is None:
        say(f"no side is measurably slower than {first.name}")
        return with_first[len(sides) - 1]
    before, slower = sides[found - 1], sides[found]
    say(f"{slower.name} is the first that is slower than {first.name}; the one before it is {before.name}")
    return with_first[found] if before is first else _compared(before, slower, runs)


def _compared(a: ComparedSide, b: ComparedSide, runs: ComparedRounds) -> _Compared:
    return _Compared(a, b, diff_captures(*profile_in_turn((a, b), runs, say)))


def _show(diff: CaptureDiff, names: tuple[str, str], html_path: Path | None, *, as_json: bool) -> None:
    if html_path is not None:
        from kprof_inject.report.diff.page import write_diff_page

        write_diff_page(html_path, diff, names)
        say(f"wrote {html_path}")
    if as_json:
        click.echo(json.dumps(diff_json(diff), indent=1))
    else:
        print_diff_tables(diff, table_console())


def _is_slower(a: ComparedSide, b: ComparedSide, diff: CaptureDiff) -> bool:
    verdicts = {kernel.launch.verdict for kernel in diff.kernels}
    if ChangeVerdict.SLOWER in verdicts:
        say(f"{b.name} is slower than {a.name}")
        return True
    if ChangeVerdict.UNKNOWN in verdicts:
        say(f"cannot tell whether {b.name} is slower than {a.name}; assuming that it is not")
    else:
        say(f"{b.name} is not slower than {a.name}")
    return False


_Setting = TypeVar("_Setting")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def variables_of(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` texts; raise ``KprofError`` for a text that is not one."""
    pairs = [text.partition("=") for text in texts]
    for (name, separator, _), text in zip(pairs, texts, strict=True):
        if not separator or not _VARIABLE.fullmatch(name):
            raise KprofError(
                f"cannot read the variable {text!r}",
                hint="write --env NAME=VALUE, such as --env N=4; a program's argument is for --arg",
                exit_code=2,
            )
    return {name: value for name, _, value in pairs}


def values_of(text: str | None) -> tuple[tuple[str, str], ...]:
    """Parse ``NAME=V1,V2,...`` to a pair of name and value for each value; raise ``KprofError`` if it is not one."""
    if text is None:
        return ()
    name, _, values = text.partition("=")
    found = tuple((name, value) for value in values.split(","))
    is_option = name.startswith("-")
    if len({*found}) < max(2, len(found)) or not (is_option or _VARIABLE.fullmatch(name)):
        raise KprofError(
            f"cannot read the values {text!r}",
            hint="name at least two different ones: --values NAME=V1,V2 of an environment variable, or "
            "--values --NAME=V1,V2 of an option of the program",
            exit_code=2,
        )
    return found


@dataclass(frozen=True, slots=True)
class ComparedSettings:
    """Differences between the sides, from the options. ``variables`` and ``arguments`` are for all sides but A."""

    pythons: Sequence[str]
    tritons: Sequence[Path]
    variables: Mapping[str, str]
    arguments: tuple[str, ...]
    values: Sequence[tuple[str, str]]

    def sides(self, folder: Path, *, bisect: bool) -> list[ComparedSide]:
        """Return A and B, or for ``bisect`` all sides, in the order of the options.

        Raises a usage error if the options do not match each other.
        """
        count = max(len(self.pythons), len(self.tritons), len(self.values), 2)
        if not (self.pythons or self.tritons or self.variables or self.arguments or self.values):
            raise click.UsageError("A and B are the same: give --python, --triton, --env, --arg or --values")
        several = {"--python": self.pythons, "--triton": self.tritons, "--values": self.values}
        for option, given in several.items():
            if 1 < len(given) != count:
                raise click.UsageError(f"{option} has {len(given)} values for {count} sides")
        if self.values and self.values[0][0] in self.variables:
            raise click.UsageError(f"--env and --values both set {self.values[0][0]}")
        if count > 2 and not bisect:
            raise click.UsageError(f"there are {count} settings: give --bisect to find the first that is slower")
        if bisect and count < 3:
            raise click.UsageError("--bisect needs at least three --python or --triton, or three --values")
        return [self._side(folder, number, count) for number in range(count)]

    def _side(self, folder: Path, number: int, count: int) -> ComparedSide:
        python, triton = _setting_of(self.pythons, number, count), _setting_of(self.tritons, number, count)
        variables, arguments = (dict(self.variables), self.arguments) if number else ({}, ())
        value = self.values[number] if self.values else None
        if value and value[0].startswith("-"):
            arguments += value
        elif value:
            variables[value[0]] = value[1]
        letter = ascii_uppercase[number] if number < len(ascii_uppercase) else f"side {number + 1}"
        parts = (python, triton, value and "=".join(value))
        settings = ", ".join(str(part) for part in parts if part)
        name = f"{letter} ({settings})" if settings else letter
        return ComparedSide(
            name, folder / letter, python or sys.executable, triton and triton.absolute(), variables, arguments
        )


def _setting_of(settings: Sequence[_Setting], number: int, count: int) -> _Setting | None:
    """Return the setting of a side: a single one is the last side's, else each side has its own."""
    if len(settings) == 1:
        return settings[0] if number == count - 1 else None
    return settings[number] if number < len(settings) else None
