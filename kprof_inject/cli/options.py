"""Options and arguments that several commands share, and commands whose first word may be a workspace."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kprof_inject.errors import KprofError
from kprof_inject.files import read_text
from kprof_inject.select.tags import OPTION
from kprof_inject.workspace_paths import DEFAULT_WORKSPACE, is_workspace

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class HarmlessSetting(click.Option):
    """An option that ``pyproject.toml`` may set for every command: none of its values names a file, runs code or takes
    long.
    """


class ProgramSetting(click.Option):
    """An option that ``pyproject.toml`` may set only for a command that runs a program of the same project: the program
    can do anything that the option can.
    """


class NumberOrAuto(click.IntRange):
    """A number, or ``auto``, which is 0."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return 0 if value == "auto" else super().convert(value, param, ctx)


def complete_selectors(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Selectors of every kernel in the workspace (or file) on the command line; nothing where there is none."""
    return offered(_selectors_of, ctx, incomplete)


def offered(texts_of: Callable[[Path], list[str]], ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Of the texts of what the command line names, those that go on as the word to be completed."""
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
    from kprof_inject.workspace import Workspace, saved_sources

    if place.is_dir():
        views = [view for view in views_in(Workspace.open(place)) if not isinstance(view, KprofError)]
    else:
        views = [view_of(read_text(place), str(place), saved_sources(place))]
    return list(dict.fromkeys(text for view in views for text in candidates(view)))


Function = TypeVar("Function", bound=Callable[..., Any])


def path_type() -> click.Path:
    return click.Path(path_type=Path)


class CapturePath(click.Path):
    """A place that may be a capture: of the default workspace, its number is enough."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from kprof_inject.pipeline.captures import numbered_capture

        place = super().convert(value, param, ctx)
        return place if ctx is not None and ctx.resilient_parsing else numbered_capture(Path(str(place)))


def place_argument(metavar: str) -> Callable[[Function], Function]:
    """What to read, ``place``: the default workspace if nothing is named."""
    kind = CapturePath() if "CAPTURE" in metavar else path_type()
    return click.argument("place", metavar=f"[{metavar}]", type=kind, default=DEFAULT_WORKSPACE, required=False)


def require_place_for(*files: Path | None, workspace: Path | None = None) -> None:
    """Raise ``KprofError`` for a file to be written whose folder does not exist, before anything is done for it. That
    of the ``workspace`` is made.
    """
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
        cls=ProgramSetting,
        type=path_type(),
        default=DEFAULT_WORKSPACE,
        show_default=True,
        help="The workspace: the folder that all steps share.",
    )(function)


def kernel_option(function: Function) -> Function:
    return click.option(
        "--kernel",
        cls=HarmlessSetting,
        default="*",
        metavar="GLOB",
        help="Only kernels whose name matches. [default: all]",
    )(function)


def at_option(function: Function) -> Function:
    return click.option(
        "--at",
        "selectors",
        cls=HarmlessSetting,
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
            parser._long_opt[word].process = partial(_add_to_last_selector, ctx)


def _add_to_last_selector(ctx: click.Context, tag: str, state: Any) -> None:
    selectors = state.opts.get("selectors")
    if not selectors:
        raise click.UsageError(f"{OPTION} {tag} must follow the --at that it belongs to", ctx)
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


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")(function)


class WorkspaceFirst(click.Command):
    """Takes ``[OPTIONS] WORKSPACE [OPTIONS] [--] PROGRAM``: click, which must stop at the program's first word, would
    stop at the workspace.
    """

    def names_workspace(self, words: list[str]) -> bool:
        """Whether the first of these words is a workspace, and not yet the program's."""
        raise NotImplementedError

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before, words = self._split(ctx, args)
        if words and self.names_workspace(words):
            after, program = self._split(ctx, words[1:])
            args = [*before, *after, "--", words[0], *program]
        else:
            args = [*before, "--", *self.without_workspace(words)]
        return super().parse_args(ctx, args)

    def without_workspace(self, program: list[str]) -> list[str]:
        """The words to read where no workspace is named."""
        return program

    def _split(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        """The options that ``args`` begins with, and the rest, without a ``--`` between them."""
        options_alone = click.Command(None, params=[p for p in self.params if isinstance(p, click.Option)])
        _, rest, _ = options_alone.make_parser(ctx).parse_args(list(args))
        options = args[: len(args) - len(rest)]
        return (options[:-1] if options[-1:] == ["--"] else options), rest


def names_a_workspace(word: str) -> bool:
    """The default one's name means nothing else, even where it is missing."""
    return is_workspace(Path(word)) or Path(word) == DEFAULT_WORKSPACE


class WorkspaceOrProgram(WorkspaceFirst):
    """The workspace may be left out: its command takes care of that."""

    def names_workspace(self, words: list[str]) -> bool:
        return names_a_workspace(words[0])


class WorkspaceOrDefault(WorkspaceFirst):
    """Without a workspace, the default one is meant. What can be run is a program, and so is a word by itself."""

    def names_workspace(self, words: list[str]) -> bool:
        first, *others = words
        is_program = Path(first).is_file() or shutil.which(first) or not others
        return names_a_workspace(first) or not is_program

    def without_workspace(self, program: list[str]) -> list[str]:
        return [str(DEFAULT_WORKSPACE), *program]
