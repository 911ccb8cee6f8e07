"""Options and arguments that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from kprof_inject.capture.foreign.registry import PROFILERS
from kprof_inject.capture.foreign_buffer import BufferDescription, parse_names
from kprof_inject.capture.model import LEFT_OUT, STAYS
from kprof_inject.errors import KprofError
from kprof_inject.export.drawing import LAYOUT_NAMES
from kprof_inject.export.hooks import Hook
from kprof_inject.export.registry import ENDINGS, DrawingFormat, TraceFile, format_of
from kprof_inject.files import read_text
from kprof_inject.places import DEFAULT_WORKSPACE
from kprof_inject.select.tags import OPTION
from kprof_inject.timeline.choice import Choice, NumberSet

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _OfNumbers = click.ParamType[NumberSet]
else:
    # Older versions of Click have it without a parameter.
    _OfNumbers = click.ParamType


class NumberOrAuto(click.IntRange):
    """A number, or ``auto``, which is 0."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return 0 if value == "auto" else super().convert(value, param, ctx)


class Numbers(_OfNumbers):
    """A ``NumberSet``, from what the user writes or from a single number."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NumberSet:
        """Raises ``KprofError`` that points into the value."""
        if isinstance(value, NumberSet):
            return value
        return NumberSet.parse(str(value), param.opts[0] if param else self.name)


def complete_selectors(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Selectors of every kernel in the workspace (or file) on the command line; nothing where there is none."""
    return _offered(_selectors_of, ctx, incomplete)


