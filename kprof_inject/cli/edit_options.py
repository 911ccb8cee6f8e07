"""Options of the commands that try edits, and how the results are printed."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, cast

import click

from kprof_inject.capture.edits import MAX_COMBINATIONS, Constant, EditsRecord, max_combinations
from kprof_inject.capture.encoding import json_text
from kprof_inject.cli.console import say, table_console
from kprof_inject.cli.options import Function, harmless_setting
from kprof_inject.errors import KprofError, Position
from kprof_inject.pipeline.edit_trials import TryChoice
from kprof_inject.report.experiments import tried_values
from kprof_inject.report.terminal.experiment_tables import print_edits
from kprof_inject.runtime.experiments.edits.kinds import KINDS, parse_edits
from kprof_inject.workspace import Workspace


def try_options(function: Function) -> Function:
    """Add the options of what to try; the command gets them as one ``choice``."""

    @functools.wraps(function)
    def with_choice(
        *args: Any,
        seconds: float,
        tolerance: float | None,
        edits: tuple[str, ...],
        values: tuple[str, ...],
        grid: str,
        **others: Any,
    ) -> Any:
        choice = TryChoice(
            seconds=seconds,
            tolerance=tolerance,
            edits=tuple(map(parse_edits, edits)),
            values=parse_values(values),
            grid=grid,
        )
        return function(*args, choice=choice, **others)

    decorated: Any = with_choice
    for option in (
        harmless_setting(
            "--edit",
            "edits",
            multiple=True,
            metavar="NAME=VALUE",
            help=f"Try this edit, not those that the findings propose: {', '.join(KINDS)}. NAME=VALUE,NAME=VALUE are "
            "tried together, and so are several options. Repeatable.",
        ),
        harmless_setting(
            _VALUES,
            "values",
            multiple=True,
            metavar="NAME=VALUE,…",
            help="Also try these values of a compile-time constant of the kernel, such as BLOCK_M=64,128. Those of "
            f"several constants are combined, at most {MAX_COMBINATIONS} times. Repeatable.",
        ),
        harmless_setting(
            "--grid",
            default="",
            metavar="EXPRESSION",
            help="Grid of the launch with other values, if the program gives no function for it, such as "
            "'cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)': of its integer arguments and constants.",
        ),
        harmless_setting(
            "--tolerance",
            type=click.FloatRange(min=0, max=1),
            metavar="PART",
            help="Largest difference of floating-point results, as a part of the largest in the same memory. [default: "
            "0.01 for 16 bits, 0.0001 for 32]",
        ),
        harmless_setting(
            "--seconds",
            type=click.FloatRange(min=0.1, max=3600),
            default=TryChoice().seconds,
            show_default=True,
            help="Time limit per kernel for measuring. Compiling takes its own time.",
        ),
    ):
        decorated = option(decorated)
    return cast(Function, decorated)


_VALUES = "--values"
_FORM = "NAME=VALUE,VALUE: integers, True and False; such as BLOCK_M=64,128"
_WORDS = {"True": True, "False": False}


def parse_values(texts: Iterable[str]) -> dict[str, tuple[Constant, ...]]:
    """Return the values of each compile-time constant. Raises ``KprofError``."""
    found: dict[str, tuple[Constant, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not name.isidentifier() or not equals:
            raise _wrong_values(text, 0, f"cannot read the values {text!r}")
        parsed: list[Constant] = []
        offset = len(name) + 1
        for word in values.split(","):
            if word not in _WORDS and not (word.isascii() and word.removeprefix("-").isdigit()):
                raise _wrong_values(text, offset, f"{word!r} is no value of a constant")
            parsed.append(_WORDS[word] if word in _WORDS else int(word))
            offset += len(word) + 1
        found[name] = (*found.get(name, ()), *parsed)
    if max_combinations(found) > MAX_COMBINATIONS:
        raise KprofError(
            f"{_VALUES} makes {max_combinations(found)} combinations, and the limit is {MAX_COMBINATIONS}",
            hint="name fewer values, or fewer constants at once",
            exit_code=2,
        )
    return found


def _wrong_values(text: str, offset: int, what: str) -> KprofError:
    return KprofError(what, where=Position(_VALUES, 1, offset + 1, text), hint=_FORM, exit_code=2)


def print_tried(workspace: Workspace, records: Sequence[EditsRecord], *, as_json: bool) -> None:
    """Print the results of ``try``."""
    tried = [(record, workspace.applied_edits(record.variant)) for record in records]
    if as_json:
        click.echo(json_text(tried_values(tried)))
        return
    print_edits(tried, table_console())
    folders = [str(workspace.edits_folder(record.variant)) for record, applied in tried if applied]
    if folders:
        say(f"wrote {', '.join(folders)}")
