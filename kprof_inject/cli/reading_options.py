"""Options of the commands that read captures: the part to show, the description of a buffer, and the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kprof_inject.capture.foreign import LAYOUTS, BufferDescription
from kprof_inject.capture.model import LEFT_OUT, STAYS
from kprof_inject.cli.options import PATH, completions, gathered, harmless_setting, kernel_option, program_setting
from kprof_inject.export.formats import ENDINGS, TraceFile, format_of
from kprof_inject.export.hooks import Hook
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.timeline.choice import Choice, NumberSet

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _OfNumbers = click.ParamType[NumberSet]
else:
    _OfNumbers = click.ParamType  # in older versions of Click, ParamType is not generic


class Numbers(_OfNumbers):
    """Parameter type of a ``NumberSet``, from its text or a single number."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NumberSet:
        """Parse the value; raise ``KprofError`` with the position of a mistake in it."""
        if isinstance(value, NumberSet):
            return value
        return NumberSet.parse(str(value), param.opts[0] if param else self.name)


def _complete_scopes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from kprof_inject.pipeline.captures import open_capture

    def scopes_of(place: Path) -> list[str]:
        tables = [launch.kernel.scopes for launch in open_capture(place).launches]
        return list(dict.fromkeys(scope.name for table in tables for scope in table.scopes))

    return completions(scopes_of, ctx, incomplete)


trace_option = program_setting(
    "--trace",
    "trace_path",
    type=PATH,
    default=None,
    help=f"The trace file; {ENDINGS}. [default: trace.json in the workspace]",
)

_NUMBERS = {
    "launches": ("--launch", "launches of each kernel, by number, such as 0,4-7,12-"),
    "sms": ("--sm", "SMs, by number, such as 0,4-7,12-"),
    "ctas": ("--cta", "CTAs, by number"),
    "warps": ("--warp", "warps of each CTA, by number"),
}
"""The option for each set of numbers in ``Choice``, and what the numbers are."""


def _number_option(name: str) -> Callable[[Any], Any]:
    option, what = _NUMBERS[name]
    return harmless_setting(option, name, type=Numbers(), metavar="SPEC", help=f"Only these {what}. [default: all]")


def _choice(kernel: str, **chosen: Any) -> Choice:
    return Choice(kernels=() if kernel == "*" else (kernel,), **chosen)


choice_options = gathered(
    "choice",
    _choice,
    kernel_option,
    *map(_number_option, _NUMBERS),
    harmless_setting(
        "--scope",
        "scopes",
        multiple=True,
        metavar="GLOB",
        shell_complete=_complete_scopes,
        help="Only scopes with this name, as in the table; * and ? are wildcards. Repeatable. [default: all]",
    ),
)
"""Which part of a capture to show; the command gets ``choice``."""

launch_options = gathered("choice", _choice, kernel_option, _number_option("launches"))
"""Which kernels and launches to show; the command gets ``choice``."""

scope_names_option = click.option(
    "--scope-names",
    "names_path",
    type=PATH,
    metavar="FILE",
    help="For a Proton BUFFER: the file with its scope names, which is the kernel's .ttgir with records, or JSON.",
)

buffer_options = gathered(
    "description",
    lambda buffer_format, names: BufferDescription.of(buffer_format, names),
    harmless_setting(
        "--buffer-format",
        type=click.Choice(list(LAYOUTS)),
        help="For a BUFFER that numpy.save wrote: the profiler that it is from.",
    ),
    harmless_setting(
        "--names",
        metavar="NAME,...",
        default="",
        help="For a BUFFER of another profiler: the names of its events, starting at event 0.",
    ),
)
"""What another profiler's buffer lacks; the command gets ``description``."""

redact_option = harmless_setting("--redact", is_flag=True, help=f"Omit from all output: {LEFT_OUT}. Kept: {STAYS}.")

layout_option = harmless_setting(
    "--layout",
    type=click.Choice(LAYOUT_NAMES),
    help="Row order of the timeline: by SM, by CTA, or by scope. [default: sm]",
)


def trace_file(ctx: click.Context, path: Path, layout: str | None, hooks: Sequence[Hook] = ()) -> TraceFile:
    """Return the file to write a trace to.

    A ``layout`` from the settings is ignored if the file is not a drawing. Raises ``KprofError`` if no format has the
    file's ending, or if the format takes no layout or hooks.
    """
    is_setting = ctx.get_parameter_source("layout") is ParameterSource.DEFAULT_MAP
    if is_setting and not format_of(path).is_drawing:
        layout = None
    return TraceFile.at(path, layout, hooks)
