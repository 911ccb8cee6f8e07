"""Commands whose first word may be a workspace, with options and a program behind it."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from kprof_inject.workspace_paths import DEFAULT_WORKSPACE, is_workspace


class WorkspaceFirst(click.Command):
    """Takes ``[OPTIONS] WORKSPACE [OPTIONS] [--] PROGRAM``: click, which must stop at the program's first word, would
    stop at the workspace."""

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
