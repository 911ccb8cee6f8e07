"""Options of the commands that read captures: which part of one, what a buffer does not tell, and how to show it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from kprof_inject.capture.foreign.profilers import PROFILERS
from kprof_inject.capture.foreign_buffer import BufferDescription, parse_names
from kprof_inject.capture.redaction import LEFT_OUT, STAYS
from kprof_inject.cli.options import Function, HarmlessSetting, ProgramSetting, kernel_option, offered, path_type
from kprof_inject.export.drawing import LAYOUT_NAMES
from kprof_inject.export.formats import ENDINGS, DrawingFormat, TraceFile, format_of
from kprof_inject.export.hooks import Hook
from kprof_inject.timeline.choice import Choice, NumberSet

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _OfNumbers = click.ParamType[NumberSet]
else:
    # Older versions of Click have it without a parameter.
    _OfNumbers = click.ParamType


class Numbers(_OfNumbers):
    """A ``NumberSet``, from what the user writes or from a single number."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NumberSet:
        """Raises ``KprofError`` that points into the value."""
        if isinstance(value, NumberSet):
            return value
        return NumberSet.parse(str(value), param.opts[0] if param else self.name)


def complete_scopes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of scopes of every kernel in the capture on the command line; nothing where there is none."""
    return offered(_scopes_of, ctx, incomplete)


def _scopes_of(place: Path) -> list[str]:
    from kprof_inject.pipeline.captures import open_capture

    tables = [launch.kernel.scopes for launch in open_capture(place).launches]
    return list(dict.fromkeys(scope.name for table in tables for scope in table.scopes))


def trace_option(function: Function) -> Function:
    return click.option(
        "--trace",
        "trace_path",
        cls=ProgramSetting,
        type=path_type(),
        default=None,
        help=f"The trace file; {ENDINGS}. [default: trace.json in the workspace]",
    )(function)


_NUMBERS = {
    "launches": ("--launch", "launches of each kernel, by number, such as 0,4-7,12-"),
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
        cls=HarmlessSetting,
        multiple=True,
        metavar="GLOB",
        shell_complete=complete_scopes,
        help="Only scopes with this name, as in the table; * and ? are wildcards. Repeatable. [default: all]",
    )(with_choice)
    for name in reversed(_NUMBERS):
        decorated = _number_option(name)(decorated)
    return cast(Function, kernel_option(decorated))


def launch_options(function: Function) -> Function:
    """Which kernels and launches to show. The command gets them as one ``choice``."""

    @functools.wraps(function)
    def with_choice(*args: Any, kernel: str, launches: NumberSet | None, **others: Any) -> Any:
        choice = Choice(launches=launches, kernels=() if kernel == "*" else (kernel,))
        return function(*args, choice=choice, **others)

    return cast(Function, kernel_option(_number_option("launches")(with_choice)))


def _number_option(name: str) -> Callable[[Any], Any]:
    option, what = _NUMBERS[name]
    return click.option(
        option, name, cls=HarmlessSetting, type=Numbers(), metavar="SPEC", help=f"Only these {what}. [default: all]"
    )


def scope_names_option(function: Function) -> Function:
    return click.option(
        "--scope-names",
        "names_path",
        type=path_type(),
        metavar="FILE",
        help="For a Proton BUFFER: where its scope names are, the kernel's .ttgir with records, or JSON.",
    )(function)


def buffer_options(function: Function) -> Function:
    """What another profiler's buffer does not tell. The command gets it as ``said``."""

    @functools.wraps(function)
    def with_description(
        *args: Any, buffer_format: str | None, names: str | None, units: int | None, **others: Any
    ) -> Any:
        named = None if names is None else parse_names(names)
        said = BufferDescription(format=buffer_format, names=named, units=units)
        return function(*args, said=said, **others)

    decorated: Any = click.option(
        "--buffer-units",
        "units",
        cls=HarmlessSetting,
        type=click.IntRange(min=1),
        metavar="N",
        help="For a BUFFER of cute or cute-compact: num_units of its allocation. [default: 1]",
    )(with_description)
    decorated = click.option(
        "--names",
        cls=HarmlessSetting,
        metavar="NAME,...",
        help="For a BUFFER of another profiler: the names of its events, starting at event 0.",
    )(decorated)
    return cast(
        Function,
        click.option(
            "--buffer-format",
            cls=HarmlessSetting,
            type=click.Choice(list(PROFILERS)),
            help="For a BUFFER that numpy.save wrote: which profiler it is from. [default: as the .json file next to "
            "it says]",
        )(decorated),
    )


def source_option(function: Function) -> Function:
    return click.option(
        "--source",
        "with_source",
        cls=HarmlessSetting,
        is_flag=True,
        help="Also print the source of A and B side by side, where it or what the compiler made of it changed.",
    )(function)


def redact_option(function: Function) -> Function:
    return click.option(
        "--redact",
        cls=HarmlessSetting,
        is_flag=True,
        help=f"Omit from all output: {LEFT_OUT}. Kept: {STAYS}.",
    )(function)


def layout_option(function: Function) -> Function:
    return click.option(
        "--layout",
        cls=HarmlessSetting,
        type=click.Choice(LAYOUT_NAMES),
        help="Row order of the timeline: by SM, by CTA, or by scope. [default: sm]",
    )(function)


def trace_file(ctx: click.Context, path: Path, layout: str | None, hooks: Sequence[Hook] = ()) -> TraceFile:
    """The file to write a trace to. A ``layout`` of the settings is for drawings alone; one of the command line is for
    this file. Raises ``KprofError`` if no format has its ending, or cannot have the layout or hooks.
    """
    is_setting = ctx.get_parameter_source("layout") is ParameterSource.DEFAULT_MAP
    fitting = None if is_setting and not isinstance(format_of(path), DrawingFormat) else layout
    return TraceFile.at(path, fitting, hooks)
