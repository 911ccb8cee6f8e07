"""Options of the commands that show a capture: which part of it, by which names, and how it is drawn."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource

from kprof_inject.capture.redaction import LEFT_OUT, STAYS
from kprof_inject.cli.completion import complete_scopes
from kprof_inject.cli.options import Function, kernel_option, path_type
from kprof_inject.cli.parameter_types import Numbers
from kprof_inject.export.drawing.tracks import LAYOUTS
from kprof_inject.export.registry import Drawing, format_of
from kprof_inject.timeline.choice import Choice

_NUMBERS = {
    "launches": ("--launch", "launches of each kernel: numbers as the table has them, such as 0,4-7,12-"),
    "sms": ("--sm", "SMs, by number, such as 0,4-7,12-"),
    "ctas": ("--cta", "CTAs, by number"),
    "warps": ("--warp", "warps of each CTA, by number"),
}
"""By their names in ``Choice``: the option, and what its numbers are."""


def choice_options(function: Function) -> Function:
    """Which part of a capture to show. The command gets them as one ``choice``."""

    @functools.wraps(function)
    def with_choice(*args: Any, kernel: str, scopes: tuple[str, ...], **others: Any) -> Any:
        numbers = {name: others.pop(name) for name in _NUMBERS}
        kernels = () if kernel == "*" else (kernel,)
        return function(*args, choice=Choice(kernels=kernels, scopes=scopes, **numbers), **others)

    decorated: Any = click.option(
        "--scope",
        "scopes",
        multiple=True,
        metavar="GLOB",
        shell_complete=complete_scopes,
        help="Only scopes of this name, as the table has it; * and ? stand for others. Repeatable. [default: all]",
    )(with_choice)
    for name, (option, what) in reversed(_NUMBERS.items()):
        decorated = click.option(
            option, name, type=Numbers(), metavar="SPEC", help=f"Only these {what}. [default: all]"
        )(decorated)
    return cast(Function, kernel_option(decorated))


def scope_names_option(function: Function) -> Function:
    return click.option(
        "--scope-names",
        "names_path",
        type=path_type(),
        metavar="FILE",
        help="For a BUFFER: what its scope ids are called; the kernel's .ttgir with its records, or JSON.",
    )(function)


def redact_option(function: Function) -> Function:
    return click.option(
        "--redact",
        is_flag=True,
        help=f"Leave out of all that is written: {LEFT_OUT}. What stays: {STAYS}.",
    )(function)


def layout_option(function: Function) -> Function:
    return click.option(
        "--layout",
        type=click.Choice(list(LAYOUTS)),
        help="What a drawing has below each other: an SM's warps, a CTA's, or those that ran the same scope. "
        "[default: sm]",
    )(function)


def layout_for(ctx: click.Context, path: Path, layout: str | None) -> str | None:
    """The layout in which to write this file. One of the settings is for drawings alone; one of the command line is
    for this file, and whoever writes it says if it can have none. Raises ``KprofError`` if no format has its ending."""
    is_setting = ctx.get_parameter_source("layout") is ParameterSource.DEFAULT_MAP
    return None if is_setting and not isinstance(format_of(path), Drawing) else layout
