"""Commands whose first word may be a workspace, with options and a program behind it."""

from __future__ import annotations

import click


class WorkspaceFirst(click.Command):
    """Takes ``[OPTIONS] WORKSPACE [OPTIONS] [--] PROGRAM``: click, which must stop at the program's first word, would
    stop at the workspace."""

    def is_workspace(self, word: str) -> bool:
        """Whether the first word is one, and not yet the program's."""
        return True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before, words = self._split(ctx, args)
        if words and self.is_workspace(words[0]):
            after, program = self._split(ctx, words[1:])
            args = [*before, *after, "--", words[0], *program]
        return super().parse_args(ctx, args)

    def _split(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        """The options that ``args`` begins with, and the rest, without a ``--`` between them."""
        options_alone = click.Command(None, params=[p for p in self.params if isinstance(p, click.Option)])
        _, rest, _ = options_alone.make_parser(ctx).parse_args(list(args))
        options = args[: len(args) - len(rest)]
        return (options[:-1] if options[-1:] == ["--"] else options), rest
