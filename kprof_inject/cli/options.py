"""Options and arguments that several commands share, and command classes that take a workspace before a program."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from kprof_inject.cli.grouped_help import GroupedCommand
from kprof_inject.errors import KprofError
from kprof_inject.files import read_text
from kprof_inject.select.tags import OPTION
from kprof_inject.workspace_folder import DEFAULT_WORKSPACE, is_workspace

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Function = TypeVar("Function", bound=Callable[..., Any])


class HarmlessSetting(click.Option):
    """An option that ``pyproject.toml`` may set for every command: no value names a file, runs code or takes long."""


class ProgramSetting(click.Option):
    """An option that ``pyproject.toml`` may set only for a command that runs a program.

    A script of the same project can do anything that the option can. For any other program, the option's value must be
    a file in the project's folder.
    """


harmless_setting = functools.partial(click.option, cls=HarmlessSetting)
program_setting = functools.partial(click.option, cls=ProgramSetting)


class NumberOrWord(click.IntRange):
    """Parameter type that accepts a number, or a word with a value of its own."""

    def __init__(self, words: Mapping[str, int | None], min: int, max: int) -> None:
        super().__init__(min, max)
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the value of the word."""
        return self.words[value] if value in self.words else super().convert(value, param, ctx)


def complete_selectors(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a selector from every kernel in the workspace or file on the command line."""
    from kprof_inject.insertion import view_of, views_in
    from kprof_inject.select.candidates import candidates
    from kprof_inject.workspace import Workspace, saved_sources

    def selectors_of(place: Path) -> list[str]:
        if place.is_dir():
            views = [view for view in views_in(Workspace.open(place)) if not isinstance(view, KprofError)]
        else:
            views = [view_of(read_text(place), str(place), saved_sources(place))]
        return list(dict.fromkeys(text for view in views for text in candidates(view)))

    return completions(selectors_of, ctx, incomplete)


def completions(texts_of: Callable[[Path], list[str]], ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the texts of the place on the command line that start with ``incomplete``; none if it cannot be read."""
    from click.shell_completion import CompletionItem

    # While an option's value is incomplete, click has not parsed the arguments, and they have their defaults.
    words = ctx.args[:1] if "place" in ctx.params else []
    place = next(iter(words), None) or ctx.params.get("place") or ctx.params.get("workspace") or DEFAULT_WORKSPACE
    try:
        found = texts_of(Path(place))
    except (KprofError, OSError):
        found = []
    # The shell prints completions, and takes each line for one of them.
    return [CompletionItem(text) for text in found if text.startswith(incomplete) and text.isprintable()]


def gathered(
    name: str, made: Callable[..., Any], *added: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add options in this order; the command gets their values as one argument: what ``made`` returns for them."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_one(*args: Any, **values: Any) -> Any:
            own = {option: values.pop(option) for option in names}
            return function(*args, **values, **{name: made(**own)})

        decorated: Any = with_one
        others = len(getattr(function, "__click_params__", ()))
        for option in reversed(added):
            decorated = option(decorated)
        names = [option.name for option in decorated.__click_params__[others:]]
        return cast(Callable[..., Any], decorated)

    return add


def is_given(ctx: click.Context, parameter: click.Parameter) -> bool:
    """Return whether a parameter is on the command line."""
    return ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE


PATH = click.Path(path_type=Path)  # parameter type of a path


class CapturePath(click.Path):
    """Parameter type of a place; a number is a capture in the default workspace."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or the capture that a number names, except while completing."""
        from kprof_inject.pipeline.captures import numbered_capture

        place = super().convert(value, param, ctx)
        return place if ctx is not None and ctx.resilient_parsing else numbered_capture(Path(str(place)))


def place_argument(metavar: str) -> Callable[[Function], Function]:
    """Add the argument ``place``, which is the default workspace if it is left out."""
    kind = CapturePath() if "CAPTURE" in metavar else PATH
    return click.argument("place", metavar=f"[{metavar}]", type=kind, default=DEFAULT_WORKSPACE, required=False)


def require_place_for(*files: Path | None, workspace: Path | None = None) -> None:
    """Raise ``KprofError`` if a file cannot be written, before any work; the folder ``workspace`` will be created."""
    for file in files:
        if file is None or str(file) == "-":
            continue
        if file.is_dir():
            raise KprofError(f"cannot write {file}: it is a folder", hint="name a file")
        folder = file.parent
        if folder.is_dir() or (workspace is not None and folder.absolute() == workspace.absolute()):
            continue
        if folder.exists():
            raise KprofError(f"cannot write {file}: {folder} is not a folder", hint="name a file in a folder")
        hint = f"make the folder: mkdir -p {quote(str(folder))}"
        raise KprofError(f"cannot write {file}: {folder} does not exist", hint=hint)


PROGRAM_SETTINGS = {"allow_interspersed_args": False}
"""Settings with which click passes everything after the first argument on to the program."""


def _require_program(ctx: click.Context, parameter: click.Parameter, program: tuple[str, ...]) -> tuple[str, ...]:
    if not program and not ctx.resilient_parsing:
        what = f"Missing argument 'PROGRAM...'. Put it after two dashes: {ctx.command_path} -- python train.py"
        raise click.UsageError(what, ctx)
    return program


program_argument = click.argument(
    "program", nargs=-1, metavar="PROGRAM...", type=click.UNPROCESSED, callback=_require_program
)
"""The argument ``program``, a command line that must not be empty."""

workspace_option = program_setting(
    "-o",
    "--output",
    "workspace",
    type=PATH,
    default=DEFAULT_WORKSPACE,
    show_default=True,
    help="The workspace: the folder that all steps share.",
)

kernel_option = harmless_setting(
    "--kernel", default="*", metavar="GLOB", help="Only kernels whose name matches. [default: all]"
)

at_option = harmless_setting(
    "--at",
    "selectors",
    multiple=True,
    metavar="SELECTOR",
    shell_complete=complete_selectors,
    help="What to time, [KERNEL/]SITE[=NAME]: func, func(NAME), loop, iter, loop[0.2], iter@57, spin, "
    "op(GLOB), async, parts, line(57-63), partition[0], partition(NAME), default, marker(GLOB). Repeatable. [default: "
    "the source's markers if it has any, else func, loop, iter; and spin]",
)


class _TagOption(click.Option):
    # Its value is appended to the selector before it during parsing: click does not keep the order of options later.
    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        def add_to_last_selector(tag: str, state: Any) -> None:
            selectors = state.opts.get("selectors")
            if not selectors:
                raise click.UsageError(f"{OPTION} {tag} must follow the --at that it belongs to", ctx)
            selectors[-1] += f" {OPTION} {tag}"

        super().add_to_parser(parser, ctx)
        for word in self.opts:
            parser._long_opt[word].process = add_to_last_selector


tag_option = click.option(
    OPTION,
    "tag",
    cls=_TagOption,
    expose_value=False,
    metavar="NAME=VALUE",
    help="Record a kernel value at the start of each scope of the preceding --at. VALUE is an integer of up to 32 "
    "bits: a source variable, or a TTGIR name (%pid). Repeatable.",
)
"""For a command with ``at_option``, whose selectors then contain their tags."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")


def names_a_workspace(word: str) -> bool:
    """Return whether a word is a workspace; the default workspace's name always is, even if it does not exist."""
    return is_workspace(Path(word)) or Path(word) == DEFAULT_WORKSPACE


class WorkspaceOrProgram(GroupedCommand):
    """Command that takes ``[OPTIONS] [WORKSPACE] [OPTIONS] [--] PROGRAM``; it tells workspace and program apart itself.

    Click must stop parsing options at the program's first word, and would stop at the workspace.
    """

    workspace_left_out: tuple[str, ...] = ()  # arguments to parse in place of a workspace

    def names_workspace(self, words: list[str]) -> bool:
        """Return whether the first of these words is a workspace rather than the program's first word."""
        return names_a_workspace(words[0])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the options after the workspace before it, and parse the result."""
        before, words = self._split(ctx, args)
        if words and self.names_workspace(words):
            after, program = self._split(ctx, words[1:])
            args = [*before, *after, "--", words[0], *program]
        else:
            args = [*before, "--", *self.workspace_left_out, *words]
        return super().parse_args(ctx, args)

    def _split(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        options_only = click.Command(None, params=[p for p in self.params if isinstance(p, click.Option)])
        _, rest, _ = options_only.make_parser(ctx).parse_args(list(args))
        options = args[: len(args) - len(rest)]
        return (options[:-1] if options[-1:] == ["--"] else options), rest


class WorkspaceOrDefault(WorkspaceOrProgram):
    """Command that uses the default workspace if none is named."""

    workspace_left_out = (str(DEFAULT_WORKSPACE),)

    def names_workspace(self, words: list[str]) -> bool:
        """Return whether the first word is a workspace; a single word, a file or a command is a program otherwise."""
        first, *others = words
        is_program = Path(first).is_file() or shutil.which(first) or not others
        return names_a_workspace(first) or not is_program