def complete_scopes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of scopes of every kernel in the capture on the command line; nothing where there is none."""
    return _offered(_scopes_of, ctx, incomplete)


def _offered(texts_of: Callable[[Path], list[str]], ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    # Click assigns no argument while an option's value is missing: it has its default still.
    words = ctx.args[:1] if "place" in ctx.params else []
    place = next(iter(words), None) or ctx.params.get("place") or ctx.params.get("workspace") or DEFAULT_WORKSPACE
    try:
        found = texts_of(Path(place))
    except (KprofError, OSError):
        found = []
    # The shell prints what it is offered, and takes each line for an offer.
    return [CompletionItem(text) for text in found if text.startswith(incomplete) and text.isprintable()]


def _selectors_of(place: Path) -> list[str]:
    from kprof_inject.pipeline.insertion import view_of, views_in
    from kprof_inject.select.candidates import candidates
    from kprof_inject.workspace import Workspace, snapshot_beside

    if place.is_dir():
        views = [view for view in views_in(Workspace.open(place)) if not isinstance(view, KprofError)]
    else:
        views = [view_of(read_text(place), str(place), snapshot_beside(place))]
    return list(dict.fromkeys(text for view in views for text in candidates(view)))


def _scopes_of(place: Path) -> list[str]:
    from kprof_inject.pipeline.captures import open_capture

    tables = [launch.kernel.scopes for launch in open_capture(place).launches]
    return list(dict.fromkeys(scope.name for table in tables for scope in table.scopes))


Function = TypeVar("Function", bound=Callable[..., Any])


def path_type() -> click.Path:
    return click.Path(path_type=Path)


def place_argument(metavar: str) -> Callable[[Function], Function]:
    """What to read, ``place``: the default workspace if nothing is named."""
    return click.argument("place", metavar=f"[{metavar}]", type=path_type(), default=DEFAULT_WORKSPACE, required=False)


PROGRAM_SETTINGS = {"allow_interspersed_args": False}
"""Everything after the first word that is no option belongs to the program."""


def program_argument(function: Function) -> Function:
    return click.argument("program", nargs=-1, metavar="PROGRAM...", type=click.UNPROCESSED, callback=_require_program)(
        function
    )


def _require_program(ctx: click.Context, parameter: click.Parameter, program: tuple[str, ...]) -> tuple[str, ...]:
    if not program and not ctx.resilient_parsing:
        raise click.UsageError(
            f"Missing argument 'PROGRAM...'. Put it after two dashes: {ctx.command_path} -- python train.py", ctx
        )
    return program


def workspace_option(function: Function) -> Function:
    return click.option(
        "-o",
        "--output",
        "workspace",
        type=path_type(),
        default=DEFAULT_WORKSPACE,
        show_default=True,
        help="The workspace: the folder that all steps share.",
    )(function)


def kernel_option(function: Function) -> Function:
    return click.option(
        "--kernel", default="*", metavar="GLOB", help="Only kernels whose name matches. [default: all]"
    )(function)


def at_option(function: Function) -> Function:
    return click.option(
        "--at",
        "selectors",
        multiple=True,
        metavar="SELECTOR",
        shell_complete=complete_selectors,
        help="What to time, [KERNEL/]SITE[=NAME]: func, func(NAME), loop, iter, loop[0.2], iter@57, op(GLOB), async, "
        "parts, line(57-63), partition[0], default, marker(GLOB). Repeatable. [default: the source's markers if it "
        "has any, else func, loop, iter]",
    )(function)


class _TagOption(click.Option):
    """``--tag``, which has no value of its own: it becomes part of the selector before it. Click tells a command the
    values of each option, and not how those of two options follow each other, so that it is done while they are read.
    """

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        for word in self.opts:
            parser._long_opt[word].process = _add_to_last_selector


def _add_to_last_selector(tag: str, state: Any) -> None:
    selectors = state.opts.get("selectors")
    if not selectors:
        raise click.UsageError(f"{OPTION} {tag} must follow the --at that it belongs to")
    selectors[-1] += f" {OPTION} {tag}"


def tag_option(function: Function) -> Function:
    """For a command with ``at_option``, whose selectors then have their tags."""
    return click.option(
        OPTION,
        "tag",
        cls=_TagOption,
        expose_value=False,
        metavar="NAME=VALUE",
        help="Record a kernel value at the start of each scope of the preceding --at. VALUE is an integer of up to 32 "
        "bits: a source variable, or a TTGIR name (%pid). Repeatable.",
    )(function)


def trace_option(function: Function) -> Function:
    return click.option(
        "--trace",
        "trace_path",
        type=path_type(),
        default=None,
        help=f"The trace file; {ENDINGS}. [default: trace.json in the workspace]",
    )(function)


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")(function)


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
    return click.option(option, name, type=Numbers(), metavar="SPEC", help=f"Only these {what}. [default: all]")


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
        type=click.IntRange(min=1),
        metavar="N",
        help="For a BUFFER of cute or cute-compact: num_units of its allocation. [default: 1]",
    )(with_description)
    decorated = click.option(
        "--names",
        metavar="NAME,...",
        help="For a BUFFER of another profiler: the names of its events, starting at event 0.",
    )(decorated)
    return cast(
        Function,
        click.option(
            "--buffer-format",
            type=click.Choice(list(PROFILERS)),
            help="For a BUFFER that numpy.save wrote: which profiler it is from. [default: as the .json file next to "
            "it says]",
        )(decorated),
    )


def source_option(function: Function) -> Function:
    return click.option(
        "--source",
        "with_source",
        is_flag=True,
        help="Also print the source of A and B side by side, where it or what the compiler made of it changed.",
    )(function)


def redact_option(function: Function) -> Function:
    return click.option(
        "--redact",
        is_flag=True,
        help=f"Omit from all output: {LEFT_OUT}. Kept: {STAYS}.",
    )(function)


def layout_option(function: Function) -> Function:
    return click.option(
        "--layout",
        type=click.Choice(LAYOUT_NAMES),
        help="Row order of the timeline: by SM, by CTA, or by scope. [default: sm]",
    )(function)


def trace_file(ctx: click.Context, path: Path, layout: str | None, hooks: Sequence[Hook] = ()) -> TraceFile:
    """The file to write a trace to. A ``layout`` of the settings is for drawings alone; one of the command line is for
    this file. Raises ``KprofError`` if no format has its ending, or cannot have the layout or hooks."""
    is_setting = ctx.get_parameter_source("layout") is ParameterSource.DEFAULT_MAP
    fitting = None if is_setting and not isinstance(format_of(path), DrawingFormat) else layout
    return TraceFile.at(path, fitting, hooks)
